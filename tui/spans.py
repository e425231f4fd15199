"""Styled text as plain data: a span is a text and the name of a style, so that rows can be tested, copied and exported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import cast

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
Spans = Sequence[Span]
Cell = str | Span | Sequence[Span]

# What a style means; colours are the theme's. Nothing is said by style alone: a glyph or a word goes with it.
STYLES = (
    "dim",
    "strong",
    "good",
    "warn",
    "bad",
    "info",
    "accent",
    "keyword",
    "string",
    "number",
    "comment",
    "name",
    "type",
    "match",
    "added",
    "removed",
)


def _control_table() -> dict[int, str]:
    """Visible stand-ins for characters that would act on a terminal: C0, C1, DEL, and bidirectional or invisible controls."""
    table = {code: chr(0x2400 + code) for code in range(0x20)}
    table[0x7F] = "\u2421"
    table.update(dict.fromkeys(range(0x80, 0xA0), "\u00b7"))
    invisible = [0x200E, 0x200F, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029]
    table.update(dict.fromkeys(invisible, "\u00b7"))
    table.update(dict.fromkeys(range(0xD800, 0xE000), "\ufffd"))
    return table


_PIECES = re.compile(r" *[^ ]+| +")
_CONTROLS = _control_table()


def clean(text: str) -> str:
    r"""The text on one line with tabs expanded and every control character made visible.

    Example:
        >>> clean("a\x1b[31mb")
        'a␛[31mb'
    """
    if text.isprintable():
        return text
    return text.expandtabs(4).translate(_CONTROLS)


def spans_of(cell: Cell) -> list[Span]:
    """A cell as a list of spans, made safe to print."""
    if isinstance(cell, str):
        return [(clean(cell), "")]
    if len(cell) == 2 and isinstance(cell[0], str):
        return [(clean(cell[0]), str(cell[1]))]
    spans = cast("Sequence[Span]", cell)
    return [(clean(text), style) for text, style in spans]


def plain(cell: Cell) -> str:
    """The text of a cell without styles."""
    if isinstance(cell, str):
        return clean(cell)
    return "".join(text for text, _ in spans_of(cell))


def fit(spans: Iterable[Span], width: int, *, middle: bool = False) -> list[Span]:
    """Spans cut or padded to exactly ``width`` cells; a cut, at the end or in the ``middle``, shows an ellipsis."""
    fitted = list(spans)
    total = sum(cell_len(text) for text, _ in fitted)
    if middle and total > width > 8:
        head = _beginning(fitted, width // 2 - 1)
        rest = width - 1 - sum(cell_len(text) for text, _ in head)
        tail = _beginning([(text[::-1], style) for text, style in reversed(fitted)], rest)
        fitted = [*head, ("\u2026", head[-1][1]), *((text[::-1], style) for text, style in reversed(tail))]
        total = sum(cell_len(text) for text, _ in fitted)
    if total <= width:
        if total < width:
            fitted.append((" " * (width - total), ""))
        return fitted
    cut: list[Span] = []
    left = width - 1
    for text, style in fitted:
        size = cell_len(text)
        if size > left:
            cut.append((set_cell_size(text, max(left, 0)) + "\u2026" * (width > 0), style))
            break
        cut.append((text, style))
        left -= size
    return cut


def head_of(text: str, width: int) -> str:
    """The longest beginning of a text that fits into ``width`` cells."""
    used = 0
    for number, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:number]
    return text


def _beginning(spans: Iterable[Span], width: int) -> list[Span]:
    """Spans as far as they fit into ``width`` cells."""
    done: list[Span] = []
    for text, style in spans:
        piece = head_of(text, width)
        done.append((piece, style))
        width -= cell_len(piece)
        if piece != text:
            break
    return done


def wrap(spans: Iterable[Span], width: int, indent: int = 0) -> list[list[Span]]:
    """Spans broken at spaces into lines of at most ``width`` cells.

    Args:
        spans: One paragraph.
        width: Cells of a line.
        indent: Cells in front of the second line and those after it.
    """
    width = max(width, indent + 8)
    margin: list[Span] = [(" " * indent, "")] if indent else []
    lines: list[list[Span]] = []
    line: list[Span] = []
    used = 0
    for word in _words(spans):
        size = sum(cell_len(text) for text, _ in word)
        if used + size > width and used > (indent if lines else 0):
            lines.append(line)
            line, used = list(margin), indent
            word = [(word[0][0].lstrip(" "), word[0][1]), *word[1:]]
        for text, style in word:
            while used + cell_len(text) > width:  # a word longer than a line
                head = head_of(text, width - used)
                line.append((head, style))
                lines.append(line)
                line, used = list(margin), indent
                text = text[len(head) :]
            if text:
                line.append((text, style))
                used += cell_len(text)
    lines.append(line)
    return lines


def _words(spans: Iterable[Span]) -> list[list[Span]]:
    """Spans as words, each with the spaces before it; a word may have several styles."""
    words: list[list[Span]] = []
    for text, style in spans:
        for piece in _PIECES.findall(text):
            if words and not piece.startswith(" ") and words[-1][-1][0].strip():
                words[-1].append((piece, style))
            else:
                words.append([(piece, style)])
    return words


def mark_matches(spans: list[Span], needle: str) -> list[Span]:
    """The spans with every occurrence of ``needle`` in the style ``match``."""
    whole = "".join(text for text, _ in spans)
    if needle == needle.lower():
        lowered = whole.lower()
        whole = lowered if len(lowered) == len(whole) else whole
    start = whole.find(needle)
    while start >= 0:
        spans = restyle(spans, start, start + len(needle), "match")
        start = whole.find(needle, start + len(needle))
    return spans


def joined(spans: Spans) -> list[Span]:
    """The spans with neighbours of one style as one: every segment costs when it is drawn."""
    done: list[Span] = []
    for text, style in spans:
        if done and done[-1][1] == style:
            done[-1] = (done[-1][0] + text, style)
        else:
            done.append((text, style))
    return done


def restyle(spans: list[Span], start: int, end: int, style: str) -> list[Span]:
    """The spans with characters ``start`` to ``end`` (-1: to the end) in another style."""
    done: list[Span] = []
    at = 0
    for text, old in spans:
        stop = at + len(text)
        low = min(max(start, at), stop) - at
        high = len(text) if end < 0 else min(max(end, at), stop) - at
        pieces = ((text[:low], old), (text[low:high], style), (text[max(low, high) :], old))
        done.extend(piece for piece in pieces if piece[0])
        at = stop
    return done
