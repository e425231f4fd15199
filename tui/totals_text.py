"""The totals of a run in lines: counts, where compile time went, ranks, and which program it was."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .frames import seconds_text
from .spans import Cell
from .store import Snapshot
from .widgets.document import Block, heading

if TYPE_CHECKING:
    from fxscope.report.blocks import Block as ReportBlock

BAR = 24  # cells of a full bar
PART = 12  # lines of a part that only some recordings have


def ending(code: int | None) -> str:
    """How a program ended, in words."""
    if code is None:
        return "ended; its exit code is unknown"
    if code == 0:
        return "ended normally (exit code 0)"
    if code > 128:
        try:
            return f"ended by signal {signal.Signals(code - 128).name} (exit code {code})"
        except ValueError:
            return f"ended with exit code {code}"
    return f"ended with exit code {code}"


def bar(part: float, whole: float, cells: int = BAR) -> str:
    """A horizontal bar in eighths of a cell."""
    eighths = round(8 * cells * part / whole) if whole > 0 else 0
    full, rest = divmod(min(eighths, 8 * cells), 8)
    return "\u2588" * full + ("" if not rest else chr(0x2590 - rest)) or ("\u258f" if part > 0 else "")


def totals(snapshot: Snapshot) -> list[Block]:
    """Counts, where compile time went, caches."""
    counts = snapshot.totals
    lines: list[Cell] = [
        [
            ("  frames ", "dim"),
            (f"{counts.frames}", ""),
            ("   compiles ", "dim"),
            (f"{counts.compiles}", ""),
            ("   graphs ", "dim"),
            (f"{counts.graphs}", ""),
            ("   breaks ", "dim"),
            (f"{counts.graph_breaks} at {counts.break_sites} sites", "warn" if counts.graph_breaks else ""),
            ("   recompiles ", "dim"),
            (f"{counts.recompiles}", "warn" if counts.recompiles else ""),
            ("   limit hits ", "dim"),
            (f"{counts.limit_hits}", "bad" if counts.limit_hits else ""),
            ("   failures ", "dim"),
            (f"{counts.failures}", "bad" if counts.failures else ""),
        ]
    ]
    blocks = [heading("TOTALS"), Block(lines)]
    phases: dict[str, float] = {}
    caches: dict[tuple[str, str], int] = {}
    for compile_ in snapshot.compiles:
        for name, seconds in compile_.phases.items():
            phases[name] = phases.get(name, 0.0) + seconds
        for name, result in compile_.caches.items():
            caches[name, result] = caches.get((name, result), 0) + 1
    time: list[Cell] = [[("  compile time ", "dim"), (f"{counts.compile_seconds:.1f} s", "strong")]]
    whole = max(sum(phases.values()), 1e-9)
    width = max((len(name) for name in phases), default=0)
    for name, seconds in sorted(phases.items(), key=lambda item: -item[1]):
        share = f"{seconds / whole:>4.0%}"
        time.append(
            [
                (f"    {name:<{width}} ", ""),
                (f"{seconds_text(seconds):>6} {share} ", "dim"),
                (bar(seconds, whole), "info"),
            ]
        )
    blocks.append(Block(time, ("time", 0)))
    if caches:
        parts = [f"{name} {result} {number}" for (name, result), number in sorted(caches.items())]
        blocks.append(Block([[("  caches ", "dim"), (", ".join(parts), "")]]))
    return blocks


def ranks(snapshot: Snapshot) -> list[Block]:
    """The all-ranks table, where there are several."""
    found = sorted({compile_.rank for compile_ in snapshot.compiles if compile_.rank is not None})
    if len(found) < 2:
        return []
    lines: list[Cell] = [[("  rank  compiles  recompiles   breaks  failures   compile time", "dim")]]
    seconds = {rank: sum(c.seconds or 0 for c in snapshot.compiles if c.rank == rank) for rank in found}
    slowest = max(seconds.values())
    for rank in found:
        part = snapshot.of_rank(rank)
        lines.append(
            [
                (f"  {rank:>4}  ", "strong"),
                (
                    f"{len(part.compiles):>8}  {len(part.recompiles):>10}  {sum(b.count for b in part.graph_breaks):>7}  ",
                    "",
                ),
                (f"{len(part.failures):>8}   ", "bad" if part.failures else ""),
                (f"{seconds_text(seconds[rank]):>6} ", ""),
                (bar(seconds[rank], slowest, 16), "info"),
            ]
        )
    return [heading("RANKS", "R shows one rank at a time"), Block(lines)]


def run(snapshot: Snapshot) -> list[Block]:
    """Which program, and how it ended."""
    session = snapshot.session
    rows: list[tuple[str, str]] = [("recording", session.path)]
    if session.argv:
        rows.append(("program", " ".join(session.argv)))
    if session.cwd:
        rows.append(("in", session.cwd))
    rows.append(("state", "runs" if session.state == "live" else ending(session.exit_code)))
    versions = [
        f"torch {session.torch}" if session.torch else "",
        f"Python {session.python}" if session.python else "",
    ]
    rows.append(("with", ", ".join([part for part in versions if part] + session.devices) or "unknown versions"))
    rows.append(("processes", f"{session.processes}" + (f", ranks {len(session.ranks)}" if session.ranks else "")))
    for name, value in session.config.items():
        rows.append(("setting", f"{name} = {value}"))
    rows += [("note", note) for note in session.notes]
    if snapshot.error:
        rows.append(("note", snapshot.error))
    lines: list[Cell] = [[(f"  {label:<10} ", "dim"), (value, "")] for label, value in rows]
    return [heading("RUN"), Block(lines, None, 13)]


def more(parts: Sequence[ReportBlock]) -> list[Block]:
    """Kernels and their nodes, vLLM, links, where a recording has them: the first lines of each, as the report has them."""
    blocks: list[Block] = []
    for part in parts:
        if part.anchor == "ranks":  # have a table and findings of their own
            continue
        lines: list[Cell] = [[("  ", ""), (line, "")] for line in part.lines[:PART]]
        if len(part.lines) > PART:
            lines.append([(f"  \u2026 {len(part.lines) - PART:,} more {part.what}", "dim")])
        blocks += [heading(part.title.upper()), Block(lines)]
    return blocks
