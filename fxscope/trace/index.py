"""An index over one log: where each event lies, what it is and who wrote it. Payloads stay on disk."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Protocol

from fxscope.trace.folder import may_have_index
from fxscope.trace.line import (
    CONTEXT_KEYS,
    HEADER,
    NEXT_LINE,
    BadEnvelope,
    decode_envelope,
    event_name,
    payload_matches,
    payload_text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fxscope.trace.bytesource import ByteSource
    from fxscope.trace.keep import Kept

# Frequent events that no record needs while the log is read: indexed, decoded only when somebody asks for them.
LAZY = frozenset(
    {
        "chromium_event",
        "describe_storage",
        "describe_tensor",
        "describe_source",
        "create_symbol",
        "guard_added_fast",
        "guard_added",
        "expression_created",
        "symbolic_shape_specialization",
        "create_unbacked_symbol",
        "propagate_real_tensors",
        "propagate_real_tensors_provenance",
        "dump_file",
    }
)
_MOST_ON_ONE_LINE = 8  # broken events that are looked behind, so that a line of nothing else costs no more
_HELD = 32 << 20  # bytes of a log that are held while it is read
_AROUND = 1 << 16  # bytes that the kernel maps around one that is touched
_NAMED = frozenset(name.encode() for name in LAZY)


class Event:
    """One event, decoded.

    Attributes:
        number: Its place in the log, 0-based.
        name: Of the event, e.g. ``dynamo_start``.
        process: Process id of the writer (a thread id in logs of early 2024).
        when: Month, day and time of day as the log prints them, ``b"1129 11:59:38.304000"``; local time, no year.
        envelope: The decoded JSON.
    """

    __slots__ = ("envelope", "name", "number", "process", "when")

    def __init__(self, number: int, name: str, process: int, when: bytes, envelope: dict[str, Any]) -> None:
        self.number = number
        self.name = name
        self.process = process
        self.when = when
        self.envelope = envelope

    @property
    def value(self) -> Any:
        """What the event's own key holds."""
        return self.envelope.get(self.name)


class Sink(Protocol):
    """Takes the events of a log as they are read."""

    def take(self, index: LogIndex, event: Event) -> None:
        """One event that is not LAZY, in the order of the log."""


class Nobody:
    """A sink for who wants the index only."""

    def take(self, index: LogIndex, event: Event) -> None:
        """Nothing."""


