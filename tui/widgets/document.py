"""Prose and small facts in blocks, wrapped to the width, with a cursor that knows which block it is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events

from ..spans import Cell, Span, Spans, spans_of, wrap
from .line_view import LineView

LABEL = 16  # cells up to which a first span that ends in a space is a label


class Block(NamedTuple):
    """Some lines that belong together.

    Attributes:
        lines: Paragraphs; each is wrapped on its own.
        key: What the block is about; None for headings and filling.
        indent: Cells in front of continued lines.
    """

    lines: Sequence[Cell]
    key: object = None
    indent: int = 4


def heading(text: str, note: str = "") -> Block:
    """A heading with what it means."""
    return Block(["", [(text, "accent"), (f"   {note}", "dim")]])


def hanging(spans: Sequence[Span], default: int) -> int:
    """Indent of continued lines: they hang under the text behind a label or sign, where the first span is one."""
    if len(spans) > 1 and spans[0][0].endswith(" "):
        width = cell_len(spans[0][0])
        if width <= LABEL:
            return width
    return default


class Document(LineView):
    """Wrapped blocks. Enter chooses the block under the cursor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.blocks: Sequence[Block] = ()
        self._wrapped: list[tuple[list[Span], int]] = []
        self._wrapped_width = -1

    def show(self, blocks: Sequence[Block], *, keep: bool = True) -> None:
        """Show blocks; with ``keep`` the cursor stays on the block with the same key."""
        key = self.key if keep else None
        inside = self.cursor
        self.blocks = blocks
        self._wrapped_width = -1
        self._wrap()
        if not keep:
            self.cursor = 0
            self.scroll_to(0, 0, animate=False, immediate=True)
        elif key is not None and self.key != key:
            for line, (_, block) in enumerate(self._wrapped):
                if blocks[block].key == key:
                    inside = line
                    break
            self.cursor = inside
        self.changed()

    def _wrap(self) -> None:
        width = self.size.width - 1
        if width == self._wrapped_width or width <= 0:
            return
        self._wrapped_width = width
        self._wrapped = []
        for number, block in enumerate(self.blocks):
            for paragraph in block.lines:
                spans = spans_of(paragraph)
                lines = wrap(spans, width - 1, hanging(spans, block.indent))
                self._wrapped.extend((line, number) for line in lines)

    def on_resize(self, event: events.Resize) -> None:
        """Wrap anew."""
        key = self.key
        self._wrap()
        if key is not None and self.key != key:
            self.to_key(key)
        self.changed()

    def count(self) -> int:
        """Number of wrapped lines."""
        return len(self._wrapped)

    def spans(self, index: int) -> Spans:
        """One wrapped line; the block under the cursor has a bar in front."""
        line, block = self._wrapped[index]
        here = self._wrapped[self.cursor][1] if self.cursor < len(self._wrapped) else -1
        marker = "\u258c" if block == here and self.blocks[block].key is not None else " "
        return [(marker, "accent"), *line]

    def variant(self, index: int) -> object:
        """Whether it is in the block under the cursor."""
        return self.cursor < len(self._wrapped) and self._wrapped[index][1] == self._wrapped[self.cursor][1]

    @property
    def key(self) -> object:
        """What the block under the cursor is about."""
        if self.cursor >= len(self._wrapped):
            return None
        number = self._wrapped[self.cursor][1]
        return self.blocks[number].key if number < len(self.blocks) else None

    def to_key(self, key: object) -> None:
        """Put the cursor on a block."""
        for line, (_, block) in enumerate(self._wrapped):
            if self.blocks[block].key == key:
                self.move_to(line, centre=True, tell=False)
                return

    def next_key(self, step: int) -> None:
        """Go to the next block that is about something."""
        here = self._wrapped[self.cursor][1] if self._wrapped else -1
        order = range(self.cursor + 1, len(self._wrapped)) if step > 0 else range(self.cursor - 1, -1, -1)
        for line in order:
            block = self._wrapped[line][1]
            if block != here and self.blocks[block].key is not None:
                first = line
                while first and self._wrapped[first - 1][1] == block:
                    first -= 1
                self.move_to(first)
                return

    def move_to(self, index: int, *, centre: bool = False, tell: bool = True) -> None:
        """Move, and redraw the bars of both blocks."""
        before = self.cursor
        super().move_to(index, centre=centre, tell=tell)
        if before < len(self._wrapped) and self.cursor < len(self._wrapped):
            blocks = {self._wrapped[before][1], self._wrapped[self.cursor][1]}
            if len(blocks) == 2:
                top = self.scroll_offset.y
                seen = range(top, min(top + self.page, len(self._wrapped)))
                self.redraw_lines(line for line in seen if self._wrapped[line][1] in blocks)

    def page_text(self) -> str:
        """Everything, as exported."""
        return "\n".join("".join(text for text, _ in spans_of(line)) for block in self.blocks for line in block.lines)
