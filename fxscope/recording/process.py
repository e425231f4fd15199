"""One process that wrote into a log: its interned strings, its clock, its compiles by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.recording.records import Compile, Recompile
from fxscope.recording.stages import StageOrder
from fxscope.source import SourceLine
from fxscope.trace.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping


OUTSIDE = "-/-"  # id of what is compiled outside any frame (AOTInductor, export), as tlparse writes it


class Attempt:
    """One attempt, while its events come in.

    Attributes:
        record: What the reader sees.
        order: Tells forward from backward.
        error: Number of the ``dynamo_error`` event, -1 where none came.
        breaks: Break events so far.
        intervals: Unix seconds of what was compiled: the frame, its lazy backward.
        calls: Calls so far, by the process that called.
    """

    __slots__ = ("breaks", "calls", "error", "guards_event", "intervals", "metrics_event", "order", "record", "slot")

    def __init__(self, record: Compile, slot: Slot) -> None:
        self.record = record
        self.slot = slot
        self.order = StageOrder()
        self.error = -1
        self.guards_event = -1
        self.metrics_event = -1
        self.breaks = 0
        self.intervals: list[tuple[float, float]] = []
        self.calls: dict[int, int] = {}


class Slot:
    """All attempts under one compile id of one process.

    Attributes:
        base: The id without an attempt.
        use: How often the id began, counted from 1: after a reset ids come again.
        first: Number in the log of the first event of this use.
        end: Of its last one, where only the order of the log tells (``ahead``).
        ahead: Compiled ahead of time: what is compiled outside any frame belongs to it, until it ends.
        outside: Something was.
    """

    __slots__ = ("ahead", "attempts", "base", "end", "ended", "first", "outside", "started", "use")

    def __init__(self, base: str, use: int, first: int) -> None:
        self.base = base
        self.use = use
        self.first = first
        self.end = 1 << 62
        self.ahead = base == OUTSIDE
        self.outside = False
        self.attempts: dict[int, Attempt] = {}
        self.started = False
        self.ended = False

    @property
    def last(self) -> Attempt | None:
        """The attempt with the highest number."""
        return self.attempts[max(self.attempts)] if self.attempts else None


class Process:
    """One writer of one log.

    Attributes:
        log: Number of the log in the recording.
        pid: Its id as logged.
        rank: From the log's file name, else from its events.
        host: Name of its machine, where our recorder told it.
        torch: Its own version of torch; None where the log does not say.
        closed: Whether our recorder told its end; None where none of ours wrote.
        forked_from: Process that this one forked from, and whose compiled entries it has; None for none.
        graphs: Attempts by the number that our recorder gave to what they handed to a backend.
        prefix: Of the keys of its compiles, ``""``, ``"r1:"`` or ``"p4242:"``.
    """

    def __init__(self, log: int, pid: int, rank: int | None, clock: Clock) -> None:
        self.log = log
        self.pid = pid
        self.rank = rank
        self.host: str | None = None
        self.torch: str | None = None
        self.closed: bool | None = None
        self.forked_from: int | None = None
        self.prefix = ""
        self.clock = clock
        self.strings: dict[int, str] = {}
        self.parents: list[Process] = []
        self.elders: list[Process] = []
        self.slots: dict[tuple[int | None, int | None, int | None], Slot] = {}
        self.by_base: dict[str, list[Slot]] = {}
        self.frames: dict[tuple[int | None, int | None], Compile] = {}
        self.graphs: dict[int, Attempt] = {}
        self._undated: list[tuple[Compile | Recompile, bytes]] = []
        self._lines: dict[tuple[Any, ...], SourceLine] = {}

    def date(self, record: Compile | Recompile, when: bytes) -> None:
        """Set when a record began, again once the clock is anchored."""
        record.started = self.clock.unix(when)
        if not self.clock.anchored:
            self._undated.append((record, when))

    def anchor(self, when: bytes, unix: float) -> None:
        """Anchor the clock, if nothing has, and date what came before."""
        if self.clock.anchored:
            return
        self.clock.anchor(when, unix)
        for record, printed in self._undated:
            record.started = self.clock.unix(printed)
        self._undated.clear()

    def intern(self, value: Any) -> None:
        """Take in a ``str`` event: a string and its number."""
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
            self.strings[value[1]] = value[0]

    def entry_in_use(self, entry: str) -> str:
        """The id of a cache entry, with ``#2`` where this process began it anew."""
        slots = self.by_base.get(entry)
        return with_use(entry, slots[-1].use) if slots else entry

    def key_at(self, envelope: Mapping[str, Any], number: int) -> str | None:
        """Key of the compile that an event belongs to, by its envelope and its number in the log; None outside one."""
        triple = triple_of(envelope)
        base = base_id(*triple)
        if not base:
            return self._outside_at(number)
        use = 1
        for slot in self.by_base.get(base, ()):
            if slot.first <= number:
                use = slot.use
        attempt = attempt_of(envelope) if triple[1] is not None else None
        return self.prefix + with_use(base + (f"_{attempt}" if attempt else ""), use)

    def _outside_at(self, number: int) -> str | None:
        slots = reversed(self.by_base.get(OUTSIDE, []))
        last = next((slot.last for slot in slots if slot.first <= number <= slot.end), None)
        return None if last is None else self.prefix + last.record.id

    def string(self, number: Any) -> str:
        """An interned string; a forked child looks in its own table first, then in its parent's."""
        if isinstance(number, str):
            return number
        if number in self.strings:
            return self.strings[number]
        late = 0 not in self.strings  # this log does not begin with the table's first string
        for parent in (*self.parents, *(self.elders if late else ())):
            if number in parent.strings:
                return parent.strings[number]
        return "" if number in (None, -1) else f"<string {number}>"

    def stack(self, frames: Any) -> tuple[SourceLine, ...]:
        """A logged stack, outermost first; frames that are no frames are left out."""
        return tuple(
            self._line(frame) for frame in (frames if isinstance(frames, list) else ()) if isinstance(frame, dict)
        )

    def _line(self, frame: Mapping[str, Any]) -> SourceLine:
        number, code = frame.get("line"), frame.get("loc")
        key = (frame.get("filename"), number, frame.get("name"), code)
        try:
            known = self._lines.get(key)
        except TypeError:  # a list where a name should be: no key, but still a line
            key, known = (None, None, None, None), None
        if known is None:
            known = SourceLine(
                file=self.string(key[0]),
                line=_small(number) or 0,
                function=str(frame.get("name") or ""),
                code=str(code or "").strip(),
            )
            if any(key) and not known.file.startswith("<string "):
                self._lines[key] = known
        return known

    def full_path(self, short: str) -> str:
        """The interned path that ends like a shortened one (``models/gpt2/modeling_gpt2.py``), else the short one."""
        tail = "/" + short.lstrip("/")
        for table in (self, *self.parents):
            for path in table.strings.values():
                if path.endswith(tail):
                    return path
        return short


