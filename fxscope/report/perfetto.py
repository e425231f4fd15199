"""The compile timeline of all ranks in Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


def perfetto(recording: Recording) -> Iterator[str]:
    """The document in pieces, one event a line; the compile phases, recompiles and limit hits as instants, ranks as processes."""
    yield '{"displayTimeUnit": "ms", "traceEvents": [\n'
    separator = ""
    for event in _events(recording):
        yield separator + json.dumps(event)
        separator = ",\n"
    yield "\n]}\n"


def _events(recording: Recording) -> Iterator[dict[str, Any]]:
    seen: dict[int, None] = {}
    for event in recording.timeline():
        made = _complete(event)
        if made is not None:
            seen[made["pid"]] = None
            yield made
    ranks = set(recording.session.ranks)
    for pid in seen:
        name = f"rank {pid}" if pid in ranks else f"process {pid}"
        yield {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
        yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "ts": 0, "args": {"sort_index": pid}}
    first = next(iter(seen), 0)
    for row in recording.recompiles:
        reasons = [failed.guard for failed in row.failed]
        pid = row.rank if row.rank is not None else first
        yield _instant(f"recompile {row.id}", row.started, pid, {"function": row.function, "failed guards": reasons})
    for hit in recording.limit_hits:
        pid = hit.rank if hit.rank is not None else first
        yield _instant(f"{hit.limit} hit", hit.started, pid, {"function": hit.function, "value": hit.value})


def _complete(event: dict[str, Any]) -> dict[str, Any] | None:
    """An event that Perfetto takes: integer ids, numeric times; None for one that never began or has no name."""
    phase = event.get("ph")
    if phase not in ("X", "B", "i", "I", "C", "M") or not isinstance(event.get("name"), str):
        return None
    pid, tid = event.get("pid"), event.get("tid")
    made = {
        "name": event["name"],
        "cat": str(event.get("cat") or "compile"),
        "ph": "X" if phase == "B" else phase,
        "ts": float(event["ts"]),
        "pid": pid if isinstance(pid, int) else 0,
        "tid": tid if isinstance(tid, int) else 0,
        "args": event["args"] if isinstance(event.get("args"), dict) else {},
    }
    if phase == "X":
        made["dur"] = float(event.get("dur", 0.0))
    elif phase == "B":
        # It never ended: the program died in it. Without a length Perfetto would stretch it over everything after.
        made["dur"] = 0.0
        made["args"] = {**made["args"], "unfinished": True}
    return made


def _instant(name: str, seconds: float, pid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "ph": "i",
        "s": "p",
        "ts": seconds * 1e6,
        "pid": pid,
        "tid": 0,
        "cat": "compile",
        "args": args,
    }
