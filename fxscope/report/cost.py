"""What each line of the user's program cost in compile time: by its breaks, its recompiles and its failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fxscope.diagnosis.story import resumed
from fxscope.recording.process import without_attempt
from fxscope.source import base_name

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile, GraphBreak, Recompile


class LineCost(msgspec.Struct, kw_only=True):
    """Compile time that one line caused.

    Attributes:
        site: ``basename:line``.
        seconds: Of attempts that a break at the line restarted, of the frames that resume behind it or were skipped for
            it, and of the recompiles that it asked for.
        why: ``break``, ``recompile`` or both, joined with " and ".
    """

    file: str
    line: int
    seconds: float = 0.0
    why: str = ""

    @property
    def site(self) -> str:
        """``basename:line``."""
        return f"{base_name(self.file)}:{self.line}"


def line_costs(recording: Recording) -> list[LineCost]:
    """Cost of every line that broke a graph or asked for a guard that failed, dearest first. No attempt counts twice."""
    costs: dict[tuple[str, int], LineCost] = {}
    breaks = {(row.file, row.line): row for row in recording.graph_breaks}
    by_compile = {key: row for row in reversed(recording.graph_breaks) for key in row.compile_keys}
    recompiles = {row.key: row for row in recording.recompiles}
    for row in recording.compiles:
        if not row.seconds:
            continue
        place = _line_of(row, breaks, by_compile, recompiles)
        if place is not None:
            file, line, why = place
            cost = costs.setdefault((file, line), LineCost(file=file, line=line))
            cost.seconds += row.seconds
            if why not in cost.why:
                cost.why = f"{cost.why} and {why}" if cost.why else why
    return sorted(costs.values(), key=lambda cost: -cost.seconds)


def _line_of(
    row: Compile,
    breaks: dict[tuple[str, int], GraphBreak],
    by_compile: dict[str, GraphBreak],
    recompiles: dict[str, Recompile],
) -> tuple[str, int, str] | None:
    """The line to which one attempt is charged: its own break first, then its recompile, then the break it resumes behind."""
    broke = by_compile.get(row.key)
    if broke is not None and row.status in ("restarted", "skipped", "failed"):
        return broke.user_file, broke.user_line, "break"
    recompile = recompiles.get(row.key) or recompiles.get(without_attempt(row.key))
    if recompile is not None:
        for failed in recompile.failed[:1]:
            if failed.asked_file and failed.asked_line and failed.asked_file == row.file:
                return failed.asked_file, failed.asked_line, "recompile"
        return recompile.user_file or recompile.file, recompile.user_line or recompile.line, "recompile"
    resumes = resumed(row.function)
    if resumes:
        behind = breaks.get((row.file, resumes[1]))
        if behind is not None:
            return behind.user_file, behind.user_line, "break"
        return row.user_file or row.file, row.user_line or row.line, "break"
    return None
