"""The records as they grow: which process wrote an event, and which attempt of which compile it belongs to."""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, Any

from fxscope.recording import metrics as numbers
from fxscope.recording.process import OUTSIDE, Attempt, Process, Slot, attempt_of, base_id, triple_of, with_use
from fxscope.recording.records import Compile
from fxscope.recording.userline import deepest_user_line, is_generated, is_torch_file, is_user_file
from fxscope.trace.clock import Clock
from fxscope.trace.folder import rank_of
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from fxscope.recording.records import (
        Artifact,
        CacheEvent,
        Failure,
        GraphBreak,
        Launch,
        LimitHit,
        Recompile,
    )
    from fxscope.trace.index import Event, LogIndex

_LOG_SHIFT = 32  # an event's number in the recording: number of its log << 32 | number in that log
_RANK = re.compile(rb'\}, "rank": (\d{1,9}), "(?:frame_id|compiled_autograd_id|attempt|has_payload|stack)"')
_RANK_WITHIN = 32 << 20  # bytes from the start in which a log must name its rank


def event_number(log: int, number: int) -> int:
    """Number of an event in the recording."""
    return log << _LOG_SHIFT | number


def split_number(event: int) -> tuple[int, int]:
    """Log and number in it."""
    return event >> _LOG_SHIFT, event & ((1 << _LOG_SHIFT) - 1)


