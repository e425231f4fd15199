"""The event model: when each instruction starts and ends on a machine.

An instruction starts when its queue's engine is free, it has been dispatched (in program order, into queues of finite
depth), the tokens it takes have been given, the channels it fills have room, and, for a transfer, the memory's bus is
free and a request slot is open. Of the three queue heads the one that can start first goes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fxscope.errors import CheckFailed
from fxscope.targets.npu.isa import QUEUES, Instruction
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.operands import steps
from fxscope.targets.npu.queues import CHANNELS, Queues, pops, pushes
from fxscope.targets.npu.timing import Cost, cost, fetch_cycles


class Timing(msgspec.Struct, kw_only=True):
    """What the event model found; cycles, one entry per instruction.

    Attributes:
        starts: When each instruction began; ``ends``: when its engine was free again; ``done``: when its result was there.
        total: Cycles of the program.
        busy: Cycles in which each engine worked; ``l``, ``x``, ``s``.
        lower: max over engines and memories of busy, and ``upper``: everything one after the other; total lies between.
        fetched: Bytes of instructions.
    """

    starts: list[float]
    ends: list[float]
    done: list[float]
    costs: list[Cost]
    queues: list[str]
    total: float
    busy: dict[str, float]
    lower: float
    upper: float
    fetched: int
    moved: dict[str, int]


class _Head(NamedTuple):
    """What the model needs of one instruction, looked up once."""

    queue: int
    cost: Cost
    pops: tuple[int, ...]
    pushes: tuple[int, ...]
    op: str
    wait: tuple[int, int] | None  # queue, sequence number that must be done


def _heads(instructions: Sequence[Instruction], machine: Machine) -> list[_Head]:
    channel = {pair: number for number, pair in enumerate(CHANNELS)}
    number = {queue: index for index, queue in enumerate(QUEUES)}
    cache: dict[tuple[object, ...], Cost] = {}
    heads = []
    seen = [0, 0, 0]
    none: tuple[int, ...] = ()
    for step in steps(instructions, machine):
        instruction, queue = step.instruction, step.queue
        op, a = instruction.op, instruction.args
        key: tuple[object, ...]
        if op in ("ld", "st"):
            outside = step.reads[0] if op == "ld" else step.writes[0]
            key = (
                op,
                outside.memory == "c",
                outside.dtype,
                outside.rows,
                outside.cols,
                outside.row_pitch,
                outside.col_pitch,
            )
        elif op == "gemm":
            key = (op, a["t"], a["n"], a["k"], a["dtype"])
        elif op in ("ewu", "ewb", "ewi"):
            key = (op, a["fn"], a["rows"], a["cols"])
        else:
            key = ()
        found = cache.get(key) if key else None
        if found is None:
            found = cost(step, machine)
            if key:
                cache[key] = found
        wait = None
        if op == "wait":
            on = number[str(a["on"])]
            wait = (on, seen[on] - int(a["outstanding"]) - 1)
        takes = (
            tuple(channel[pair] for pair in pops(instruction, queue))
            if instruction.pop_prev or instruction.pop_next
            else none
        )
        gives = (
            tuple(channel[pair] for pair in pushes(instruction, queue))
            if instruction.push_prev or instruction.push_next
            else none
        )
        heads.append(_Head(number[queue], found, takes, gives, op, wait))
        seen[number[queue]] += 1
    return heads


class _Model:
    """State of the event model: engines, queues, channels, buses, weights."""

    def __init__(self, heads: list[_Head], machine: Machine) -> None:
        size = len(heads)
        self.heads, self.size = heads, size
        self.fetch = fetch_cycles(machine)
        self.order: list[list[int]] = [[], [], []]
        self.position = []
        for index, head in enumerate(heads):
            self.position.append(len(self.order[head.queue]))
            self.order[head.queue].append(index)
        self.depth = (machine.queues.load, machine.queues.execute, machine.queues.store)
        self.outstanding, self.limit = machine.queues.outstanding, machine.queues.tokens
        self.starts, self.ends, self.done = [0.0] * size, [0.0] * size, [0.0] * size
        self.dispatched = [0.0] * size
        self.pointer, self.free = [0, 0, 0], [0.0, 0.0, 0.0]
        self.given: list[list[float]] = [[] for _ in CHANNELS]
        self.taken: list[list[float]] = [[] for _ in CHANNELS]
        self.bus = {"dram": 0.0, "chip": 0.0}
        self.transfers: list[list[float]] = [[], [], []]
        self.result_ready = self.flip = self.loaded = 0.0
        self.warm = False
        self.weight_load = machine.array.rows
        self.shadowed = machine.array.shadow and machine.array.dataflow != "os"
        self.next_dispatch, self.clock = 0, 0.0

    def dispatch(self) -> None:
        """Send instructions to their queues, in program order, while there is room."""
        while self.next_dispatch < self.size:
            index = self.next_dispatch
            queue = self.heads[index].queue
            place = self.position[index] - self.depth[queue]
            if place >= 0:
                if place >= self.pointer[queue]:
                    return  # its queue is full until an older instruction starts
                self.clock = max(self.clock, self.starts[self.order[queue][place]])
            self.clock += self.fetch
            self.dispatched[index] = self.clock
            self.next_dispatch += 1

    def operands_ready(self, queue: int) -> float | None:
        """When the head of a queue has its tokens and room for those it gives; None where that is not known yet."""
        order, pointer = self.order[queue], self.pointer[queue]
        if pointer >= len(order) or order[pointer] >= self.next_dispatch:
            return None
        index = order[pointer]
        head = self.heads[index]
        time = self.dispatched[index]
        for channel in head.pops:
            given, number = self.given[channel], len(self.taken[channel])
            if len(given) <= number:
                return None
            if given[number] > time:
                time = given[number]
        for channel in head.pushes:
            full = len(self.given[channel]) - self.limit
            if full >= 0:
                taken = self.taken[channel]
                if full >= len(taken):
                    return None
                if taken[full] > time:
                    time = taken[full]
        if head.wait is not None and head.wait[1] >= 0:
            other, number = head.wait
            if number >= self.pointer[other]:
                return None
            time = max(time, self.done[self.order[other][number]])
        return time

    def start(self, queue: int, ready: float) -> float:
        """When the head of a queue can start, its engine and the memory's bus free."""
        cost = self.heads[self.order[queue][self.pointer[queue]]].cost
        time = max(ready, self.free[queue])
        if cost.memory:
            time = max(time, self.bus[cost.memory])
            flying = self.transfers[queue]
            if len(flying) >= self.outstanding:
                time = max(time, flying[-self.outstanding])
        return time

    def issue(self, queue: int, start: float, ready: float) -> None:
        """Start the head of a queue."""
        index = self.order[queue][self.pointer[queue]]
        head = self.heads[index]
        cost = head.cost
        if queue == 1:
            start = self._execute(head, start, ready)
        self.starts[index] = start
        self.ends[index] = self.free[queue] = end = start + cost.busy
        self.done[index] = finish = end + cost.latency
        if queue == 1:
            self.result_ready = max(self.result_ready, finish)
        if cost.memory:
            self.bus[cost.memory] = end
            self.transfers[queue].append(finish)
        for channel in head.pops:
            self.taken[channel].append(start)
        for channel in head.pushes:
            self.given[channel].append(finish)
        self.pointer[queue] += 1

    def _execute(self, head: _Head, start: float, ready: float) -> float:
        """Start of an instruction of the execute engine, with weights and results taken into account."""
        if head.op == "ldw":
            # The shadow registers are free once the fold before has taken its weights.
            begin = max(self.flip, ready)
            self.loaded = begin + (self.weight_load if self.warm else 2 * self.weight_load - 1)
            return max(start, begin)
        if head.cost.fold:
            if head.op == "gemm":
                load = self.weight_load if self.warm else 2 * self.weight_load - 1
                self.loaded = max(self.flip, ready) + load
            if self.shadowed or head.op == "mm":
                start = max(start, self.loaded)
            self.flip = start + (head.cost.folds - 1) * head.cost.fold
            self.warm = True
            return start
        # A vector instruction reads results: it waits until the array has drained.
        return start if head.cost.folds else max(start, self.result_ready)


