"""Compiles in columns, for a terminal of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from fxscope import source
from fxscope.report.safe import plain_line
from fxscope.report.summary import seconds

if TYPE_CHECKING:
    from rich.console import Console

    from fxscope.recording.records import Compile

FEW_RANKS = 8  # of more, what they have alike is shown once
_STATUS_STYLE = {"ok": "green", "failed": "bold red", "skipped": "yellow", "limit": "bold red", "unfinished": "yellow"}


def print_compiles(rows: list[Compile], console: Console) -> None:
    """A line per compile: numbers in columns, the function in what room they leave (rich's Table costs more than the rest)."""
    numbers = {
        "nodes": [_number(row.nodes) for row in rows],
        "guards": [_number(row.guards) for row in rows],
        "time": ["-" if row.seconds is None else seconds(row.seconds) for row in rows],
    }
    if any(row.calls is not None for row in rows):
        numbers["calls"] = [_number(row.calls) for row in rows]
    keys = max([2, *(len(row.key) for row in rows)]) + 2
    states = max([6, *(len(row.status) for row in rows)]) + 2
    widths = [max([len(name), *map(len, cells)]) for name, cells in numbers.items()]
    room = console.width - 2 - keys - states - sum(width + 2 for width in widths)
    narrow = room < 16
    if not narrow:
        head = "".join(f"  {name:>{width}}" for name, width in zip(numbers, widths, strict=True))
        console.print(
            Text(f"  {'id':<{keys}}{'status':<{states}}{'function':<{room}}{head}", style="dim"), soft_wrap=True
        )
    for place, row in enumerate(rows):
        what = Text(plain_line(row.function or "?")).append(f" {short_path(row.file)}:{row.line}", style="dim")
        cells = [column[place] for column in numbers.values()]
        tail = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        body = Text(f"  {plain_line(row.key):<{keys}}").append(
            f"{row.status:<{states}}", style=_STATUS_STYLE.get(row.status, "")
        )
        if narrow:
            facts = [cell if name == "time" else f"{cell} {name}" for name, cell in zip(numbers, cells, strict=True)]
            body.append_text(what).append("  " + ", ".join(facts))
            for part in body.wrap(console, max(20, console.width)):
                part.rstrip()
                console.print(part, soft_wrap=True)
            continue
        for number, part in enumerate(what.wrap(console, room)):
            part.rstrip()
            part.pad_right(room - part.cell_len if number == 0 else 0)
            line = body if number == 0 else Text(" " * (2 + keys + states))
            console.print(line.append_text(part).append(tail if number == 0 else ""), soft_wrap=True)


def same_on_ranks(rows: list[Compile]) -> list[tuple[str, Compile]]:
    """Compiles of which several ranks have the same, told once: ``0/0 ×8``, and the slowest of them."""
    groups: dict[tuple[object, ...], list[Compile]] = {}
    for row in rows:
        key = (row.id, row.rank is None, row.function, row.file, row.line, row.status, row.nodes, row.guards)
        groups.setdefault(key, []).append(row)
    told = []
    for group in groups.values():
        slowest = max(group, key=lambda row: row.seconds or 0.0)
        told.append((f"{slowest.id} ×{len(group)}" if len(group) > 1 else slowest.key, slowest))
    return told


def once_for_all_ranks(rows: list[Compile]) -> list[Compile]:
    """The same as rows that can be printed: their key says how many they stand for."""
    return [msgspec.structs.replace(row, key=key) for key, row in same_on_ranks(rows)]


def short_path(path: str) -> str:
    """:func:`fxscope.source.short_path`, fit for a terminal."""
    return plain_line(source.short_path(path))


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
