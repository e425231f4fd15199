"""A recording, opened: everything that happened in one run, read from its trace logs, loaded when asked for."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxscope.errors import UnreadableError, UsageError
from fxscope.names import SESSION_FILE
from fxscope.recording.automatic import recompiles_in_time
from fxscope.recording.builder import Builder, event_number, split_number
from fxscope.recording.lookup import find_compile, find_text
from fxscope.recording.session import build_session
from fxscope.recording.session_file import is_live, read_session_file
from fxscope.recording.totals import count_totals, count_unknown
from fxscope.trace.bytesource import ByteSource, allow_files
from fxscope.trace.folder import begin_order, find_logs, list_new
from fxscope.trace.index import LAZY, LogIndex
from fxscope.trace.line import BadEnvelope, payload_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fxscope.recording.process import Process
    from fxscope.recording.records import (
        Artifact,
        CacheEvent,
        Compile,
        Failure,
        GraphBreak,
        GraphText,
        Guard,
        Launch,
        LimitHit,
        Recompile,
        Session,
        ShapeEvent,
        Totals,
    )
    from fxscope.source import SourceLine
    from fxscope.trace.index import Event


class Recording:
    """Records of one run. Attributes are read lazily; ``refresh`` takes in what a live writer has added.

    Make one with ``open_recording`` (``fxscope.open``). A refresh that brings more updates records that were handed out.

    Attributes:
        path: What was opened.
    """

    def __init__(self, path: str | Path, logs: list[str]) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self._name = str(path)
        self._session_file = read_session_file(self._name)
        self._builder = Builder()
        self._paths: list[str] = []
        self._cached: dict[str, Any] = {}
        self._add_logs(logs)
        self._scan()
        for index in self._builder.logs:
            index.renew()

    @property
    def session(self) -> Session:
        """The program that ran."""
        return self._once("session", lambda: build_session(self._name, self._session_file, self._builder))

    @property
    def totals(self) -> Totals:
        """The counts that every front door shows."""
        return self._once("totals", lambda: count_totals(self._builder, sum(self.unknown_events().values())))

    @property
    def compiles(self) -> list[Compile]:
        """One per attempt, in order of time."""
        return self._sorted("compiles", self._builder.compiles)

    @property
    def graph_breaks(self) -> list[GraphBreak]:
        """One per site and kind, most frequent first."""
        rows = self._builder.breaks.values()
        return self._once("graph_breaks", lambda: sorted(rows, key=lambda row: (-row.count, row.events[0])))

    @property
    def recompiles(self) -> list[Recompile]:
        """One per recompile record of the log, in order of time."""
        return self._once("recompiles", lambda: recompiles_in_time(self._builder))

    @property
    def limit_hits(self) -> list[LimitHit]:
        """Frames that ran into the recompile limit, in order of time."""
        return self._sorted("limit_hits", list(self._builder.limit_hits.values()))

    @property
    def failures(self) -> list[Failure]:
        """Compiles that raised."""
        return list(self._builder.failures.values())

    @property
    def artifacts(self) -> list[Artifact]:
        """Everything named that events carried, graphs included, in order of the log."""
        return self._builder.artifacts

    @property
    def launches(self) -> list[Launch]:
        """Calls of compiled entries, where a counter ran: the last count of each."""
        return list(self._builder.launches.values())

    @property
    def cache_events(self) -> list[CacheEvent]:
        """Looks into the compile caches, in order of the log."""
        return self._builder.cache_events

    @property
    def shape_events(self) -> list[ShapeEvent]:
        """Symbolic sizes made, fixed and guarded; decoded at the first call."""
        from fxscope.recording.shapes import read_shape_events

        return self._once("shape_events", lambda: list(read_shape_events(self._builder)))

    def unknown_events(self) -> dict[str, int]:
        """Events whose name this reader does not know, with their counts."""
        return count_unknown(self._builder, self._builder.known | LAZY)

    # one compile

    def find(self, graph_id: str) -> Compile:
        """The compile that ``--graph`` names: a key or an id; without an attempt, the id's last one.

        Raises:
            UsageError: No such id; the message names the nearest ones.
        """
        return find_compile(self._builder, graph_id, self._name)

    def graph(self, compile_: Compile, stage: str = "dynamo", index: int = 0) -> GraphText:
        """The printed graph of one stage.

        Raises:
            UsageError: That compile has no such stage; the message lists those it has.
        """
        return find_text(compile_, stage, index)

    def text(self, event: int) -> str:
        """Payload of one event, read from disk now (never cached whole).

        Raises:
            UsageError: There is no such event.
        """
        index, number = self._located(event)
        return index.text(number)

    def mentions(self, event: int, text: bytes) -> bool:
        """Whether an event, its payload included, holds these bytes as they are."""
        index, number = self._located(event)
        return bool(index.mentioning([number], text))

    def size(self, event: int) -> int:
        """Bytes of the payload of one event as it lies in the log; 0 where it has none."""
        index, number = self._located(event)
        return index.size(number)

    def log_of(self, event: int) -> str:
        """Path or URL of the log that an event lies in."""
        return self._located(event)[0].source.path

    def writers(self) -> Iterator[tuple[Process, LogIndex]]:
        """Every process that wrote, and its log."""
        return ((process, self._builder.logs[process.log]) for process in self._builder.processes.values())

    def intact(self, event: int) -> bool:
        """Whether the payload of an event is what was written: its MD5 is the one in the envelope."""
        decoded = self.event(event)
        digest = decoded.envelope.get("has_payload")
        return digest is None or payload_matches(self.text(event), digest)

    def event(self, event: int) -> Event:
        """One event, decoded now.

        Raises:
            UsageError: There is no such event, or its envelope is broken.
        """
        index, number = self._located(event)
        try:
            return index.event(number)
        except BadEnvelope as error:
            raise UsageError(f"event {event} of {self._name} is broken: {error}") from error

    def stack(self, event: int, frames: Any) -> tuple[SourceLine, ...]:
        """Frames of an event's JSON (``stack``, ``user_stack``) as lines, with the file names that its process interned."""
        return self._process(event).stack(frames)

    def events(self) -> Iterator[tuple[int, str]]:
        """Number and name of every event, log by log."""
        for log, index in enumerate(self._builder.logs):
            for number in range(len(index)):
                yield event_number(log, number), index.names[index.kinds[number]]

    def key_of(self, event: int) -> str | None:
        """Key of the compile that an event belongs to (a compile's own, or ``!2`` for an autograd graph); None outside one."""
        decoded = self.event(event)
        return self._process(event).key_at(decoded.envelope, decoded.number)

    def count(self, name: str) -> int:
        """Events of one name."""
        return sum(index.count(name) for index in self._builder.logs)

    def guards(self, compile_: Compile) -> list[Guard]:
        """Roots of the entry's guard tree, parsed now; empty where none were logged."""
        from fxscope.recording.guards import parse_guard_json, parse_guard_text  # a report never needs them

        attempt = self._builder.by_key.get(compile_.key)
        if attempt is None or attempt.guards_event < 0:
            return []
        index, number = self._located(attempt.guards_event)
        process = self._process(attempt.guards_event)
        if index.names[index.kinds[number]] == "dynamo_guards":
            return parse_guard_json(index.text(number), process.stack)
        return parse_guard_text(index.text(number), process.full_path)

    def metrics(self, compile_: Compile) -> dict[str, Any]:
        """The whole ``compilation_metrics`` of an attempt, configurations and stacks included; {} where none came."""
        attempt = self._builder.by_key.get(compile_.key)
        if attempt is None or attempt.metrics_event < 0:
            return {}
        value = self.event(attempt.metrics_event).value
        return value if isinstance(value, dict) else {}

    def timeline(self) -> Iterator[dict[str, Any]]:
        """Compile phases as Chrome trace events (name, ph, ts in microseconds, dur, pid, tid, args)."""
        from fxscope.recording.timeline import read_timeline

        return read_timeline(self._builder)

    def diagnose(self) -> list[Any]:
        """Findings (``fxscope.diagnosis.findings.Finding``), worst first."""
        return self._diagnosis("diagnose").diagnose(self)

    def _repr_html_(self) -> str:
        """For notebooks: the counts and the findings."""
        return self._diagnosis("html").findings_table(self.diagnose(), self.totals)

    @staticmethod
    def _diagnosis(module: str) -> Any:
        # By name: the diagnosis reads recordings, and data flows one way.
        return importlib.import_module(f"fxscope.diagnosis.{module}")

    # a live recording

    def refresh(self) -> bool:
        """Take in what was appended since; True where anything changed. Costs what is new, not what is old.

        Raises:
            UnreadableError: A log was replaced or cut while it was read.
        """
        changed = False
        if Path(self._name).is_dir():
            new = list_new(self._name, set(self._paths))
            self._add_logs(new)
            changed = bool(new)
            on_disk = read_session_file(self._name)
            if on_disk is not None and on_disk != self._session_file:
                self._session_file = on_disk
                changed = True
        for index in self._builder.logs:
            index.source.grow()
        if any(index.took_torn_tail and index.behind for index in self._builder.logs):
            self._start_over()
            return True
        changed = self._scan() or changed
        if changed:
            self._cached.clear()
        return changed

    def close(self) -> None:
        """Unmap the logs; records stay, payloads can no longer be read."""
        for index in self._builder.logs:
            index.source.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # inside

    def _add_logs(self, paths: list[str]) -> None:
        """Begin these logs, of one rank in order of time, so that a forked child comes after its parent."""
        sources = []
        allow_files(len(self._paths) + len(paths))
        for path in paths:
            self._paths.append(path)
            try:
                sources.append(ByteSource(path))
            except UnreadableError as error:
                if os.path.isfile(self._name):
                    raise
                self._builder.notes.append(str(error))  # one log of a folder: the others are still worth reading
        for source in sorted(sources, key=lambda source: begin_order(source.path, source.data)):
            self._builder.add_log(LogIndex(source))

    def _scan(self) -> bool:
        final, builder = not is_live(self._session_file), self._builder
        return sum(index.resume(builder) + index.scan(builder, final=final) for index in builder.logs) > 0

    def _start_over(self) -> None:
        """Read everything again: an event that was taken as cut off has got its rest after all."""
        paths, self._paths = self._paths, []
        self._builder = Builder()
        self._cached.clear()
        self._add_logs(paths)
        self._scan()

    def _located(self, event: int) -> tuple[LogIndex, int]:
        log, number = split_number(event)
        if not (0 <= log < len(self._builder.logs) and number < len(self._builder.logs[log])):
            raise UsageError(f"no event {event} in {self._name}")
        return self._builder.logs[log], number

    def _process(self, event: int) -> Process:
        log, _ = split_number(event)
        return self._builder.process(log, self.event(event))

    def _sorted(self, name: str, records: list[Any]) -> list[Any]:
        return self._once(name, lambda: sorted(records, key=lambda record: record.started))

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._cached:
            self._cached[name] = make()
        return self._cached[name]


def open_recording(path: str | Path) -> Recording:
    """Open a recording folder, a TORCH_TRACE folder, one log, any of these compressed, or an fsspec URL.

    Raises:
        UnreadableError: There is nothing to read: what, where, and how to mend it.
    """
    logs = find_logs(path)
    recording = Recording(path, logs)
    if not recording.totals.events and not (Path(path) / SESSION_FILE).is_file():
        what = "holds no trace events" if logs else "holds no trace logs"
        raise UnreadableError(
            f"{path} {what}: record with `fxscope run SCRIPT`, or set TORCH_TRACE=DIR and run the program again"
        )
    return recording
