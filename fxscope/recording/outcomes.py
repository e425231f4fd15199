"""How an attempt ended: its metrics, and the failure, skipped frame or limit hit that they tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.recording import metrics as numbers
from fxscope.recording.failures import SOFT, limit_of, phase_of, place_of, user_stack_of
from fxscope.recording.process import without_attempt
from fxscope.recording.records import Failure, LimitHit
from fxscope.recording.state import State, inherit, split_number, text_or_none
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from fxscope.recording.process import Attempt, Process, Slot
    from fxscope.recording.records import Compile
    from fxscope.trace.index import Event, LogIndex


def take_metrics(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """``compilation_metrics``: the attempt is over."""
    values = event.value
    attempt = state.attempt(process, event) or state.outside(process, event, begin=False)
    if attempt is None or not isinstance(values, dict):
        return
    slot = attempt.slot
    slot.ended, slot.end = True, event.number if slot.ahead else slot.end
    attempt.metrics_event = number
    record = attempt.record
    record.metrics = numbers.keep(values)
    process.torch = process.torch or text_or_none(values.get("pytorch_version"))
    state.torch_version = state.torch_version or process.torch
    state.python_version = state.python_version or text_or_none(values.get("python_version"))
    span = numbers.interval(values)
    if span is not None:
        attempt.intervals.append(span)
        process.anchor(event.when, span[1])
        slot.attempts[min(slot.attempts)].record.started = span[0]
    if values.get("co_name"):
        record.function = str(values["co_name"])
        record.file = str(values.get("co_filename") or record.file)
        record.line = numbers.integer(values.get("co_firstlineno"), record.line) or 0
    inherit(process, event, record)
    record.nodes = numbers.integer(values.get("graph_node_count"), record.nodes)
    record.guards = numbers.integer(values.get("guard_count"), record.guards)
    _times(process, event, slot, attempt, values)
    attempt.order.frame_done()
    _conclude(state, process, event, attempt, values, index)


def _times(process: Process, event: Event, slot: Slot, attempt: Attempt, values: dict[str, Any]) -> None:
    """Seconds of the last attempt and, out of the same metrics, of the attempts before it."""
    record = attempt.record
    has_aot = any(stage in record.stages for stage in ("joint", "forward", "inference"))
    record.phases = numbers.phases(values, has_aot=has_aot)
    record.seconds = sum(record.phases.values()) if record.phases else numbers.seconds(values, "entire_frame_compile")
    if slot.outside:
        # Phases outside any frame are those of the last part alone.
        begin, end = numbers.interval(values) or (record.started, process.clock.unix(event.when))
        record.seconds, record.phases = max(record.seconds or 0.0, end - begin), {}
    earlier = sorted(number for number in slot.attempts if number < record.attempt)
    before = numbers.number(values.get("dynamo_time_before_restart_s"))
    if not earlier or before is None or record.seconds is None:
        return
    before = min(before, record.phases.get("dynamo", record.seconds))
    record.seconds -= before
    if "dynamo" in record.phases:
        record.phases["dynamo"] -= before
    reasons = values.get("restart_reasons")
    reasons = reasons if isinstance(reasons, list) else []
    for place, number in enumerate(earlier):
        restarted = slot.attempts[number].record
        restarted.seconds = before / len(earlier)
        restarted.phases = {"dynamo": before / len(earlier)}
        if place < len(reasons):
            restarted.restart_reason = str(reasons[place]).split("\n", 1)[0]


def _conclude(
    state: State, process: Process, event: Event, attempt: Attempt, values: dict[str, Any], index: LogIndex
) -> None:
    """Status of an attempt whose metrics have come, and the failure or limit hit that they tell of."""
    record = attempt.record
    fail_type = str(values.get("fail_type") or "")
    reason = str(values.get("fail_reason") or "")
    if not fail_type:
        if record.status in ("unfinished", "empty", "ok"):
            given_up = values.get("has_guarded_code") is False
            compiled = "dynamo" in record.stages or attempt.slot.ahead
            record.status = "ok" if compiled else "skipped" if given_up else "empty"
        return
    record.failure = reason.split("\n", 1)[0] or fail_type
    limit = limit_of(fail_type, reason)
    if limit is not None:
        record.status = "limit"
        add_limit(state, process, record, limit, _limit_value(reason, values, limit))
        _refuse(state, record)
    if fail_type.startswith("FailOn"):  # the limit under fullgraph, which the program saw as an exception
        add_failure(state, attempt, "fullgraph", fail_type, reason, ())
        return
    if limit is not None:
        return
    broke = any(other.breaks for other in attempt.slot.attempts.values())
    if fail_type in SOFT and broke:
        record.status = "skipped"
        return
    record.status = "failed"
    text = index.text(split_number(attempt.error)[1]) if attempt.error >= 0 else ""
    stack = user_stack_of(text) or user_stack_of("\n" + reason)
    if not stack and values.get("fail_user_frame_filename"):
        place = {"filename": values["fail_user_frame_filename"], "line": values.get("fail_user_frame_lineno")}
        stack = process.stack([place])
    add_failure(state, attempt, phase_of(fail_type), fail_type, reason, stack)


def add_failure(state: State, attempt: Attempt, phase: Any, kind: str, message: str, stack: Any) -> None:
    """Add a failure that only the log tells of, unless the recorder told of it already."""
    record = attempt.record
    place = place_of(stack)
    failure = Failure(
        id=record.id,
        phase=phase,
        type=kind,
        message=message,
        file=place.file if place else record.file,
        line=place.line if place else record.line,
        rank=record.rank,
        stack=stack,
        compile_key=record.key,
    )
    state.failures.setdefault((record.key, phase == "backward"), failure)


def take_later_metrics(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """Metrics of a backward, or of what was compiled or tuned when the entry first ran."""
    values = event.value
    attempt = state.attempt(process, event)
    if attempt is None or not isinstance(values, dict):
        return
    record = attempt.record
    length = numbers.seconds(values, "entire_frame_compile") or numbers.seconds(values, "inductor_compile") or 0.0
    phase = "autotune" if event.name.endswith("runtime") else "backward"
    if length > 0:
        record.phases[phase] = record.phases.get(phase, 0.0) + length
        record.seconds = (record.seconds or 0.0) + length
    span = numbers.interval(values)
    if span is not None:
        attempt.intervals.append(span)
    fail_type = str(values.get("fail_type") or "")
    if fail_type:
        reason = str(values.get("fail_reason") or "")
        record.failure = record.failure or reason.split("\n", 1)[0]
        add_failure(state, attempt, "backward", fail_type, reason, ())


def _refuse(state: State, record: Compile) -> None:
    recompile = state.recompile_of.get(record.key)
    if recompile is not None:
        recompile.outcome = "refused"
        recompile.function, recompile.file, recompile.line = record.function, record.file, record.line
        recompile.user_file, recompile.user_line = record.user_file, record.user_line


def add_limit(state: State, process: Process, record: Compile, limit: str, value: int | None) -> None:
    """Add a limit hit, or the value of one that is known."""
    known = state.limit_hits.get(record.key)
    if known is None:
        state.limit_hits[record.key] = LimitHit(
            function=record.function,
            file=record.file,
            line=record.line,
            limit=limit,
            value=value,
            id=without_attempt(record.id),
            rank=process.rank,
            started=record.started,
        )
    elif known.value is None:
        known.value = value


def take_error(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """``dynamo_error``: the traceback of an attempt that raised; its metrics will say what it means."""
    attempt = state.attempt(process, event)
    if attempt is not None:
        attempt.error = number
        if attempt.record.status == "unfinished":
            attempt.record.status = "skipped" if attempt.breaks else "failed"


def _limit_value(reason: str, values: dict[str, Any], limit: str) -> int | None:
    found = reason.partition("currently set to ")[2].split(")", 1)[0]
    if found.isascii() and found.isdigit() and len(found) < 16:
        return int(found)
    try:
        config = decode_json(str(values.get("dynamo_config")).encode())
    except BadEnvelope:
        return None
    older = {"recompile_limit": "cache_size_limit", "accumulated_recompile_limit": "accumulated_cache_size_limit"}
    if not isinstance(config, dict):
        return None
    return numbers.integer(config.get(limit, config.get(older[limit])), None) if limit in older else None