class LogIndex:
    """Offsets of every event of one log, in arrays of a few bytes per event.

    Attributes:
        source: The bytes.
        names: Event names by their number in ``kinds``.
        foreign: Lines that are no trace lines.
        torn: Trace lines whose envelope cannot be decoded.
        notes: What was skipped, one line each, the first twenty.
        kept_at: Where an index of this log is kept on disk; None where there is none.
        kept: The index that was kept, where it could be used.
        disused: Why it cannot be used, in one line; "" where nothing is wrong.
    """

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.names: list[str] = []
        self.starts = array("q")
        self.ends = array("q")
        self.kinds = array("H")
        self.foreign = 0
        self.torn = 0
        self.notes: list[str] = []
        self.took_torn_tail = False
        self.kept_at: Path | None = None
        self.kept: Kept | None = None
        self.disused = ""
        self._kind_of: dict[bytes, int] = {}
        self._touched = 0  # bytes since pages were last let go
        self._tail = 0  # offset of the first line that is not yet taken in

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def behind(self) -> int:
        """Bytes that are not yet taken in: an unfinished last event, or what was appended since."""
        return len(self.source) - self._tail

    def count(self, name: str) -> int:
        """Events of one name."""
        kind = self._kind_of.get(name.encode())
        return 0 if kind is None else self.kinds.count(kind)

    def latest(self, name: str, among: int = 64) -> int | None:
        """Number of the last event of one name among the last few; None where there is none."""
        kind = self._kind_of.get(name.encode())
        recent = range(len(self.kinds) - 1, max(-1, len(self.kinds) - 1 - among), -1)
        return next((i for i in recent if self.kinds[i] == kind), None)

    def numbers(self, name: str, begin: int = 0, end: int | None = None) -> list[int]:
        """Numbers of the events of one name, from ``begin`` to before ``end``."""
        kind = self._kind_of.get(name.encode())
        return [] if kind is None else [i for i, k in enumerate(self.kinds[begin:end], begin) if k == kind]

    def scan(self, sink: Sink, *, final: bool) -> int:
        """Take in every event that lies beyond what was read; how many there were.

        Args:
            sink: Gets each event that is not LAZY.
            final: Nobody writes any more: an unfinished last event is taken (where its envelope is whole) or noted as
                torn. Otherwise it waits for its rest.
        """
        data = self.source.data
        size = len(data)
        position = held = self._tail
        before = len(self.starts)
        search = NEXT_LINE.search
        match = HEADER.match
        while position < size:
            found = search(data, position)
            end = found.end() if found else size
            if end >= size and not final and not self._whole(position, size):
                break
            header = match(data, position, end)
            if header is None:
                self._skip(sink, position, end)
            elif header[5] in _NAMED and end < size:
                self._add(header[5], position, end)
            else:
                self._take(sink, position, end, header)
            position = end
            if position - held > _HELD:
                self.source.let_go(held, position)
                held = position
        if final and size and size > self._tail and not self._ends_whole(size):
            self.took_torn_tail = True
        self._tail = position
        return len(self.starts) - before

    def resume(self, sink: Sink) -> int:
        """Take in, before the first scan, what an index that was kept on disk covers; the number of events."""
        if self._tail or not may_have_index(self.source.path):
            return 0
        from fxscope.trace.keep import resume  # few logs have one

        return resume(self, sink)

    def renew(self) -> None:
        """Keep anew an index that could not be used, or whose log has grown. Of a log without one none is kept."""
        if self.kept_at is not None:
            from fxscope.trace.keep import renew

            renew(self)

    def replay(self, kept: Kept, sink: Sink) -> int:
        """Take in, first of all, the events that a kept index names (checked by ``fxscope.trace.keep``); how many."""
        starts, ends, kinds = kept.arrays()
        self.names = list(kept.names)
        self._kind_of = {name.encode(): kind for kind, name in enumerate(self.names)}
        done = 0
        for number in kept.eager():
            # In steps, for a sink sees of the index what a scan would have found until there.
            self.starts.extend(starts[done : number + 1])
            self.ends.extend(ends[done : number + 1])
            self.kinds.extend(kinds[done : number + 1])
            done = number + 1
            try:
                sink.take(self, self.event(number))
            except BadEnvelope as error:
                self.note(f"{self.source.path}: skipped a broken event at byte {starts[number]}: {error}")
        self.starts.extend(starts[done:])
        self.ends.extend(ends[done:])
        self.kinds.extend(kinds[done:])
        self.foreign, self.torn, self._tail = kept.foreign, kept.torn, kept.size
        self.notes += kept.notes
        return len(starts)

    def behind_last(self) -> tuple[int, int, int]:
        """Foreign lines, torn events and notes that come from the last event on."""
        rest = LogIndex(self.source)
        rest._tail = self.starts[-1] if len(self) else 0
        rest.scan(Nobody(), final=True)
        return rest.foreign, rest.torn, len(rest.notes)

    def event(self, number: int) -> Event:
        """Decode one event again.

        Raises:
            BadEnvelope: A LAZY event whose envelope is broken.
        """
        data = self.source.data
        start = self.starts[number]
        self._touch(0)
        header = HEADER.match(data, start) if self.source.reaches(self.ends[number]) else None
        if header is None:
            raise BadEnvelope("the log changed under the reader")
        stop = data.find(b"\n", header.end(), self.ends[number])
        envelope = decode_envelope(bytes(data[header.start(5) - 2 : stop if stop >= 0 else self.ends[number]]))
        name = self.names[self.kinds[number]]
        return Event(number, name, int(header[4]), header[2] + b" " + header[3], envelope)

    def text(self, number: int, most: int | None = None) -> str:
        """Payload of one event, "" where it has none; with ``most``, its first bytes only."""
        end = self.ends[number]
        if not self.source.reaches(end):
            self.note(f"{self.source.path} was cut while it was read; open it again")
            return ""
        stop = self.source.data.find(b"\n", self.starts[number], end)
        if stop < 0:
            return ""
        self._touch(end - stop)
        return payload_text(self.source.data, stop + 1, end if most is None else min(end, stop + 1 + most))

    def mentioning(self, numbers: list[int], text: bytes) -> list[int]:
        """Those of these events, given in order, that hold these bytes as they are, payload included."""
        if not numbers or not self.source.reaches(self.ends[numbers[-1]]):
            return []
        found = []
        for number in numbers:
            start, end = self.starts[number], self.ends[number]
            self._touch(end - start)
            if self.source.data.find(text, start, end) >= 0:
                found.append(number)
        return found

    def when(self, number: int) -> bytes:
        """Printed time of one event, as in ``Event.when``."""
        header = HEADER.match(self.source.data, self.starts[number])
        return header[2] + b" " + header[3] if header else b""

    def size(self, number: int) -> int:
        """Bytes of one payload as it lies in the log."""
        stop = self.source.data.find(b"\n", self.starts[number], self.ends[number])
        return 0 if stop < 0 else max(0, self.ends[number] - stop - 3)

    def _touch(self, size: int) -> None:
        """Count what is read here and there, and let go of it before it is the whole log."""
        self._touched += size + _AROUND
        if self._touched > _HELD:
            self.source.let_go(0, self._tail)
            self._touched = 0

    def _add(self, name: bytes, start: int, end: int) -> int:
        kind = self._kind_of.get(name)
        if kind is None:
            if len(self.names) >= 0xFFFF:  # only garbage has so many; count the rest as one
                name = b"?"
                kind = self._kind_of.get(name)
            if kind is None:
                kind = self._kind_of[name] = len(self.names)
                self.names.append(name.decode("utf-8", "replace"))
        self.starts.append(start)
        self.ends.append(end)
        self.kinds.append(kind)
        return len(self.starts) - 1

    def _take(self, sink: Sink, start: int, end: int, header: Any) -> None:
        data = self.source.data
        stop = data.find(b"\n", header.end(), end)
        stop = stop if stop >= 0 else end
        for attempt in range(_MOST_ON_ONE_LINE):
            try:
                envelope = decode_envelope(bytes(data[header.start(5) - 2 : stop]))
                break
            except BadEnvelope as error:
                self.torn += 1
                self.note(f"{self.source.path}: skipped a broken event at byte {start}: {error}")
            # A line that was torn may have the next one right behind it.
            header = HEADER.search(data, start + 1, stop) if attempt + 1 < _MOST_ON_ONE_LINE else None
            if header is None:
                return
            start = header.start()
        name: str = header[5].decode("utf-8", "replace")
        if name in CONTEXT_KEYS:
            name = event_name(envelope)
        number = self._add(name.encode(), start, end)
        if name not in LAZY:
            sink.take(self, Event(number, name, int(header[4]), header[2] + b" " + header[3], envelope))

    def _skip(self, sink: Sink, start: int, end: int) -> None:
        """A line that is none of ours, unless a launcher or a progress bar put something before ours."""
        late = HEADER.search(self.source.data, start + 1, end)
        if late is not None:
            self._take(sink, late.start(), end, late)
        elif self.source.data[start:end].strip():
            self.foreign += 1

    def note(self, line: str) -> None:
        """Keep a line about what was skipped; a broken log could give thousands, the first twenty say enough."""
        if len(self.notes) < 20:
            self.notes.append(line)

    def _whole(self, start: int, size: int, *, ended: bool = True) -> bool:
        """Whether the last event of the log is complete: its payload as long as it should be and, with ``ended``, a newline."""
        if ended and self.source.data[size - 1 : size] != b"\n":
            return False
        header = HEADER.match(self.source.data, start, size)
        if header is None:
            return True
        stop = self.source.data.find(b"\n", header.end(), size)
        stop = stop if stop >= 0 else size
        try:
            envelope = decode_envelope(bytes(self.source.data[header.start(5) - 2 : stop]))
        except BadEnvelope:
            return ended  # a line that ended gets no more; one that did not is torn
        digest = envelope.get("has_payload")
        return digest is None or payload_matches(payload_text(self.source.data, stop + 1, size), digest)

    def _ends_whole(self, size: int) -> bool:
        return not len(self.starts) or self._whole(self.starts[-1], size, ended=False)