def simulate(instructions: Sequence[Instruction], machine: Machine) -> Timing:
    """Run the event model over a flat program.

    Raises:
        CheckFailed: The program deadlocks; the diagnosis names each queue's head.
    """
    heads = _heads(instructions, machine)
    model = _Model(heads, machine)
    for _ in range(len(heads)):
        model.dispatch()
        best, best_start, best_ready = -1, 0.0, 0.0
        for queue in (0, 1, 2):
            ready = model.operands_ready(queue)
            if ready is None:
                continue
            start = model.start(queue, ready)
            if best < 0 or start < best_start:
                best, best_start, best_ready = queue, start, ready
        if best < 0:
            raise CheckFailed(_deadlock(instructions, machine))
        model.issue(best, best_start, best_ready)
    return _timing(heads, model.starts, model.ends, model.done, machine)


def stretches(instructions: Sequence[Instruction], timing: Timing) -> dict[str, float]:
    """Cycles between the ``pmu`` marks of each id (``begin`` to ``end``), and when each ``snapshot`` was taken.

    Raises:
        CheckFailed: An end without a begin.
    """
    begun: dict[int, float] = {}
    out: dict[str, float] = {}
    for index, (instruction, start) in enumerate(zip(instructions, timing.starts, strict=True)):
        if instruction.op != "pmu":
            continue
        number, event = int(instruction.args["id"]), str(instruction.args["event"])
        if event == "begin":
            begun[number] = start
        elif event == "snapshot":
            out[f"snapshot {number} at instruction {index}"] = start
        elif number in begun:
            out[f"stretch {number}"] = out.get(f"stretch {number}", 0.0) + start - begun.pop(number)
        else:
            raise CheckFailed(f"instruction {index}: pmu ends stretch {number}, which never began")
    return out


def _timing(
    heads: Sequence[_Head], starts: list[float], ends: list[float], done: list[float], machine: Machine
) -> Timing:
    busy = dict.fromkeys(QUEUES, 0.0)
    moved = {"dram": 0, "chip": 0}
    serial = 0.0
    for head in heads:
        busy[QUEUES[head.queue]] += head.cost.busy
        serial += head.cost.busy + head.cost.latency
        if head.cost.fold or head.op == "ldw":
            serial += 2 * machine.array.rows - 1
        if head.cost.memory:
            moved[head.cost.memory] += head.cost.bytes
    bus = max((sum(head.cost.busy for head in heads if head.cost.memory == name) for name in moved), default=0)
    return Timing(
        starts=starts,
        ends=ends,
        done=done,
        costs=[head.cost for head in heads],
        queues=[QUEUES[head.queue] for head in heads],
        total=max(done, default=0.0),
        busy=busy,
        lower=max(*busy.values(), bus),
        upper=serial + fetch_cycles(machine) * len(heads),
        fetched=16 * len(heads),
        moved=moved,
    )


def _deadlock(instructions: Sequence[Instruction], machine: Machine) -> str:
    queues = Queues(instructions, machine)
    while ready := queues.ready():
        queues.issue(ready[0])
    try:
        queues.require_finished()
    except CheckFailed as error:
        return str(error)
    return "deadlock"
