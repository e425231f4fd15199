"""The line that ``/`` opens: filters a table, searches a text, says how many match."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, Static

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
        line.focus()

    def count(self) -> None:
        """Say how many match."""
        pane = self.pane
        text = ""
        if isinstance(pane, VirtualTable):
            text = f"{pane.count():,}/{pane.provider.count():,}"
        elif pane is not None and pane.needle:
            folded = pane.needle == pane.needle.lower()
            lines = (pane.line_text(index) for index in range(pane.count()))
            text = f"{sum(pane.needle in (line.lower() if folded else line) for line in lines):,} lines"
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
        elif text != pane.needle:
            pane.needle = text
            if text:
                index = pane.find(text, pane.cursor, 1)
                if index is not None:
                    pane.move_to(index, centre=True)
            pane.refresh()
        self.count()

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
