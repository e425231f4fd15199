"""Two texts side by side, in step, with what differs marked by sign and colour; unified where it is narrow."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from ..highlight import highlight
from ..spans import Span, Spans, clean, fit
from .line_view import LineView

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
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            rows += [DiffRow(a, b) for a, b in zip(left[i1:i2], right[j1:j2], strict=True)]
            continue
        both = min(i2 - i1, j2 - j1)
        rows += [DiffRow(left[i1 + k], right[j1 + k], "~") for k in range(both)]
        rows += [DiffRow(text, None, "-") for text in left[i1 + both : i2]]
        rows += [DiffRow(None, text, "+") for text in right[j1 + both : j2]]
    return rows if context is None else fold(rows, context)


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
    """Aligned rows under two headings. n and N go from change to change."""

    header_rows = 1

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[DiffRow] = ()
        self.titles = ("before", "after")
        self.language = "python"

    def show(self, rows: Sequence[DiffRow], titles: tuple[str, str], language: str = "python") -> None:
        """Show aligned rows; the cursor goes to the first change."""
        self.rows = rows
        self.titles = titles
        self.language = language
        self.cursor = 0
        self.changed()
        first = self.next_change(-1, 1)
        self.scroll_to(0, 0, animate=False, immediate=True)
        if first is not None:
            self.move_to(first, centre=True, tell=False)

    def count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def next_change(self, start: int, step: int) -> int | None:
        """The next row with a difference whose neighbour before it is equal (the head of a change)."""
        index = start + step
        while 0 <= index < len(self.rows):
            if self.rows[index].sign in "+-~" and (index == 0 or self.rows[index - 1].sign not in "+-~"):
                return index
            index += step
        return None

    @property
    def changes(self) -> int:
        """Rows that differ."""
        return sum(row.sign in "+-~" for row in self.rows)

    def header(self) -> Spans:
        """The two titles."""
        width = self.size.width
        if width < SIDE_BY_SIDE:
            return [(f"   {self.titles[0]} \u2192 {self.titles[1]}", "")]
        half = (width - 5) // 2
        return [*fit([(f"  {clean(self.titles[0])}", "")], half + 2), (" \u2502 ", ""), (clean(self.titles[1]), "")]

    def spans(self, index: int) -> Spans:
        """One row in one or two columns."""
        row = self.rows[index]
        cursor = "\u258c" if index == self.cursor else " "
        if row.sign == "\u2026":
            return [(cursor, "accent"), (f"  \u22ef {row.left}", "dim")]
        width = self.size.width
        if width < SIDE_BY_SIDE:
            return [(cursor, "accent"), *self._unified(row)]
        half = (width - 5) // 2
        left = self._side(row.left, "removed" if row.sign in "-~" else "")
        right = self._side(row.right, "added" if row.sign in "+~" else "")
        sign = row.sign if row.sign != " " else "\u2502"
        style = {"+": "good", "-": "bad", "~": "warn"}.get(row.sign, "dim")
        return [(cursor, "accent"), (" ", ""), *fit(left, half), (f" {sign} ", style), *fit(right, width - half - 5)]

    def _side(self, text: str | None, style: str) -> list[Span]:
        if text is None:
            return [("", "")]
        safe = clean(text)
        return [(safe, style)] if style else highlight(safe, self.language)

    def _unified(self, row: DiffRow) -> list[Span]:
        """Both sides in one column; a changed row shows old and new one after the other."""
        if row.sign == "~":
            return [
                ("~ ", "warn"),
                (clean(row.left or ""), "removed"),
                (" \u2192 ", "warn"),
                (clean(row.right or ""), "added"),
            ]
        style = {"+": "added", "-": "removed"}.get(row.sign, "")
        text = (
            clean(row.right if row.left is None else row.left or "") if row.right is not None else clean(row.left or "")
        )
        return [(f"{row.sign} ", style), *(highlight(text, self.language) if not style else [(text, style)])]

    def line_text(self, index: int) -> str:
        """One row as text, in the form of a unified diff."""
        row = self.rows[index]
        if row.sign == "~":
            return f"- {row.left}\n+ {row.right}"
        return f"{row.sign} {row.right if row.left is None else row.left}"
