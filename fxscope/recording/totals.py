"""The counts that every front door shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.recording.metrics import union_seconds
from fxscope.recording.process import OUTSIDE
from fxscope.recording.records import Totals

if TYPE_CHECKING:
    from fxscope.recording.state import State


def count_totals(state: State, unknown_events: int) -> Totals:
    """Count what is known so far.

    Compile time is wall-clock: what ranks and threads compile at once counts once, as far as the log has start times.
    """
    compiles = state.compiles
    attempts = list(state.by_key.values())
    timed = union_seconds([span for attempt in attempts for span in attempt.intervals])
    untimed = sum(
        attempt.record.seconds or 0.0
        for attempt in attempts
        if not attempt.intervals and attempt.record.status != "restarted"
    )
    return Totals(
        frames=len(
            {
                (_process_of(c.key, c.id), _frame_of(c.id), c.function, c.file, c.line)
                for c in compiles
                if not c.id.startswith(OUTSIDE)
            }
        ),
        compiles=sum(c.status in ("ok", "empty") for c in compiles),
        graphs=sum(graph.stage == "dynamo" for c in compiles for graph in c.graphs),
        graph_breaks=state.break_events,
        break_sites=len({(row.file, row.line) for row in state.breaks.values()}),
        recompiles=sum(r.outcome == "compiled" for r in state.recompiles),
        limit_hits=len(state.limit_hits),
        failures=len(state.failures),
        compile_seconds=timed + untimed,
        events=sum(len(index) for index in state.logs),
        unknown_events=unknown_events,
    )


def count_unknown(state: State, known: frozenset[str]) -> dict[str, int]:
    """Events whose name is not among ``known``, with their counts."""
    counts: dict[str, int] = {}
    for index in state.logs:
        for name in index.names:
            if name not in known:
                counts[name] = counts.get(name, 0) + index.count(name)
    return counts


def _process_of(key: str, name: str) -> str:
    return key[: len(key) - len(name)]


def _frame_of(name: str) -> str:
    return name.partition("#")[0].rpartition("/")[0]
