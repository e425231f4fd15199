"""What torch logs while it compiles a frame: its start, its graphs and guards, and everything named besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.recording.caches import HEAD, read_cache_event
from fxscope.recording.process import triple_of
from fxscope.recording.records import Artifact, CacheEvent, GraphText
from fxscope.recording.rows import name_recompile
from fxscope.recording.state import State, set_user_line

if TYPE_CHECKING:
    from fxscope.recording.process import Process
    from fxscope.trace.index import Event, LogIndex


def take_start(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """``dynamo_start``: an attempt begins; its stack ends in the function that is compiled."""
    attempt = state.attempt(process, event, begin=True)
    if attempt is None:
        return
    slot = state.slot(process, event)
    if slot is not None:
        slot.started = True
    value = event.value
    stack = process.stack(value.get("stack") if isinstance(value, dict) else None)
    record = attempt.record
    record.stack = stack
    if stack and not record.function:
        record.function, record.file, record.line = stack[-1].function, stack[-1].file, stack[-1].line
    set_user_line(record)
    process.frames[triple_of(event.envelope)[:2]] = record
    name_recompile(state, attempt)


def take_graph(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """An event that carries a printed graph or generated code."""
    add_graph(state, process, number, event, index, event.name)


def add_graph(state: State, process: Process, number: int, event: Event, index: LogIndex, name: str) -> None:
    """Add a graph by the name of the event or artifact that carried it; an artifact that is no graph is left alone."""
    attempt = state.attempt(process, event)
    if attempt is None:
        add_artifact(state, process, number, event, index, name, "string")
        return
    placed = attempt.order.place(name)
    if placed is None:
        return
    stage, index_ = placed
    record = attempt.record
    text = GraphText(
        compile_key=record.key, stage=stage, name=name, index=index_, size=index.size(event.number), event=number
    )
    last = next((graph for graph in reversed(record.graphs) if graph.stage == stage), None)
    if name == "after_pre_grad_graph" and last is not None and last.name == "before_pre_grad_graph":
        text.index = last.index
        attempt.order.again(stage)
        record.graphs[record.graphs.index(last)] = text
    else:
        record.graphs.append(text)
    if stage not in record.stages:
        record.stages.append(stage)


def take_guards(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """The guards of an entry: Dynamo is done with the attempt."""
    attempt = state.attempt(process, event)
    if attempt is None:
        return
    if attempt.guards_event < 0 or event.name == "dynamo_cpp_guards_str":
        attempt.guards_event = number
    if attempt.record.status == "unfinished":
        attempt.record.status = "ok" if "dynamo" in attempt.record.stages else "empty"


def take_carried(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """An event of its own kind that carries something named."""
    value = event.value
    inner = value.get("name") if isinstance(value, dict) else None
    name = (
        event.name
        if inner is None
        else str(inner)
        if event.name in ("graph_dump", "dump_file")
        else f"{event.name}.{inner}"
    )
    add_artifact(state, process, number, event, index, name, "string")


def add_artifact(
    state: State, process: Process, number: int, event: Event, index: LogIndex, name: str, encoding: str
) -> None:
    """Add one named payload, with the compile that it belongs to."""
    state.slot(process, event)  # an artifact may be the first event of its compile
    key = process.key_at(event.envelope, event.number)
    state.artifacts.append(
        Artifact(name=name, encoding=encoding, compile_key=key, size=index.size(event.number), event=number)
    )


def take_cache(state: State, process: Process, number: int, event: Event, index: LogIndex, name: str) -> None:
    """A look into a compile cache."""
    attempt = state.attempt(process, event) if event.envelope.get("frame_id") is not None else None
    cache, outcome, reason = read_cache_event(name, index.text(event.number, HEAD))
    state.cache_events.append(
        CacheEvent(
            cache=cache,
            outcome=outcome,
            reason=reason,
            compile_key=attempt.record.key if attempt else None,
            event=number,
        )
    )
    if attempt is not None and (attempt.record.caches.get(cache) in (None, "hit")):
        attempt.record.caches[cache] = outcome  # with several looks, the one that cost most
