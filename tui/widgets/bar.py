"""One line of items that can be clicked: the top line, the row of views, the row of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from ..colours import span_styles
from ..spans import Cell, fit, spans_of


class Item(NamedTuple):
    """A piece of a bar.

    Attributes:
        cell: What it shows.
        action: Textual action of a click, "" for none.
        keep: When the bar is too narrow, items with the lowest ``keep`` go first.
    """

    cell: Cell
    action: str = ""
    keep: int = 5


class Bar(Widget):
    """Shows items from left to right; those after a None from the right edge."""

    DEFAULT_CSS = "Bar { height: 1; background: $surface; color: $foreground; }"
    GAP = 2

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: Sequence[Item | None] = ()
        self._regions: list[tuple[int, int, str]] = []

    def show(self, items: Sequence[Item | None]) -> None:
        """Show items."""
        if items != self._items:
            self._items = items
            self.refresh()

    def _fitting(self, width: int) -> list[Item | None]:
        """The items that have room."""
        items = list(self._items)
        while True:
            real = [item for item in items if item is not None]
            total = sum(size(item) + self.GAP for item in real) - self.GAP
            if total <= width or len(real) < 2:
                return items
            least = min(real, key=lambda item: item.keep)
            items.reverse()  # of equals the last goes first
            items.remove(least)
            items.reverse()

    def render_line(self, y: int) -> Strip:
        """The line."""
        width = self.size.width
        base = self.rich_style
        items = self._fitting(width)
        real = [item for item in items if item is not None]
        spare = max(0, width - sum(size(item) + self.GAP for item in real) + self.GAP)
        spans = []
        self._regions = []
        at = 0
        for item in items:
            if item is None:
                spans.append((" " * spare, ""))
                at += spare
                continue
            cells = size(item)
            if item.action:
                self._regions.append((at, at + cells, item.action))
            spans += spans_of(item.cell)
            at += cells + self.GAP
            spans.append((" " * min(self.GAP, max(0, width - at + self.GAP)), ""))
        styles = span_styles(self.app)
        segments = [Segment(text, base + styles[style] if style else base) for text, style in fit(spans, width)]
        return Strip(segments, width)

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the item under the mouse."""
        for start, end, action in self._regions:
            if start <= event.x < end:
                await self.app.run_action(action)


def size(item: Item) -> int:
    """Cells of an item."""
    return sum(cell_len(text) for text, _ in spans_of(item.cell))
