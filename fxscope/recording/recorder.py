"""What fxscope's recorder adds to a log (``capture/events.py`` documents the payloads)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope import names
from fxscope.recording import metrics as numbers
from fxscope.recording.failures import as_stack
from fxscope.recording.outcomes import add_limit
from fxscope.recording.process import attempt_of
from fxscope.recording.records import CallTimes, Failure, Launch
from fxscope.recording.state import State, inherit, text_or_none
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from fxscope.recording.process import Attempt, Process
    from fxscope.trace.index import Event, LogIndex


def read_json(index: LogIndex, event: Event) -> dict[str, Any]:
    """A payload that is one JSON object; empty, with a note, where it is not."""
    try:
        value = decode_json(index.text(event.number).encode("utf-8", "replace"))
    except BadEnvelope as error:
        index.note(f"{index.source.path}: skipped the payload of event {event.number}: {error}")
        return {}
    return value if isinstance(value, dict) else {}


def take_session(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """Session facts, settings, the end of a process: kept until somebody asks for the session."""
    value = read_json(index, event)
    name = str(event.value["name"])
    if name == names.EVENT_SESSION:
        process.rank = numbers.integer(value.get("rank"), None) if process.rank is None else process.rank
        process.host = text_or_none(value.get("host"))
        process.torch = process.torch or text_or_none(value.get("torch"))
        process.forked_from = numbers.integer(value.get("forked_from"), None)
    if name in (names.EVENT_SESSION, names.EVENT_END):
        process.closed = name == names.EVENT_END
    state.session_events.append((process, name, value))


def take_graph_facts(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """``fxscope.graph``: what a backend was called with."""
    attempt = state.attempt(process, event)
    value = read_json(index, event)
    if attempt is None or not value:
        return
    graph = numbers.integer(value.get("graph"), None)
    if graph is not None:
        process.graphs[graph] = attempt
    record = attempt.record
    record.backend = text_or_none(value.get("backend")) or record.backend
    record.nodes = numbers.integer(value.get("nodes"), record.nodes)
    if isinstance(value.get("inputs"), list):
        record.inputs = [item for item in value["inputs"] if isinstance(item, dict)]


def take_launches(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """``fxscope.launches``: running totals of calls. A forked child's calls of what its parent compiled count to that compile."""
    value = read_json(index, event)
    entries = value.get("entries")
    for entry in entries if isinstance(entries, list) else []:
        attempt = _launched(state, process, entry) if isinstance(entry, dict) else None
        calls = numbers.integer(entry.get("calls"), None) if attempt is not None else None
        if attempt is None or calls is None:
            continue
        record = attempt.record
        launch = Launch(
            compile_key=record.key,
            graph=numbers.integer(entry.get("graph"), 0) or 0,
            calls=calls,
            process=process.pid,
            at=numbers.number(value.get("at")) or 0.0,
            forward=_times(entry.get("forward")),
            backward=_times(entry.get("backward")),
        )
        state.launches[record.key, launch.graph, process.pid] = launch
        # Graphs of one compile are called one after the other; processes add up.
        attempt.calls[process.pid] = max(attempt.calls.get(process.pid, 0), calls)
        record.calls = sum(attempt.calls.values())
        if launch.forward is not None and launch.forward.mean is not None:
            record.call_seconds = launch.forward.mean


def _launched(state: State, process: Process, entry: dict[str, Any]) -> Attempt | None:
    """The attempt whose entry was called: by the number of its graph, as an id comes again after a reset."""
    graph = numbers.integer(entry.get("graph"), -1) or 0
    line = _forked_line(state, process)
    for each in line:
        if graph in each.graphs:
            return each.graphs[graph]
    base, _, use = str(entry.get("id")).partition("#")
    slots = next((each.by_base[base] for each in line if each.by_base.get(base)), None)
    if not slots:
        return None
    slot = next((slot for slot in slots if str(slot.use) == use), slots[-1])
    return slot.attempts.get(attempt_of(entry) or 0) or slot.last


def _forked_line(state: State, process: Process) -> list[Process]:
    """The process, then the one that it forked from, whose entries it has under their numbers, and so on."""
    line = [process]
    while line[-1].forked_from is not None:
        child = line[-1]
        parent = next(
            (
                each
                for each in reversed(state.processes.values())
                if (each.pid, each.host) == (child.forked_from, child.host) and each is not child
            ),
            None,
        )
        if parent is None or parent in line:
            break
        line.append(parent)
    return line


def _times(value: Any) -> CallTimes | None:
    if not isinstance(value, dict):
        return None
    return CallTimes(
        samples=numbers.integer(value.get("samples"), 0) or 0,
        mean=numbers.number(value.get("mean")),
        min=numbers.number(value.get("min")),
        max=numbers.number(value.get("max")),
        clock=str(value.get("clock") or "host"),
    )


def take_failure(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """``fxscope.failure``: an exception that left torch.compile; it knows more than the log, so it takes the place of what the log said."""
    value = read_json(index, event)
    attempt = state.attempt(process, event)
    if not value:
        return
    phase = value.get("phase")
    known_phase: Any = phase if phase in ("dynamo", "backend", "backward", "fullgraph", "constraint") else "dynamo"
    stack = as_stack(value.get("stack"))
    failure = Failure(
        id=attempt.record.id if attempt else str(value.get("id") or ""),
        phase=known_phase,
        type=str(value.get("type") or ""),
        message=str(value.get("message") or ""),
        file=str(value.get("file") or ""),
        line=numbers.integer(value.get("line"), 0) or 0,
        rank=process.rank,
        stack=stack,
        compile_key=attempt.record.key if attempt else "",
    )
    key = failure.compile_key or f"{process.prefix}?{number}"
    state.failures[key, known_phase == "backward"] = failure
    if attempt is not None:
        attempt.record.failure = failure.message.split("\n", 1)[0]
        if known_phase != "backward" and attempt.record.status in ("unfinished", "skipped"):
            attempt.record.status = "failed"


def take_limit(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """``fxscope.limit``: which frame ran into the limit."""
    value = read_json(index, event)
    attempt = state.attempt(process, event)
    if attempt is None or not value:
        return
    record = attempt.record
    record.function = record.function or str(value.get("function") or "")
    record.file = record.file or str(value.get("file") or "")
    record.line = record.line or numbers.integer(value.get("line"), 0) or 0
    inherit(process, event, record)
    add_limit(
        state, process, record, str(value.get("limit") or "recompile_limit"), numbers.integer(value.get("value"), None)
    )


def take_torch_version(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """The version of torch, which it logs first."""
    value = read_json(index, event)
    if value.get("pytorch_version"):
        state.torch_version = process.torch = str(value["pytorch_version"])
