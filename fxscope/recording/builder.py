"""Turns the events of a log into records, in one pass and in any order of arrival."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from fxscope import names
from fxscope.recording import metrics as numbers
from fxscope.recording.breaks import parse_break
from fxscope.recording.caches import HEAD, read_cache_event
from fxscope.recording.failures import SOFT, as_stack, limit_of, phase_of, place_of, user_stack_of
from fxscope.recording.process import Attempt, Process, Slot, base_id
from fxscope.recording.recompiles import parse_reason, read_reasons
from fxscope.recording.records import (
    Artifact,
    CacheEvent,
    Compile,
    Failure,
    GraphBreak,
    GraphText,
    LimitHit,
    Recompile,
)
from fxscope.recording.userline import deepest_user_line, is_torch_file, is_user_file
from fxscope.trace.clock import Clock
from fxscope.trace.folder import rank_of
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxscope.trace.index import Event, LogIndex

_LOG_SHIFT = 32  # an event's number in the recording: number of its log << 32 | number in that log

# Events that the reader knows although no record needs them; the rest are counted as unknown.
KNOWN = frozenset(
    {
        "str",
        "link",
        "dump_file",
        "graph_dump",
        "exported_program",
        "export",
        "inductor_input_graph",
        "missing_fake_kernel",
        "mismatched_fake_kernel",
        "compilation_metrics_runtime",
        "aot_autograd_backward_compilation_metrics",
        "guard_on_data_dependent_error",
        "propagate_real_tensors",
        "bytecode_dump",
    }
)


def event_number(log: int, number: int) -> int:
    """Number of an event in the recording."""
    return log << _LOG_SHIFT | number


def split_number(event: int) -> tuple[int, int]:
    """Log and number in it."""
    return event >> _LOG_SHIFT, event & ((1 << _LOG_SHIFT) - 1)


class Builder:
    """Collects records; a sink of ``LogIndex.scan``.

    The lists only grow, and their records are updated in place, so a reader of a live run keeps valid references.
    """

    def __init__(self) -> None:
        self.logs: list[LogIndex] = []
        self.processes: dict[tuple[int, int], Process] = {}
        self.compiles: list[Compile] = []
        self.by_key: dict[str, Attempt] = {}
        self.slot_of: dict[str, Slot] = {}
        self.breaks: dict[tuple[str, int, str], GraphBreak] = {}
        self.break_events = 0
        self.recompiles: list[Recompile] = []
        self.limit_hits: dict[str, LimitHit] = {}
        self.failures: dict[tuple[str, bool], Failure] = {}
        self.artifacts: list[Artifact] = []
        self.cache_events: list[CacheEvent] = []
        self.session_events: list[tuple[Process, str, Any]] = []
        self.torch_version: str | None = None
        self.python_version: str | None = None
        self.notes: list[str] = []
        self.span = (0.0, 0.0)
        self._log_of: dict[int, int] = {}
        self._takers: dict[str, Callable[[Process, int, Event, LogIndex], None]] = {
            "dynamo_start": self._start,
            "dynamo_output_graph": self._graph_event,
            "dynamo_cpp_guards_str": self._guards,
            "dynamo_guards": self._guards,
            "compilation_metrics": self._metrics,
            "bwd_compilation_metrics": self._later_metrics,
            "compilation_metrics_runtime": self._later_metrics,
            "bwd_compilation_metrics_runtime": self._later_metrics,
            "aot_autograd_backward_compilation_metrics": self._later_metrics,
            "artifact": self._artifact,
            "inductor_pre_grad_graph": self._graph_event,
            "aot_joint_graph": self._graph_event,
            "aot_forward_graph": self._graph_event,
            "aot_backward_graph": self._graph_event,
            "aot_inference_graph": self._graph_event,
            "inductor_post_grad_graph": self._graph_event,
            "inductor_output_code": self._graph_event,
            "compiled_autograd_graph": self._carried,
            "optimize_ddp_split_graph": self._carried,
            "optimize_ddp_split_child": self._carried,
            "graph_dump": self._carried,
            "dump_file": self._carried,
            "exported_program": self._carried,
            "link": self._carried,
        }
        self._artifact_takers: dict[str, Callable[[Process, int, Event, LogIndex], None]] = {
            "dynamo_graph_break_reason": self._break,
            "recompile_reasons": self._recompile,
            "dynamo_error": self._error,
            "torch_version": self._torch_version,
            names.EVENT_SESSION: self._session_event,
            names.EVENT_CONFIG: self._session_event,
            names.EVENT_END: self._session_event,
            names.EVENT_GRAPH: self._recorded_graph,
            names.EVENT_LAUNCHES: self._launches,
            names.EVENT_FAILURE: self._recorded_failure,
            "fxscope.limit": self._recorded_limit,
        }

    @property
    def known(self) -> frozenset[str]:
        """Event names that are not counted as unknown."""
        return KNOWN.union(self._takers)

    def add_log(self, index: LogIndex) -> None:
        """Begin one more log."""
        self._log_of[id(index)] = len(self.logs)
        self.logs.append(index)

    def take(self, index: LogIndex, event: Event) -> None:
        """One event of a log."""
        log = self._log_of[id(index)]
        process = self.processes.get((log, event.process)) or self._new_process(log, index, event)
        if event.name == "str":
            self._intern(process, event.value)
            return
        taker = self._takers.get(event.name)
        if taker is not None:
            taker(process, event_number(log, event.number), event, index)

    # processes and ids

    def _new_process(self, log: int, index: LogIndex, event: Event) -> Process:
        rank = rank_of(index.source.path)
        if rank is None and isinstance(event.envelope.get("rank"), int):
            rank = event.envelope["rank"]
        clock = Clock(_file_age(index.source.path))
        process = Process(log, event.process, rank, clock)
        # A forked child knows its parent's strings: of the same log, else of one that began before.
        known = list(self.processes.values())[::-1]
        process.parents = [other for other in known if other.log == log]
        process.elders = [other for other in known if other.log != log and other.rank == rank]
        taken = {other.prefix for other in self.processes.values()}
        candidates = itertools.chain(
            [f"r{rank}:" if rank is not None else "", f"p{event.process}:"],
            (f"p{event.process}.{again}:" for again in itertools.count(2)),
        )
        process.prefix = next(prefix for prefix in candidates if prefix not in taken)
        self.processes[log, event.process] = process
        return process

    @staticmethod
    def _intern(process: Process, value: Any) -> None:
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
            process.strings[value[1]] = value[0]

    def _slot(
        self, process: Process, envelope: dict[str, Any], *, begin: bool = False, attempt: int = 0
    ) -> Slot | None:
        """The slot of an event's compile id, begun anew where ``begin`` and the id's last use is over; None outside one."""
        triple = tuple(
            value if isinstance(value, int) else None
            for value in (envelope.get(key) for key in ("compiled_autograd_id", "frame_id", "frame_compile_id"))
        )
        if triple[1] is None:
            return None
        slot = process.slots.get(triple)  # type: ignore[arg-type]
        if slot is None or (begin and (slot.ended or (slot.started and attempt <= max(slot.attempts, default=-1)))):
            slot = Slot(base_id(*triple), slot.use + 1 if slot else 1)
            process.slots[triple] = slot  # type: ignore[index]
            self.slot_of[process.prefix + _with_use(slot.base, slot.use)] = slot
        return slot

    def _attempt(self, process: Process, event: Event, *, begin: bool = False) -> Attempt | None:
        number = event.envelope.get("attempt")
        number = number if isinstance(number, int) else None
        slot = self._slot(process, event.envelope, begin=begin, attempt=number or 0)
        if slot is None:
            return None
        if number is None:  # logged after the compile (a lazy backward, run-time metrics): belongs to its last attempt
            number = max(slot.attempts, default=0)
        attempt = slot.attempts.get(number)
        if attempt is None:
            attempt = slot.attempts[number] = self._new_attempt(process, slot, number, event)
        return attempt

    def _new_attempt(self, process: Process, slot: Slot, number: int, event: Event) -> Attempt:
        if not process.clock.anchored:
            self._anchor(process)
        base = slot.base + (f"_{number}" if number else "")
        name = _with_use(base, slot.use)
        record = Compile(
            id=name,
            key=process.prefix + name,
            attempt=number,
            rank=process.rank,
            process=process.pid,
            status="unfinished",
        )
        process.date(record, event.when)
        attempt = Attempt(record, slot)
        first = slot.attempts.get(0)
        if first is not None:
            _copy_frame(record, first.record)
            for other in slot.attempts.values():
                if other.record.attempt < number:
                    other.record.status = "restarted"
        self.compiles.append(record)
        self.by_key[record.key] = attempt
        return attempt

    def _anchor(self, process: Process) -> None:
        """Set a process's clock by a phase event, which carries Unix time; these come from the first moment on."""
        index = self.logs[process.log]
        number = index.latest("chromium_event")
        if number is None:
            return
        try:
            event = index.event(number)
            value = decode_json(index.text(number).encode("utf-8", "replace"))
        except BadEnvelope:
            return  # noted when somebody reads the timeline; another event will set the clock
        stamp = numbers.number(value.get("ts")) if isinstance(value, dict) else None
        if stamp is not None and event.process == process.pid:
            process.anchor(event.when, stamp / 1e6)

    # what torch logs

    def _start(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        attempt = self._attempt(process, event, begin=True)
        if attempt is None:
            return
        slot = self._slot(process, event.envelope)
        if slot is not None:
            slot.started = True
        value = event.value
        stack = process.stack(value.get("stack") if isinstance(value, dict) else None)
        record = attempt.record
        record.stack = stack
        if stack and not record.function:
            record.function, record.file, record.line = stack[-1].function, stack[-1].file, stack[-1].line
        _set_user_line(record)
        process.frames[event.envelope.get("compiled_autograd_id"), event.envelope.get("frame_id")] = record
        self._name_recompile(attempt)

    def _graph_event(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        self._add_graph(process, number, event, index, event.name)

    def _add_graph(self, process: Process, number: int, event: Event, index: LogIndex, name: str) -> None:
        attempt = self._attempt(process, event)
        if attempt is None:
            self._add_artifact(process, number, event, index, name, "string")
            return
        stage = attempt.order.place(name)
        if stage is None:
            return
        record = attempt.record
        same = [graph for graph in record.graphs if graph.stage == stage]
        text = GraphText(
            compile_key=record.key, stage=stage, name=name, index=len(same), size=index.size(event.number), event=number
        )
        if name == "after_pre_grad_graph" and same and same[-1].name == "before_pre_grad_graph":
            text.index = same[-1].index
            record.graphs[record.graphs.index(same[-1])] = text
        else:
            record.graphs.append(text)
        if stage not in record.stages:
            record.stages.append(stage)

    def _guards(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        attempt = self._attempt(process, event)
        if attempt is None:
            return
        if attempt.guards_event < 0 or event.name == "dynamo_cpp_guards_str":
            attempt.guards_event = number
        if attempt.record.status == "unfinished":
            attempt.record.status = "ok" if "dynamo" in attempt.record.stages else "empty"

    def _metrics(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        values = event.value
        attempt = self._attempt(process, event)
        slot = self._slot(process, event.envelope)
        if attempt is None or slot is None or not isinstance(values, dict):
            return
        slot.ended = True
        attempt.metrics_event = number
        record = attempt.record
        record.metrics = numbers.keep(values)
        self.torch_version = self.torch_version or _text(values.get("pytorch_version"))
        self.python_version = self.python_version or _text(values.get("python_version"))
        span = numbers.interval(values)
        if span is not None:
            attempt.intervals.append(span)
            process.anchor(event.when, span[1])
            slot.attempts[min(slot.attempts)].record.started = span[0]
        if values.get("co_name"):
            record.function = str(values["co_name"])
            record.file = str(values.get("co_filename") or record.file)
            line = values.get("co_firstlineno")
            record.line = line if isinstance(line, int) else record.line
        self._inherit(process, event, record)
        record.nodes = _integer(values.get("graph_node_count"), record.nodes)
        record.guards = _integer(values.get("guard_count"), record.guards)
        self._times(slot, attempt, values)
        attempt.order.frame_done()
        self._conclude(process, event, attempt, values, index)

    def _times(self, slot: Slot, attempt: Attempt, values: dict[str, Any]) -> None:
        """Seconds of the last attempt and, out of the same metrics, of the attempts before it."""
        record = attempt.record
        has_aot = any(stage in record.stages for stage in ("joint", "forward", "inference"))
        record.phases = numbers.phases(values, has_aot=has_aot)
        record.seconds = (
            sum(record.phases.values()) if record.phases else numbers.seconds(values, "entire_frame_compile")
        )
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
        self, process: Process, event: Event, attempt: Attempt, values: dict[str, Any], index: LogIndex
    ) -> None:
        """Status of an attempt whose metrics have come, and the failure or limit hit that they tell of."""
        record = attempt.record
        fail_type = str(values.get("fail_type") or "")
        reason = str(values.get("fail_reason") or "")
        if not fail_type:
            if record.status == "unfinished" or record.status == "empty" or record.status == "ok":
                given_up = values.get("has_guarded_code") is False
                record.status = "ok" if "dynamo" in record.stages else "skipped" if given_up else "empty"
            return
        record.failure = reason.split("\n", 1)[0] or fail_type
        limit = limit_of(fail_type, reason)
        if limit is not None:
            record.status = "limit"
            self._limit(process, record, limit, _limit_value(reason, values, limit))
            self._refuse(record)
        if fail_type.startswith("FailOn"):  # the limit under fullgraph, which the program saw as an exception
            self._failed(attempt, "fullgraph", fail_type, reason, ())
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
        self._failed(attempt, phase_of(fail_type), fail_type, reason, stack)

    def _failed(self, attempt: Attempt, phase: Any, kind: str, message: str, stack: Any) -> None:
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
        self.failures.setdefault((record.key, phase == "backward"), failure)

    def _later_metrics(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        """Metrics of a backward, or of what was compiled or tuned when the entry first ran."""
        values = event.value
        attempt = self._attempt(process, event)
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
            self._failed(attempt, "backward", fail_type, reason, ())

    # artifacts

    def _artifact(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        value = event.value
        name = str(value.get("name")) if isinstance(value, dict) else "?"
        encoding = str(value.get("encoding") or "string") if isinstance(value, dict) else "string"
        self._add_artifact(process, number, event, index, name, encoding)
        taker = self._artifact_takers.get(name)
        if taker is not None:
            taker(process, number, event, index)
            return
        if name.endswith(("_cache_hit", "_cache_miss", "_cache_bypass")):
            self._cache(process, number, event, index, name)
        if event.envelope.get("frame_id") is not None:
            self._add_graph(process, number, event, index, name)

    def _carried(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        value = event.value
        inner = value.get("name") if isinstance(value, dict) else None
        name = (
            event.name
            if inner is None
            else str(inner)
            if event.name in ("graph_dump", "dump_file")
            else f"{event.name}.{inner}"
        )
        self._add_artifact(process, number, event, index, name, "string")

    def _add_artifact(
        self, process: Process, number: int, event: Event, index: LogIndex, name: str, encoding: str
    ) -> None:
        key = None
        slot = self._slot(process, event.envelope)
        if slot is not None:
            which = event.envelope.get("attempt") or 0
            key = process.prefix + _with_use(slot.base + (f"_{which}" if which else ""), slot.use)
        elif event.envelope.get("compiled_autograd_id") is not None:
            key = f"{process.prefix}!{event.envelope['compiled_autograd_id']}"
        self.artifacts.append(
            Artifact(name=name, encoding=encoding, compile_key=key, size=index.size(event.number), event=number)
        )

    def _cache(self, process: Process, number: int, event: Event, index: LogIndex, name: str) -> None:
        attempt = self._attempt(process, event) if event.envelope.get("frame_id") is not None else None
        cache, outcome, reason = read_cache_event(name, index.text(event.number, HEAD))
        self.cache_events.append(
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

    def _break(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        attempt = self._attempt(process, event)
        text = parse_break(index.text(event.number))
        self.break_events += 1
        if attempt is not None:
            attempt.breaks += 1
            if not text.file:
                text.file, text.line, text.function = attempt.record.file, attempt.record.line, attempt.record.function
        row = self.breaks.get((text.file, text.line, text.kind))
        if row is None and (text.duplicate or not text.kind):
            row = next((b for b in self.breaks.values() if (b.file, b.line) == (text.file, text.line)), None)
        if row is None:
            row = self._new_break(text)
        else:
            row.count += 1
            row.skipped_frame = row.skipped_frame or text.skipped_frame
        row.events.append(number)
        if attempt is not None:
            record = attempt.record
            name = _without_attempt(record.id)
            if name not in row.compile_ids:
                row.compile_ids.append(name)
            if record.key not in row.compile_keys:
                row.compile_keys.append(record.key)

    def _new_break(self, text: Any) -> GraphBreak:
        own = deepest_user_line(text.stack)
        row = GraphBreak(
            site=f"{os.path.basename(text.file.replace(chr(92), '/'))}:{text.line}",
            file=text.file,
            line=text.line,
            function=text.function,
            code=text.code,
            gb_id=text.gb_id,
            kind=text.kind,
            reason=text.reason,
            explanation=text.explanation,
            context=text.context,
            hints=text.hints,
            skipped_frame=text.skipped_frame,
            stack=text.stack,
            user_file=own.file if own else text.file,
            user_line=own.line if own else text.line,
            user_code=own.code if own else text.code,
        )
        if is_user_file(text.file):
            row.user_file, row.user_line, row.user_code = text.file, text.line, text.code
        self.breaks[text.file, text.line, text.kind] = row
        return row

    def _recompile(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        attempt = self._attempt(process, event, begin=True)
        if attempt is None:
            return
        record = attempt.record
        recompile = Recompile(id=_without_attempt(record.id), key=record.key, rank=process.rank)
        process.date(recompile, event.when)
        for reason in read_reasons(index.text(event.number)):
            failed = parse_reason(reason)
            if failed.asked_file:
                failed.asked_file = process.full_path(failed.asked_file)
            failed.entry = self._entry_in_use(process, failed.entry)
            recompile.failed.append(failed)
        self.recompiles.append(recompile)
        self._inherit(process, event, record)
        self._name_recompile(attempt, recompile)

    def _entry_in_use(self, process: Process, entry: str) -> str:
        """The id of a cache entry, with ``#2`` where the process began it anew."""
        for slot in process.slots.values():
            if slot.base == entry:
                return _with_use(entry, slot.use)
        return entry

    def _name_recompile(self, attempt: Attempt, recompile: Recompile | None = None) -> None:
        record = attempt.record
        if recompile is None:
            recompile = next((r for r in reversed(self.recompiles[-64:]) if r.key == record.key), None)
        if recompile is None:
            return
        recompile.function, recompile.file, recompile.line = record.function, record.file, record.line
        recompile.user_file, recompile.user_line = record.user_file, record.user_line

    def _inherit(self, process: Process, event: Event, record: Compile) -> None:
        """A refused compile has no name and no stack of its own: those of the frame's earlier compiles hold."""
        known = process.frames.get((event.envelope.get("compiled_autograd_id"), event.envelope.get("frame_id")))
        if known is not None and known is not record and not record.function:
            _copy_frame(record, known)
        elif not record.user_file:
            _set_user_line(record)

    def _refuse(self, record: Compile) -> None:
        for recompile in reversed(self.recompiles):
            if recompile.key == record.key:
                recompile.outcome = "refused"
                recompile.function, recompile.file, recompile.line = record.function, record.file, record.line
                recompile.user_file, recompile.user_line = record.user_file, record.user_line
                return

    def _limit(self, process: Process, record: Compile, limit: str, value: int | None) -> None:
        known = self.limit_hits.get(record.key)
        if known is None:
            self.limit_hits[record.key] = LimitHit(
                function=record.function,
                file=record.file,
                line=record.line,
                limit=limit,
                value=value,
                id=_without_attempt(record.id),
                rank=process.rank,
                started=record.started,
            )
        elif known.value is None:
            known.value = value

    def _error(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        attempt = self._attempt(process, event)
        if attempt is not None:
            attempt.error = number
            if attempt.record.status == "unfinished":
                attempt.record.status = "skipped" if attempt.breaks else "failed"

    def _torch_version(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        value = self._json(index, event)
        if value.get("pytorch_version"):
            self.torch_version = str(value["pytorch_version"])

    # what fxscope adds

    def _json(self, index: LogIndex, event: Event) -> dict[str, Any]:
        try:
            value = decode_json(index.text(event.number).encode("utf-8", "replace"))
        except BadEnvelope as error:
            index.note(f"{index.source.path}: skipped the payload of event {event.number}: {error}")
            return {}
        return value if isinstance(value, dict) else {}

    def _session_event(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        value = self._json(index, event)
        name = str(event.value["name"])
        if name == names.EVENT_SESSION and isinstance(value.get("rank"), int) and process.rank is None:
            process.rank = value["rank"]
        self.session_events.append((process, name, value))

    def _recorded_graph(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        attempt = self._attempt(process, event)
        value = self._json(index, event)
        if attempt is None or not value:
            return
        record = attempt.record
        record.backend = _text(value.get("backend")) or record.backend
        record.nodes = _integer(value.get("nodes"), record.nodes)
        if isinstance(value.get("inputs"), list):
            record.inputs = value["inputs"]

    def _launches(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        entries = self._json(index, event).get("entries")
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, dict):
                continue
            slot = next((s for s in process.slots.values() if s.base == str(entry.get("id"))), None)
            attempt = slot and (slot.attempts.get(entry.get("attempt") or 0) or slot.last)
            calls = entry.get("calls")
            if not attempt or not isinstance(calls, int):
                continue
            attempt.record.calls = max(attempt.record.calls or 0, calls)
            forward = entry.get("forward")
            mean = numbers.number(forward.get("mean")) if isinstance(forward, dict) else None
            if mean is not None:
                attempt.record.call_seconds = mean

    def _recorded_failure(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        value = self._json(index, event)
        attempt = self._attempt(process, event)
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
            line=_integer(value.get("line"), 0) or 0,
            rank=process.rank,
            stack=stack,
            compile_key=attempt.record.key if attempt else "",
        )
        key = failure.compile_key or f"{process.prefix}?{number}"
        self.failures[key, known_phase == "backward"] = failure
        if attempt is not None:
            attempt.record.failure = failure.message.split("\n", 1)[0]
            if known_phase != "backward" and attempt.record.status in ("unfinished", "skipped"):
                attempt.record.status = "failed"

    def _recorded_limit(self, process: Process, number: int, event: Event, index: LogIndex) -> None:
        value = self._json(index, event)
        attempt = self._attempt(process, event)
        if attempt is None or not value:
            return
        record = attempt.record
        record.function = record.function or str(value.get("function") or "")
        record.file = record.file or str(value.get("file") or "")
        record.line = record.line or _integer(value.get("line"), 0) or 0
        self._inherit(process, event, record)
        self._limit(process, record, str(value.get("limit") or "recompile_limit"), _integer(value.get("value"), None))


def _copy_frame(record: Compile, other: Compile) -> None:
    record.function, record.file, record.line = other.function, other.file, other.line
    record.stack = record.stack or other.stack
    record.user_file, record.user_line, record.user_code = other.user_file, other.user_line, other.user_code


def _set_user_line(record: Compile) -> None:
    """The function itself where it is the user's; else what called into the library, which for a stock module is the call site."""
    if is_user_file(record.file):
        record.user_file, record.user_line = record.file, record.line
        record.user_code = ""
    else:
        own = deepest_user_line(record.stack)
        if own is not None:
            record.user_file, record.user_line, record.user_code = own.file, own.line, own.code
        elif not is_torch_file(record.file):
            record.user_file, record.user_line = record.file, record.line


def _with_use(name: str, use: int) -> str:
    return name if use == 1 else f"{name}#{use}"


def _without_attempt(name: str) -> str:
    base, hash_, use = name.partition("#")
    return base.split("_", 1)[0] + hash_ + use


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _integer(value: Any, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _limit_value(reason: str, values: dict[str, Any], limit: str) -> int | None:
    found = reason.partition("currently set to ")[2].split(")", 1)[0]
    if found.isdigit():
        return int(found)
    try:
        config = decode_json(str(values.get("dynamo_config")).encode())
    except BadEnvelope:
        return None
    older = {"recompile_limit": "cache_size_limit", "accumulated_recompile_limit": "accumulated_cache_size_limit"}
    if not isinstance(config, dict):
        return None
    return _integer(config.get(limit, config.get(older[limit])), None) if limit in older else None


def _file_age(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return 0.0
