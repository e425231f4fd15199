"""The line that ``/`` opens: filters a table, searches a text, says how many match."""

from __future__ import annotations

from bisect import bisect_left

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from .filtering import fields_of
from .line_view import LineView
from .virtual_table import VirtualTable

DEBOUNCE = 0.08  # seconds of silence before a keystroke filters a long list


class FilterBar(Horizontal):
    """Works on one pane at a time and remembers nothing: the pane keeps its own filter."""

    DEFAULT_CSS = """
    FilterBar { height: 1; display: none; background: $surface; }
    FilterBar.-open { display: block; }
    FilterBar Static { width: auto; padding: 0 1; color: $text-muted; }
    FilterBar Input { width: 1fr; height: 1; border: none; background: $boost; }
    """

    class Closed(Message):
        """The bar has been left; the focus goes back to the pane."""

        def __init__(self, pane: LineView | None) -> None:
            self.pane = pane
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="filter-bar")
        self.pane: LineView | None = None
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """What it does, the text, the count."""
        yield Static("/", id="filter-kind", markup=False)
        yield Input(compact=True, select_on_focus=True)
        yield Static("", id="filter-count", markup=False)

    def open(self, pane: LineView) -> None:
        """Filter or search a pane, starting with what it has."""
        self.pane = pane
        is_table = isinstance(pane, VirtualTable)
        self.query_one("#filter-kind", Static).update("filter /" if is_table else "search /")
        line = self.query_one(Input)
        with self.prevent(Input.Changed):
            line.value = pane.filter_text if isinstance(pane, VirtualTable) else pane.needle
        line.placeholder = "text"
        if isinstance(pane, VirtualTable):
            names = " ".join(f"{name}:" for name in fields_of(pane.provider))
            line.placeholder = "words that must occur; ! in front: that must not" + f"; {names}" * bool(names)
        self.add_class("-open")
        self.count()
        if not is_table and pane.needle:
            self._search(pane, jump=False)
        line.focus()

    def count(self) -> None:
        """Say how many rows of a table match; of a text ``_found`` says it."""
        pane = self.pane
        text = f"{pane.count():,}/{pane.provider.count():,}" if isinstance(pane, VirtualTable) else ""
        self.query_one("#filter-count", Static).update(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply after a short silence."""
        event.stop()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(DEBOUNCE, self.apply)

    def apply(self) -> None:
        """Apply what is typed."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        pane, text = self.pane, self.query_one(Input).value
        if pane is None or not pane.is_attached:
            return
        if isinstance(pane, VirtualTable):
            if text != pane.filter_text:
                pane.filter(text)
            self.count()
        elif text != pane.needle:
            pane.needle = text
            pane.refresh()
            self.count()
            if text:
                self._search(pane, jump=True)

    def _search(self, pane: LineView, *, jump: bool) -> None:
        """Find the lines of a text that match; of a long one on a worker."""
        needle = pane.needle
        start = pane.cursor if jump else None
        if pane.count() <= VirtualTable.ON_WORKER:
            self._found(pane, needle, pane.matches(needle), start)
            return

        def work() -> None:
            worker = get_current_worker()
            found = pane.matches(needle, lambda: worker.is_cancelled)
            if not worker.is_cancelled:
                self.app.call_from_thread(self._found, pane, needle, found, start)

        self.run_worker(work, thread=True, exclusive=True, group="search")

    def _found(self, pane: LineView, needle: str, found: list[int], start: int | None) -> None:
        """Say how many lines match and go to the next one, unless the cursor or the text has changed since the start."""
        if pane is not self.pane or needle != pane.needle or not pane.is_attached:
            return
        self.query_one("#filter-count", Static).update(f"{len(found):,} line{'s' * (len(found) != 1)}")
        if found and pane.cursor == start:
            at = bisect_left(found, pane.cursor)
            pane.move_to(found[at % len(found)], centre=True)

    def close(self, *, clear: bool) -> None:
        """Leave; with ``clear`` everything is shown again."""
        if clear:
            with self.prevent(Input.Changed):
                self.query_one(Input).value = ""
        self.apply()
        self.remove_class("-open")
        self.post_message(self.Closed(self.pane))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter keeps the filter and goes back to the pane."""
        event.stop()
        self.close(clear=False)

    def on_key(self, event: events.Key) -> None:
        """Escape clears; up and down move in the pane while typing."""
        if event.key == "escape":
            event.stop()
            self.close(clear=True)
        elif event.key in ("up", "down") and self.pane is not None:
            event.stop()
            event.prevent_default()
            self.pane.action_move(-1 if event.key == "up" else 1)