class State:
    """All records of one recording.

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
        self.break_at: dict[tuple[str, int], GraphBreak] = {}  # the first row of each line
        self.break_in: set[tuple[int, str, str]] = set()  # first event of a row, "id" or "key", what the row has of it
        self.recompiles: list[Recompile] = []
        self.recompile_of: dict[str, Recompile] = {}
        self.searched: dict[int, int] = {}  # by log: offset up to which automatic dynamism was looked for
        self.limit_hits: dict[str, LimitHit] = {}
        self.failures: dict[tuple[str, bool], Failure] = {}
        self.artifacts: list[Artifact] = []
        self.cache_events: list[CacheEvent] = []
        self.launches: dict[tuple[str, int, int], Launch] = {}
        self.session_events: list[tuple[Process, str, Any]] = []
        self.torch_version: str | None = None
        self.python_version: str | None = None
        self.notes: list[str] = []

    def process(self, log: int, event: Event) -> Process:
        """The process that wrote an event."""
        return self.processes.get((log, event.process)) or self._new_process(log, event)

    def slot(self, process: Process, event: Event, *, begin: bool = False) -> Slot | None:
        """The slot of an event's compile id; None outside a compile.

        Args:
            process: Who wrote the event.
            event: The event.
            begin: The event begins a compile: where the id's last use is over, it begins anew.
        """
        triple = triple_of(event.envelope)
        attempt = attempt_of(event.envelope) or 0
        if triple[1] is None:
            return None
        slot = process.slots.get(triple)
        if slot is None or (begin and (slot.ended or (slot.started and attempt <= max(slot.attempts, default=-1)))):
            slot = Slot(base_id(*triple), slot.use + 1 if slot else 1, event.number)
            process.slots[triple] = slot
            process.by_base.setdefault(slot.base, []).append(slot)
            self.slot_of[process.prefix + with_use(slot.base, slot.use)] = slot
        return slot

    def attempt(self, process: Process, event: Event, *, begin: bool = False) -> Attempt | None:
        """The attempt that an event belongs to, made where this is its first event; None outside a compile."""
        number = attempt_of(event.envelope)
        slot = self.slot(process, event, begin=begin)
        if slot is None:
            return None
        if number is None:  # logged after the compile (a lazy backward, run-time metrics): belongs to its last attempt
            number = max(slot.attempts, default=0)
        attempt = slot.attempts.get(number)
        if attempt is None:
            attempt = slot.attempts[number] = self._new_attempt(process, slot, number, event)
        return attempt

    def outside(self, process: Process, event: Event, *, begin: bool) -> Attempt | None:
        """The attempt of what is compiled outside any frame and not yet ended; with ``begin`` made where there is none."""
        triple = triple_of(event.envelope)
        if base_id(*triple):
            return None
        slot = process.slots.get(triple)
        if slot is None or slot.ended:
            if not begin:
                return None
            known = process.by_base.setdefault(OUTSIDE, [])
            slot = Slot(OUTSIDE, 1 + sum(other.base == OUTSIDE for other in known), event.number)
            process.slots[triple] = slot
            known.append(slot)
            self.slot_of[process.prefix + with_use(OUTSIDE, slot.use)] = slot
            slot.attempts[0] = self._new_attempt(process, slot, 0, event)
        slot.outside = True
        attempt = slot.last
        if attempt is not None and not attempt.record.function:
            record = attempt.record
            record.function = "ahead of time"
            record.stack = process.stack(event.envelope.get("stack"))
            set_user_line(record)
            record.file, record.line = record.user_file, record.user_line
        return attempt

    def captured(self, process: Process, attempt: Attempt) -> None:
        """A frame of which no start was logged is captured to be compiled ahead of time (``aot_compile``, vLLM).

        Dynamo is done with it when its graph comes; what is then compiled outside any frame is this graph.
        """
        slot = attempt.slot
        if slot.started or slot.ahead:
            return
        slot.ahead = True
        process.slots[None, None, None] = slot
        process.by_base.setdefault(OUTSIDE, []).append(slot)
        if attempt.record.status == "unfinished":
            attempt.record.status = "ok"

    def _new_process(self, log: int, event: Event) -> Process:
        index = self.logs[log]
        rank = rank_of(index.source.path)
        if rank is None:
            rank = numbers.integer(event.envelope.get("rank"), None)
        if rank is None and (named := _RANK.search(index.source.data, 0, _RANK_WITHIN)):
            rank = int(named[1])
        process = Process(log, event.process, rank, Clock(_file_age(index.source.path)))
        # A forked child knows its parent's strings: of the same log, else of one that began before.
        known = list(self.processes.values())[::-1]
        process.parents = [other for other in known if other.log == log]
        process.elders = [other for other in known if other.log != log and other.rank == rank]
        taken = {other.prefix for other in known}
        candidates = itertools.chain(
            [f"r{rank}:" if rank is not None else "", f"p{event.process}:"],
            (f"p{event.process}.{again}:" for again in itertools.count(2)),
        )
        process.prefix = next(prefix for prefix in candidates if prefix not in taken)
        self.processes[log, event.process] = process
        return process

    def _new_attempt(self, process: Process, slot: Slot, number: int, event: Event) -> Attempt:
        if not process.clock.anchored:
            self._anchor(process)
        name = with_use(slot.base + (f"_{number}" if number else ""), slot.use)
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
            copy_frame(record, first.record)
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


def inherit(process: Process, event: Event, record: Compile) -> None:
    """A refused compile has no name and no stack of its own: those of the frame's earlier compiles hold."""
    known = process.frames.get(triple_of(event.envelope)[:2])
    if known is not None and known is not record and not record.function:
        copy_frame(record, known)
    elif not record.user_file:
        set_user_line(record)


def copy_frame(record: Compile, other: Compile) -> None:
    """Take over which frame this is."""
    record.function, record.file, record.line = other.function, other.file, other.line
    record.stack = record.stack or other.stack
    record.user_file, record.user_line, record.user_code = other.user_file, other.user_line, other.user_code


def set_user_line(record: Compile) -> None:
    """The function itself where it is the user's; else what called into the library, which for a stock module is the call site."""
    if is_user_file(record.file) and not is_generated(record.file, record.function):
        record.user_file, record.user_line, record.user_code = record.file, record.line, ""
        return
    own = deepest_user_line(record.stack)
    if own is not None:
        record.user_file, record.user_line, record.user_code = own.file, own.line, own.code
    elif not is_torch_file(record.file):
        record.user_file, record.user_line = record.file, record.line


def text_or_none(value: Any) -> str | None:
    """A non-empty text; None for nothing."""
    return str(value) if value else None


def _file_age(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return 0.0  # a remote log has no age here
