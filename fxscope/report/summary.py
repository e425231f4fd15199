"""One line that says what a run's compiles cost most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.report.cost import line_costs
from fxscope.report.safe import plain_line
from fxscope.source import base_name
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


def summary_line(recording: Recording) -> str:
    """What ``fxscope run`` prints at the end: failures first, then the lines that cost most, else that all is well."""
    totals = recording.totals
    if not recording.compiles:
        return "nothing was compiled"
    graphs = count(totals.graphs, "graph")
    spent = f"{graphs} in {seconds(totals.compile_seconds)} of compile time"
    if recording.failures:
        worst = recording.failures[0]
        where = f"{base_name(worst.file)}:{worst.line}"
        failed = count(totals.failures, "compile")
        return plain_line(f"{failed} failed, first at {where} ({worst.type}); {spent}")
    costs = line_costs(recording)
    if not costs:
        return f"{spent}; no graph breaks, no recompiles"
    total = sum(cost.seconds for cost in costs)
    text = (
        f"{count(len(costs), 'line')} cost {seconds(total)} of compile time; largest {costs[0].site} ({costs[0].why})"
    )
    if recording.limit_hits:
        text += f"; recompile limit hit by {recording.limit_hits[0].function}"
    return plain_line(text)


def seconds(value: float) -> str:
    """A duration for people: ``820 us``, ``38 ms``, ``4.1 s``, ``41 s``, ``3 min 12 s``."""
    if value >= 119.5:
        return f"{round(value) // 60} min {round(value) % 60} s"
    if value >= 9.95:
        return f"{value:.0f} s"
    if value >= 0.9995:
        return f"{value:.1f} s"
    if value >= 0.0009995:
        return f"{value * 1e3:.0f} ms"
    return f"{value * 1e6:.0f} us" if value > 0 else "0 s"
