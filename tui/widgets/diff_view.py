"""Two texts side by side, in step, with what differs marked by sign and colour; unified where it is narrow."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from textual import events

from ..highlight import highlight
from ..spans import Span, Spans, clean, fit
from .line_view import LineView

LONG = 10_000  # lines of both texts
SIDE_BY_SIDE = 90  # cells from which two columns are readable


class DiffRow(NamedTuple):
    """One aligned row. ``sign`` is `` ``, ``+``, ``-``, ``~`` (both sides, different) or ``…`` (left-out lines)."""

    left: str | None
    right: str | None
    sign: str = " "


def align(left: Sequence[str], right: Sequence[str], context: int | None = None) -> list[DiffRow]:
    """Rows of two texts; with ``context`` only that many equal lines around each change.

    Args:
        left: Lines before.
        right: Lines after.
        context: Equal lines to keep; None keeps all.
    """
    rows: list[DiffRow] = []
    # Lines that a long text has everywhere (empty ones) would cost a square of their number.
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > LONG)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            rows += [DiffRow(a, b) for a, b in zip(left[i1:i2], right[j1:j2], strict=True)]
            continue
        rows += _changed(left[i1:i2], right[j1:j2])
    return rows if context is None else fold(rows, context)


def _changed(left: Sequence[str], right: Sequence[str]) -> list[DiffRow]:
    """Rows of two differing stretches: lines that begin with the same word (a node's name) stand side by side."""
    place = {text.split(" ", 1)[0]: number for number, text in enumerate(left)}
    rows: list[DiffRow] = []
    at = 0
    for text in right:
        number = place.get(text.split(" ", 1)[0], -1)
        if number < at:
            rows.append(DiffRow(None, text, "+"))
            continue
        rows += [DiffRow(gone, None, "-") for gone in left[at:number]]
        rows.append(DiffRow(left[number], text, "~"))
        at = number + 1
    return rows + [DiffRow(gone, None, "-") for gone in left[at:]]


def fold(rows: Sequence[DiffRow], context: int) -> list[DiffRow]:
    """Leave out runs of equal rows farther than ``context`` from a change."""
    changed = [number for number, row in enumerate(rows) if row.sign != " "]
    keep = bytearray(len(rows))
    for number in changed:
        low, high = max(0, number - context), min(len(rows), number + context + 1)
        keep[low:high] = b"\1" * (high - low)
    done: list[DiffRow] = []
    hidden = 0
    for number, row in enumerate(rows):
        if keep[number]:
            if hidden:
                done.append(DiffRow(f"{hidden} equal", f"{hidden} equal", "\u2026"))
                hidden = 0
            done.append(row)
        else:
            hidden += 1
    if hidden:
        done.append(DiffRow(f"{hidden} equal", f"{hidden} equal", "\u2026"))
    return done


class DiffView(LineView):
    """Aligned rows under two headings. n and N go from change to change, h and l shift both sides."""

    header_rows = 1

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[DiffRow] = ()
        self.titles = ("before", "after")
        self.language = "python"
        self._shift = 0
        self._lines: list[DiffRow] = []
        self._wide = True

    def show(self, rows: Sequence[DiffRow], titles: tuple[str, str], language: str = "python") -> None:
        """Show aligned rows; the cursor goes to the first change."""
        self.rows = rows
        self.titles = titles
        self.language = language
        self._shift = 0
        self.cursor = 0
        self._lay_out()
        first = self.next_change(-1, 1)
        self.scroll_to(0, 0, animate=False, immediate=True)
        if first is not None:
            self.move_to(first, centre=True, tell=False)

    def _lay_out(self) -> None:
        """Two columns where there is room; else a changed row becomes a removed and an added line."""
        self._wide = self.size.width >= SIDE_BY_SIDE or not self.size.width
        if self._wide:
            self._lines = list(self.rows)
        else:
            self._lines = []
            for row in self.rows:
                if row.sign == "~":
                    self._lines += [DiffRow(row.left, None, "-"), DiffRow(None, row.right, "+")]
                else:
                    self._lines.append(row)
        self.changed()

    def on_resize(self, event: events.Resize) -> None:
        """One column or two."""
        if (self.size.width >= SIDE_BY_SIDE) != self._wide:
            self._lay_out()
        else:
            self.redraw()

    def count(self) -> int:
        """Number of lines."""
        return len(self._lines)

    def next_change(self, start: int, step: int) -> int | None:
        """The next line with a difference whose neighbour before it is equal (the head of a change)."""
        index = start + step
        while 0 <= index < len(self._lines):
            if self._lines[index].sign in "+-~" and (index == 0 or self._lines[index - 1].sign not in "+-~"):
                return index
            index += step
        return None

    def action_sideways(self, by: int) -> None:
        """Shift both sides."""
        self._shift = max(0, self._shift + by)
        self.redraw()

    def header(self) -> Spans:
        """The two titles."""
        width = self.room
        if not self._wide:
            return [(f"   {self.titles[0]} \u2192 {self.titles[1]}", "")]
        half = (width - 5) // 2
        return [*fit([(f"  {clean(self.titles[0])}", "")], half + 2), (" \u2502 ", ""), (clean(self.titles[1]), "")]

    def spans(self, index: int) -> Spans:
        """One line."""
        row = self._lines[index]
        cursor = "\u258c" if index == self.cursor else " "
        if row.sign == "\u2026":
            return [(cursor, "accent"), (f"  \u22ef {row.left}", "dim")]
        width = self.room
        if not self._wide:
            style = {"+": "added", "-": "removed"}.get(row.sign, "")
            text = row.left if row.right is None else row.right
            return [(cursor, "accent"), *fit([(f"{row.sign} ", style), *self._side(text, style)], width - 1)]
        half = (width - 5) // 2
        left = self._side(row.left, "removed" if row.sign in "-~" else "")
        right = self._side(row.right, "added" if row.sign in "+~" else "")
        sign = row.sign if row.sign != " " else "\u2502"
        style = {"+": "good", "-": "bad", "~": "warn"}.get(row.sign, "dim")
        return [(cursor, "accent"), (" ", ""), *fit(left, half), (f" {sign} ", style), *fit(right, width - half - 5)]

    def _side(self, text: str | None, style: str) -> list[Span]:
        if text is None:
            return [("", "")]
        safe = clean(text)[self._shift :]
        return [(safe, style)] if style else highlight(safe, self.language)

    def line_text(self, index: int) -> str:
        """One line as text, in the form of a unified diff."""
        row = self._lines[index]
        if row.sign == "~":
            return f"- {row.left}\n+ {row.right}"
        return f"{row.sign} {row.right if row.left is None else row.left}"
