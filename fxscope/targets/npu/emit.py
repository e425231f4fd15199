"""The emitter: appends instructions, sets registers once, and puts in the tokens that the hazards need.

Every local area and every buffer remembers the last write and read of each queue. An instruction that conflicts with
an access of another queue gets a token from it, unless it is ordered after it already (vector clocks). Tokens of a
channel are taken in the order in which they are given, so an edge is only added where it is newer than the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fxscope.errors import UsageError
from fxscope.targets.npu.access import Buffer, View
from fxscope.targets.npu.fields import MAX_SIZE
from fxscope.targets.npu.isa import DTYPE_BYTES, QUEUES, REGISTER_BY_NAME, Instruction
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.program import Debug

_NUMBER = {queue: number for number, queue in enumerate(QUEUES)}
MAX_STRIDE = (1 << 19) - 1


@dataclass(eq=False)
class Place:
    """A stretch of one memory whose accesses are tracked together: local lines, or bytes of a region.

    Attributes:
        low: First line or byte; ``high`` one past the last.
        writes: Sequence number + 1 of the last write of each queue; ``reads`` likewise.
    """

    memory: str
    low: int
    high: int
    writes: list[int] = field(default_factory=lambda: [0, 0, 0])
    reads: list[int] = field(default_factory=lambda: [0, 0, 0])


class Emitter:
    """Builds a flat program. ``claim`` opens places; ``emit`` appends one instruction with its hazards."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.instructions: list[Instruction] = []
        self.debug: list[Debug] = [Debug()]
        self._debug_index: dict[Debug, int] = {}
        self._registers: dict[int, int] = {register.number: register.default for register in REGISTER_BY_NAME.values()}
        self._live: dict[str, list[Place]] = {}
        self._buffers: dict[Buffer, Place] = {}
        self._clock = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
        self._count = [0, 0, 0]
        self._index: tuple[list[int], list[int], list[int]] = ([], [], [])  # sequence number -> program index
        self._snapshots: tuple[list[list[int]], ...] = ([], [], [])
        self.dbg = 0

    def at(self, entry: Debug) -> None:
        """Instructions from now on belong to this debug entry."""
        found = self._debug_index.get(entry)
        if found is None:
            found = len(self.debug)
            if found > 0xFFFF:
                raise UsageError(
                    "island too large: the debug field leads to at most 65535 entries; compile it in parts"
                )
            self._debug_index[entry] = found
            self.debug.append(entry)
        self.dbg = found

    def claim(self, memory: str, low: int, size: int) -> Place:
        """A new place; what overlapped it before is inherited as hazards and forgotten."""
        place = Place(memory, low, low + size)
        kept = []
        for old in self._live.get(memory, []):
            if old.low < place.high and place.low < old.high:
                place.writes = [max(a, b) for a, b in zip(place.writes, old.writes, strict=True)]
                place.reads = [max(a, b) for a, b in zip(place.reads, old.reads, strict=True)]
                # What sticks out keeps its history under its own, smaller places.
                if old.low < place.low:
                    kept.append(Place(memory, old.low, place.low, list(old.writes), list(old.reads)))
                if old.high > place.high:
                    kept.append(Place(memory, place.high, old.high, list(old.writes), list(old.reads)))
            else:
                kept.append(old)
        kept.append(place)
        self._live[memory] = kept
        return place

    def buffer(self, buffer: Buffer) -> Place:
        """The place of a buffer in its region."""
        place = self._buffers.get(buffer)
        if place is None:
            place = self.claim(buffer.region, buffer.offset, buffer.bytes)
            self._buffers[buffer] = place
        return place

    def set_register(self, name: str, value: int) -> None:
        """Write a register unless it holds the value already."""
        register = REGISTER_BY_NAME[name]
        if self._registers[register.number] != value:
            self._registers[register.number] = value
            instruction = Instruction("cfg", {"value": value, "reg": register.number}, self.dbg)
            self._append(instruction, _NUMBER[register.queue])

    def _append(self, instruction: Instruction, queue: int) -> None:
        self._index[queue].append(len(self.instructions))
        self._snapshots[queue].append(self._clock[queue][:])
        self.instructions.append(instruction)
        self._count[queue] += 1
        self._clock[queue][queue] = self._count[queue]

    def emit(
        self, op: str, args: dict[str, int | float | str], queue: str, reads: Sequence[Place], writes: Sequence[Place]
    ) -> None:
        """Append one instruction, with the tokens that its hazards need."""
        number = _NUMBER[queue]
        clock = self._clock[number]
        instruction = Instruction(op, args, self.dbg)
        for step in (1, 2):
            other = (number + step) % 3
            need = 0
            for place in reads:
                need = max(need, place.writes[other])
            for place in writes:
                need = max(need, place.writes[other], place.reads[other])
            if need > clock[other]:
                giver = self.instructions[self._index[other][need - 1]]
                # `other` is the next queue for step 1; seen from there this queue is the previous one.
                if step == 1:
                    giver.push_prev = instruction.pop_next = True
                else:
                    giver.push_next = instruction.pop_prev = True
                snapshot = self._snapshots[other][need - 1]
                for q in range(3):
                    clock[q] = max(clock[q], snapshot[q])
                clock[other] = max(clock[other], need)
        self._append(instruction, number)
        count = self._count[number]
        for place in reads:
            place.reads[number] = count
        for place in writes:
            place.writes[number] = count

    # Transfers

    def transfer(
        self,
        op: Literal["ld", "st"],
        view: View,
        offset: int,
        rows: int,
        cols: int,
        stride: int,
        cstride: int,
        place: Place,
        line: int,
        space: str,
    ) -> None:
        """``ld`` or ``st`` of rows x cols elements at ``offset`` of a view's buffer; strides in elements; large ones are cut."""
        buffer = view.buffer
        width = DTYPE_BYTES[buffer.dtype]
        memory = self.buffer(buffer)
        held = 4 if space == "a" else width
        lines = self.machine.lines(cols, held)
        self.set_register("ld.cstride" if op == "ld" else "st.cstride", cstride if cols > 1 else 1)
        most = 1 if stride > MAX_STRIDE else MAX_SIZE
        for first in range(0, rows, most):
            count = min(most, rows - first)
            args: dict[str, int | float | str] = {
                "region": buffer.region,
                "dtype": buffer.dtype,
                "addr": buffer.offset + (offset + first * stride) * width,
                "row": line + first * lines,
                "rows": count,
                "cols": cols,
                "space": space,
                "stride": stride if count > 1 else 0,
            }
            if op == "ld":
                self.emit(op, args, "l", (memory,), (place,))
            else:
                self.emit(op, args, "s", (place,), (memory,))
