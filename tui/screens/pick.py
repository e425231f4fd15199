"""Screens that lie over the app: choose from a list, type a line, decide about a program that still runs."""

from __future__ import annotations

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ..spans import plain
from ..widgets.line_view import LineView
from ..widgets.virtual_table import RowProvider, VirtualTable

SAMPLE = 200  # rows that are looked at to see whether any is cut

_BOX = """
{name} {{ align: center middle; background: $background 60%; }}
{name} > Vertical {{ width: 90%; max-width: 118; height: auto; max-height: 90%; background: $surface; padding: 0 1; border: round $primary; }}
{name} .title {{ height: auto; text-style: bold; }}
{name} .note {{ height: auto; color: $text-muted; }}
{name} Input {{ border: none; height: 1; background: $boost; }}
"""


class PickScreen(ModalScreen[int | None]):
    """A list to choose from; typing filters it. Returns the provider's row number, None for escape."""

    DEFAULT_CSS = (
        _BOX.format(name="PickScreen")
        + "PickScreen VirtualTable { height: auto; max-height: 80vh; min-height: 3; background: $surface; }"
        + "PickScreen .whole { height: 2; color: $text-muted; display: none; }"
        + "PickScreen.-cut .whole { display: block; }"
    )

    def __init__(self, title: str, provider: RowProvider, note: str = "", *, start: int = 0) -> None:
        super().__init__()
        self._title = title
        self._note = note
        self._provider = provider
        self._start = start

    def compose(self) -> ComposeResult:
        """Title, filter, list."""
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            if self._note:
                yield Static(self._note, classes="note", markup=False)
            yield Input(placeholder="type to filter", compact=True, select_on_focus=False)
            table = VirtualTable(self._provider)
            table.cursor = self._start
            table.on_cursor = self._tell
            yield table
            yield Static("", classes="whole", markup=False)

    def on_mount(self) -> None:
        """Typing goes to the filter at once."""
        table = self.query_one(VirtualTable)
        table.changed()
        self._fit()
        self.query_one(Input).focus()

    def _fit(self) -> None:
        """As high as the list, within the screen."""
        table = self.query_one(VirtualTable)
        room = max(4, int(self.app.size.height * 0.9) - 6 - self._note.count("\n") - 2 * self.has_class("-cut"))
        table.styles.height = min(self._provider.count() + 1, room)

    def on_resize(self) -> None:
        """Stay within the screen; where rows do not fit into it, show the one under the cursor in full below."""
        table = self.query_one(VirtualTable)
        widths = table.widths(table.room)
        seen = (self._provider.row(index) for index in range(min(self._provider.count(), SAMPLE)))
        cut = any(
            cell_len(plain(cell).rstrip()) > width for row in seen for cell, width in zip(row, widths, strict=True)
        )
        self.set_class(cut and self.app.size.height >= 16, "-cut")
        self._fit()
        self._tell()

    def on_virtual_table_filtered(self, event: VirtualTable.Filtered) -> None:
        """Another row is under the cursor."""
        self._tell()

    def _tell(self, *_: object) -> None:
        table = self.query_one(VirtualTable)
        cells = self._provider.row(table.selected) if table.selected is not None else ()
        self.query_one(".whole", Static).update("  ".join(plain(cell).strip() for cell in cells))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter."""
        event.stop()
        self.query_one(VirtualTable).filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter picks."""
        event.stop()
        self.dismiss(self.query_one(VirtualTable).selected)

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Enter or a double click in the list picks."""
        event.stop()
        self.dismiss(self.query_one(VirtualTable).selected)

    def on_key(self, event: events.Key) -> None:
        """Keys that move go to the list while the filter has the focus."""
        table = self.query_one(VirtualTable)
        moves = {"up": -1, "down": 1, "pageup": -table.page, "pagedown": table.page}
        if event.key == "escape":
            event.stop()
            self.dismiss(None)
        elif event.key in moves and not table.has_focus:
            event.stop()
            event.prevent_default()
            table.action_move(moves[event.key])


class PromptScreen(ModalScreen[str | None]):
    """One line to type. Returns it, None for escape."""

    DEFAULT_CSS = _BOX.format(name="PromptScreen")

    def __init__(self, title: str, value: str = "", note: str = "") -> None:
        super().__init__()
        self._title = title
        self._value = value
        self._note = note

    def compose(self) -> ComposeResult:
        """Title, note, line."""
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            yield Input(self._value, compact=True, select_on_focus=False)
            yield Static(f"{self._note}\nenter takes it, esc leaves".strip(), classes="note", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter takes it."""
        event.stop()
        self.dismiss(event.value)

    def on_key(self, event: events.Key) -> None:
        """Escape leaves."""
        if event.key == "escape":
            event.stop()
            self.dismiss(None)


class QuitScreen(ModalScreen[bool]):
    """Asks before a program that still runs is stopped."""

    DEFAULT_CSS = _BOX.format(name="QuitScreen")

    def compose(self) -> ComposeResult:
        """The question."""
        with Vertical():
            yield Static("The program still runs.", classes="title")
            yield Static(
                "y  stop it (Ctrl-C, then SIGTERM, then SIGKILL) and leave\nn  stay (esc)\n\n"
                "What was recorded so far is kept either way.",
                classes="note",
            )

    def on_key(self, event: events.Key) -> None:
        """Decide."""
        event.stop()
        if event.key in ("y", "q", "enter"):
            self.dismiss(True)
        elif event.key in ("n", "escape"):
            self.dismiss(False)
