"""The tree on the left: user functions, their compiles, the graphs of each, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fxscope.diagnosis.story import resumed
from fxscope.recording.lookup import stage_name
from fxscope.recording.records import Compile, LimitHit
from fxscope.source import base_name
from fxscope.words import count

from .spans import Cell, Span
from .store import Snapshot
from .widgets.virtual_table import Column

GLYPHS: dict[str, tuple[str, str]] = {
    "ok": ("\u2714", "good"),
    "empty": ("\u25cb", "dim"),
    "restarted": ("\u21ba", "dim"),
    "failed": ("\u2716", "bad"),
    "skipped": ("\u21b7", "warn"),
    "limit": ("\u2298", "bad"),
    "unfinished": ("\u2026", "info"),
}
RECOMPILED = ("\u21bb", "warn")


class FrameRow(NamedTuple):
    """One row of the tree.

    Attributes:
        key: ``frame:...``, a compile's key, or ``key@stage#index``.
        depth: 0 frame, 1 compile, 2 graph.
        folded: None where nothing is below.
        text: What a filter looks at: the row's words and its parents'.
    """

    key: str
    depth: int
    cell: Cell
    folded: bool | None
    text: str
    compile_key: str | None = None
    stage: str | None = None
    number: int = 0


def seconds_text(seconds: float | None) -> str:
    """Seconds in at most five characters."""
    if seconds is None:
        return ""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 100:
        return f"{seconds:.1f}s"
    return f"{seconds / 60:.0f}m"


def glyph(compile_: Compile, recompiled: bool) -> tuple[str, str]:
    """Sign and style of a compile's state."""
    if recompiled and compile_.status in ("ok", "empty"):
        return RECOMPILED
    return GLYPHS.get(compile_.status, ("?", "warn"))


def site(path: str, line: int) -> str:
    """``basename:line``."""
    name = base_name(path)
    return f"{name}:{line}" if line else name


class FrameTree:
    """Row provider of the tree; built anew from each snapshot, folding kept outside."""

    columns = (Column("frames", flex=True, keep=9),)

    def __init__(self, snapshot: Snapshot, unfolded: set[str], folded: set[str]) -> None:
        self._rows: list[FrameRow] = []
        recompiled = {record.key for record in snapshot.recompiles}
        frames: dict[str, list[Compile]] = {}
        for compile_ in snapshot.compiles:
            frames.setdefault(frame_key(compile_), []).append(compile_)
        limits: dict[str, list[LimitHit]] = {}
        for hit in snapshot.limit_hits:
            limits.setdefault(f"frame:{hit.rank}:{hit.file}:{hit.line}:{hit.function}", []).append(hit)
        many_ranks = len({compile_.rank for compile_ in snapshot.compiles}) > 1
        for key, compiles in frames.items():
            first = compiles[0]
            is_folded = key in folded
            title = function_title(first.function)
            where = site(first.file, first.line)
            rank = f"r{first.rank} " if many_ranks and first.rank is not None else ""
            cell: list[Span] = [("\u25b8 " if is_folded else "\u25be ", "dim"), (f"{rank}{title}", "strong")]
            cell.append((f"  {where}", "dim"))
            if is_folded:
                cell.append((f"  \u00d7{len(compiles)}", "dim"))
            words = f"{rank}{first.function} {where}"
            self._rows.append(FrameRow(key, 0, cell, is_folded, words, first.key))
            if is_folded:
                continue
            for compile_ in compiles:
                self._compile(compile_, words, unfolded, compile_.key in recompiled)
            for hit in limits.get(key, ()):
                value = f" ({hit.value})" if hit.value is not None else ""
                cell = [("   ", ""), ("\u2298 ", "bad"), (f"{hit.limit.replace('_', ' ')}{value} reached", "bad")]
                self._rows.append(FrameRow(f"limit:{key}", 1, cell, None, words + " limit", first.key))

    def _compile(self, compile_: Compile, words: str, unfolded: set[str], recompiled: bool) -> None:
        sign, style = glyph(compile_, recompiled)
        stages = compile_.graphs
        is_open = compile_.key in unfolded
        mark = ("\u25be" if is_open else "\u25b8") if stages else " "
        cell: list[Span] = [(f" {mark} ", "dim"), (f"{sign} ", style), (compile_.id, "")]
        facts = []
        if compile_.nodes is not None:
            facts.append(count(compile_.nodes, "op"))
        if compile_.seconds is not None:
            facts.append(seconds_text(compile_.seconds))
        if compile_.calls is not None:
            facts.append(f"{compile_.calls}\u00d7")
        if compile_.status in ("failed", "skipped", "restarted"):
            facts.append(compile_.status)
        cell.append((f"  {'  '.join(facts)}", "dim"))
        text = f"{words} {compile_.id} {compile_.status} {'recompiled' if recompiled else ''}"
        self._rows.append(FrameRow(compile_.key, 1, cell, not is_open if stages else None, text, compile_.key))
        if not is_open:
            return
        for graph in stages:
            cell = [
                ("     \u2022 ", "dim"),
                (stage_name(graph.stage, graph.index), "name"),
                (f"  {size_text(graph.size)}", "dim"),
            ]
            key = f"{compile_.key}@{graph.stage}#{graph.index}"
            row = FrameRow(key, 2, cell, None, f"{text} {graph.stage}", compile_.key, graph.stage, graph.index)
            self._rows.append(row)

    def at(self, index: int) -> FrameRow:
        """The row itself."""
        return self._rows[index]

    def find(self, key: object) -> int | None:
        """Number of the row with a key."""
        return next((number for number, row in enumerate(self._rows) if row.key == key), None)

    def count(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def row(self, index: int) -> Sequence[Cell]:
        """The one cell of a row."""
        return (self._rows[index].cell,)

    def text(self, index: int) -> str:
        """The row's words and its parents'."""
        return self._rows[index].text

    def key(self, index: int) -> object:
        """The row's key."""
        return self._rows[index].key


def function_title(name: str) -> str:
    """A function's name; of what Dynamo makes to go on after a break, where it goes on: ``\u21aa forward:31``."""
    behind = resumed(name)
    return f"\u21aa {behind[0]}:{behind[1]}" if behind else name or "(no function)"


def frame_key(compile_: Compile) -> str:
    """What a frame is: its rank and its function's place."""
    return f"frame:{compile_.rank}:{compile_.file}:{compile_.line}:{compile_.function}"


def size_text(size: int) -> str:
    """Bytes in a few characters."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000  # type: ignore[assignment]
    raise AssertionError(size)