def base_id(autograd: int | None, frame: int | None, compile_: int | None) -> str:
    """A compile id in PyTorch's notation (``torch._guards.CompileId.__str__``): ``0/1``, ``!2/0/1``, ``!2``."""
    parts = [] if autograd is None else [f"!{autograd}"]
    if frame is not None:
        parts.append(f"{frame}/{0 if compile_ is None else compile_}")
    return "/".join(parts)


Triple = tuple["int | None", "int | None", "int | None"]


def triple_of(envelope: Mapping[str, Any]) -> Triple:
    """Compiled autograd id, frame id and frame compile id of an event; the last is 0 where a frame has none."""
    autograd = _small(envelope.get("compiled_autograd_id"))
    frame = _small(envelope.get("frame_id"))
    return autograd, frame, None if frame is None else _small(envelope.get("frame_compile_id")) or 0


def attempt_of(envelope: Mapping[str, Any]) -> int | None:
    """Attempt of an event; None where it was logged outside one."""
    return _small(envelope.get("attempt"))


def _small(value: Any) -> int | None:
    """An id: a number that can be one; None for anything else, for a damaged log may hold anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def with_use(name: str, use: int) -> str:
    """An id with the number of its use, where that is not the first: ``0/0#2``."""
    return name if use == 1 else f"{name}#{use}"


def without_attempt(name: str) -> str:
    """An id without its attempt: ``0/0_1#2`` -> ``0/0#2``."""
    base, hash_, use = name.partition("#")
    return base.split("_", 1)[0] + hash_ + use
