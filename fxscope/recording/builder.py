"""Turns the events of a log into records, in one pass: which event is taken by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope import names
from fxscope.recording import frames, outcomes, recorder, rows
from fxscope.recording.state import State, event_number, split_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxscope.recording.process import Process
    from fxscope.trace.index import Event, LogIndex

__all__ = ["Builder", "event_number", "split_number"]

_TAKERS: dict[str, Callable[[State, Process, int, Event, LogIndex], None]] = {
    "dynamo_start": frames.take_start,
    "dynamo_output_graph": frames.take_graph,
    "dynamo_cpp_guards_str": frames.take_guards,
    "dynamo_guards": frames.take_guards,
    "compilation_metrics": outcomes.take_metrics,
    "bwd_compilation_metrics": outcomes.take_later_metrics,
    "compilation_metrics_runtime": outcomes.take_later_metrics,
    "bwd_compilation_metrics_runtime": outcomes.take_later_metrics,
    "aot_autograd_backward_compilation_metrics": outcomes.take_later_metrics,
    "inductor_pre_grad_graph": frames.take_graph,
    "aot_joint_graph": frames.take_graph,
    "aot_forward_graph": frames.take_graph,
    "aot_backward_graph": frames.take_graph,
    "aot_inference_graph": frames.take_graph,
    "inductor_post_grad_graph": frames.take_graph,
    "inductor_output_code": frames.take_graph,
    "compiled_autograd_graph": frames.take_carried,
    "optimize_ddp_split_graph": frames.take_carried,
    "optimize_ddp_split_child": frames.take_carried,
    "graph_dump": frames.take_carried,
    "exported_program": frames.take_carried,
    "link": frames.take_carried,
}
_ARTIFACT_TAKERS: dict[str, Callable[[State, Process, int, Event, LogIndex], None]] = {
    "dynamo_graph_break_reason": rows.take_break,
    "recompile_reasons": rows.take_recompile,
    "dynamo_error": outcomes.take_error,
    "torch_version": recorder.take_torch_version,
    names.EVENT_SESSION: recorder.take_session,
    names.EVENT_CONFIG: recorder.take_session,
    names.EVENT_END: recorder.take_session,
    names.EVENT_GRAPH: recorder.take_graph_facts,
    names.EVENT_LAUNCHES: recorder.take_launches,
    names.EVENT_FAILURE: recorder.take_failure,
    names.EVENT_LIMIT: recorder.take_limit,
}
# Events that the reader knows although no record needs them; the rest are counted as unknown.
KNOWN = frozenset(
    {
        "str",
        "artifact",
        "export",
        "inductor_input_graph",
        "missing_fake_kernel",
        "mismatched_fake_kernel",
        "guard_on_data_dependent_error",
        "bytecode_dump",
        *_TAKERS,
    }
)


class Builder(State):
    """Collects records; a sink of ``LogIndex.scan``."""

    def __init__(self) -> None:
        super().__init__()
        self._log_of: dict[int, int] = {}

    @property
    def known(self) -> frozenset[str]:
        """Event names that are not counted as unknown."""
        return KNOWN

    def add_log(self, index: LogIndex) -> None:
        """Begin one more log."""
        self._log_of[id(index)] = len(self.logs)
        self.logs.append(index)

    def take(self, index: LogIndex, event: Event) -> None:
        """One event of a log."""
        log = self._log_of[id(index)]
        process = self.process(log, event)
        if event.name == "str":
            process.intern(event.value)
        elif event.name == "artifact":
            self._artifact(process, event_number(log, event.number), event, index)
        elif (taker := _TAKERS.get(event.name)) is not None:
            taker(self, process, event_number(log, event.number), event, index)

    def _artifact(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        value: Any = event.value
        name = str(value.get("name")) if isinstance(value, dict) else "?"
        encoding = str(value.get("encoding") or "string") if isinstance(value, dict) else "string"
        frames.add_artifact(self, process, number, event, index, name, encoding)
        if (taker := _ARTIFACT_TAKERS.get(name)) is not None:
            taker(self, process, number, event, index)
            return
        if name.endswith(("_cache_hit", "_cache_miss", "_cache_bypass")):
            frames.take_cache(self, process, number, event, index, name)
        if event.envelope.get("frame_id") is not None or frames.is_outside_graph(process, event, name):
            frames.add_graph(self, process, number, event, index, name)
