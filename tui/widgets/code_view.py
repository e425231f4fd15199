"""Source text with line numbers and marks, coloured only where it is visible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..highlight import Regions, highlight
from ..spans import Span, Spans, clean
from .line_view import LineView


class Mark(NamedTuple):
    """Something about a line, shown left of it and, with ``note``, behind it."""

    glyph: str
    style: str
    note: str = ""


class CodeView(LineView):
    """Lines of code. ``/`` searches and marks instead of filtering, because code is read in order."""

    LONGEST = 4_000  # characters of one line that are shown; the rest is counted

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: list[str] = []
        self.language = "python"
        self.first_line = 1
        self.numbers: Sequence[int] | None = None
        self.marks: Mapping[int, Mark] = {}
        self._regions: Regions | None = None
        self._width = 0

    def show(
        self,
        text: str,
        language: str = "python",
        *,
        first_line: int = 1,
        marks: Mapping[int, Mark] | None = None,
        line: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """Show a text.

        Args:
            text: What to show.
            language: ``python``, ``cpp``, ``bytecode``, ``npu`` or ``text``.
            first_line: Number of the first line.
            marks: By line number.
            line: Number of the line to put the cursor on.
            numbers: Numbers of the lines, ascending, where lines are left out.
        """
        self.lines = text.split("\n")
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        self.language = language
        self.first_line = first_line
        self.numbers = numbers
        self.marks = marks or {}
        self._regions = Regions(text) if language == "python" else None
        longest = max(map(len, self.lines), default=0)
        self._width = min(longest, self.LONGEST) + self._gutter + 2
        self.cursor = 0
        self.changed()
        if line is not None:
            self.to_line(line)
        else:
            self.scroll_to(0, 0, animate=False, immediate=True)

    def mark(self, marks: Mapping[int, Mark]) -> None:
        """Mark other lines."""
        old, self.marks = self.marks, marks
        changed = {number for number in {*old, *marks} if old.get(number) != marks.get(number)}
        self.redraw_lines(map(self.index_of, changed))

    def variant(self, index: int) -> object:
        """The mark."""
        return self.marks.get(self.number_of(index))

    def index_of(self, number: int) -> int:
        """Where a line number is shown, or the nearest one before it."""
        return number - self.first_line if self.numbers is None else max(0, bisect_right(self.numbers, number) - 1)

    def to_line(self, number: int) -> None:
        """Put the cursor on a line number, or the nearest one before it."""
        self.move_to(self.index_of(number), centre=True, tell=False)

    def number_of(self, index: int) -> int:
        """Number of a shown line."""
        return (
            self.numbers[index] if self.numbers is not None and index < len(self.numbers) else index + self.first_line
        )

    @property
    def line_number(self) -> int:
        """Number of the line under the cursor."""
        return self.number_of(self.cursor)

    @property
    def _gutter(self) -> int:
        return len(str(self.number_of(max(len(self.lines) - 1, 0)))) + 3

    def count(self) -> int:
        """Number of lines."""
        return len(self.lines)

    def content_width(self) -> int:
        """Cells of the longest line."""
        return self._width

    def spans(self, index: int) -> Spans:
        """Number, mark, code and note of one line."""
        number = self.number_of(index)
        mark = self.marks.get(number)
        line: list[Span] = [(f"{number:>{self._gutter - 3}}", "dim")]
        line.append((f" {mark.glyph} ", mark.style) if mark else ("   ", ""))
        line += self.code_spans(index)
        if mark and mark.note:
            line.append((f"   \u25c2 {clean(mark.note)}", mark.style))
        return line

    def code_spans(self, index: int) -> list[Span]:
        """The coloured code of one line."""
        text = self.lines[index]
        extra = len(text) - self.LONGEST
        if extra > 0:
            text = text[: self.LONGEST]
        text = clean(text)
        language = self._regions.language(index) if self._regions else self.language
        spans = highlight(text, language)
        if extra > 0:
            spans.append((f" \u2026 {extra:,} more characters", "dim"))
        return spans

    def line_text(self, index: int) -> str:
        """The code of one line as it is, without number and mark."""
        return self.lines[index]
