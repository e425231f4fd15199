"""What a list has no room for: the row under the cursor in full. It follows every key, so it neither scrolls nor lays out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from ..colours import span_styles
from ..spans import Cell, Span, fit, spans_of, wrap


class Detail(Widget):
    """A few wrapped lines; what does not fit is cut with an ellipsis."""

    DEFAULT_CSS = "Detail { background: $background; color: $foreground; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cells: Sequence[Cell] = ()
        self._wrapped: tuple[tuple[int, int], list[list[Span]]] = ((-1, -1), [])  # by width and height

    def show(self, cells: Sequence[Cell]) -> None:
        """Show paragraphs."""
        if cells != self._cells:
            self._cells = cells
            self._wrapped = ((-1, -1), [])
            self.refresh()

    def _lines(self, width: int) -> list[list[Span]]:
        height = max(1, self.size.height)
        if self._wrapped[0] != (width, height):
            first, *others = [wrap(spans_of(cell), width, 2) for cell in self._cells] or [[]]
            rest = [line for paragraph in others for line in paragraph]
            room = max(1, height - len(rest))  # the first gives way: the others are short
            lines = _cut([*_cut(first, room), *rest], height)
            self._wrapped = ((width, height), lines)
        return self._wrapped[1]

    def render_line(self, y: int) -> Strip:
        """One line (Textual's line API)."""
        width, base, styles = self.size.width, self.rich_style, span_styles(self.app)
        lines = self._lines(max(8, width - 2))
        line = [(" ", ""), *lines[y]] if y < len(lines) else []
        return Strip(
            [Segment(text, base + styles[style] if style else base) for text, style in fit(line, width)], width
        )


def _cut(lines: list[list[Span]], most: int) -> list[list[Span]]:
    """The first lines, with an ellipsis where there are more."""
    return lines if len(lines) <= most else [*lines[: most - 1], [*lines[most - 1], (" \u2026", "dim")]]
