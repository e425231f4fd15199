"""What torch logs while it compiles a frame: its start, its graphs and guards, and everything named besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.recording.caches import HEAD, read_cache_event
from fxscope.recording.process import triple_of
from fxscope.recording.records import Artifact, CacheEvent, GraphText
from fxscope.recording.rows import name_recompile
from fxscope.recording.state import State, set_user_line

if TYPE_CHECKING:
    from fxscope.recording.process import Attempt, Process
    from fxscope.trace.index import Event, LogIndex


_WRAPPER = "inductor_aot_wrapper_code"
# What only a compiler writes: seen outside any frame, it was called ahead of time.
_OUTSIDE = frozenset(
    {
        "before_pre_grad_graph",
        "inductor_pre_grad_graph",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_inference_graph",
        "inductor_post_grad_graph",
        _WRAPPER,
    }
)


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


def is_outside_graph(process: Process, event: Event, name: str) -> bool:
    """Whether an artifact outside any frame begins, or carries a graph of, what is compiled ahead of time."""
    if name not in _OUTSIDE and name != "after_pre_grad_graph" and not name.endswith("_post_grad_graph"):
        return False
    return triple_of(event.envelope) == (None, None, None)


def add_graph(state: State, process: Process, number: int, event: Event, index: LogIndex, name: str) -> None:
    """Add a graph by the name of the event or artifact that carried it; an artifact that is no graph is left alone."""
    attempt = state.attempt(process, event) or state.outside(process, event, begin=name in _OUTSIDE)
    if attempt is None:
        if event.name != "artifact":
            add_artifact(state, process, number, event, index, name, "string")
        return
    if name == _WRAPPER:
        attempt.record.function = "AOTInductor"
    placed = attempt.order.place(name)
    if placed is None:
        return
    stage, index_ = placed
    record = attempt.record
    if stage == "dynamo":
        state.captured(process, attempt)
    if attempt.slot.ahead:
        _ahead(process, attempt, event, done=stage.endswith(".code"))
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


def _ahead(process: Process, attempt: Attempt, event: Event, *, done: bool) -> None:
    """Time and status of what is compiled ahead of time, as far as it is; its metrics, which need not come, know better."""
    if attempt.slot.ended:
        return  # a backward that was compiled when it first ran
    record = attempt.record
    record.seconds = max(0.0, process.clock.unix(event.when) - record.started)
    if done and record.status == "unfinished":
        record.status = "ok"


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
    if name == _WRAPPER:
        add_graph(state, process, number, event, index, name)


def add_artifact(
    state: State, process: Process, number: int, event: Event, index: LogIndex, name: str, encoding: str
) -> None:
    """Add one named payload, with the compile that it belongs to."""
    # An artifact may be the first event of its compile.
    if state.slot(process, event) is None and name in _OUTSIDE:
        state.outside(process, event, begin=True)
    key = process.key_at(event.envelope, event.number)
    state.artifacts.append(
        Artifact(name=name, encoding=encoding, compile_key=key, size=index.size(event.number), event=number)
    )


def take_cache(state: State, process: Process, number: int, event: Event, index: LogIndex, name: str) -> None:
    """A look into a compile cache."""
    attempt = state.attempt(process, event) or state.outside(process, event, begin=False)
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
    if attempt is not None and attempt.slot.ahead:
        _ahead(process, attempt, event, done=cache == "fx_graph")
    if attempt is not None and (attempt.record.caches.get(cache) in (None, "hit")):
        attempt.record.caches[cache] = outcome  # with several looks, the one that cost most
