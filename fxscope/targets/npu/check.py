"""Proof that a program is legal before it runs: ranges, alignment, weights, tokens, races, uninitialised reads.

Order between queues is known only through tokens and waits. Each instruction gets a vector clock (how many instructions
of each queue must have finished before it starts); two accesses of different queues to one line or word, one of them
a write, are a race unless the later one's clock covers the earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from fxscope.errors import CheckFailed
from fxscope.targets.npu.assembly import line
from fxscope.targets.npu.isa import DTYPE_BYTES, QUEUES
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.operands import ACC, SPAD, Block, Step, steps
from fxscope.targets.npu.program import Program
from fxscope.targets.npu.queues import CHANNELS, Queues, pops, pushes

Clock = dict[str, int]
_Entries = Any  # np.ndarray of int32; numpy has no types for mypy here
_GRANULE = 4  # bytes of main memory that one shadow entry stands for


def verify(program: Program, machine: Machine, *, limit: int = 1) -> None:
    """Prove the program legal.

    Args:
        program: Flat program with the sizes of its regions.
        machine: Where it is to run.
        limit: How many problems to collect before giving up.

    Raises:
        CheckFailed: Each problem with its instruction, operands, queue state and source line.
    """
    problems: list[str] = []
    all_steps = list(steps(program.instructions, machine))
    sizes = {SPAD: machine.local.scratchpad, ACC: machine.local.accumulator, **program.regions}
    for step in all_steps:
        problems += _static(step, program, machine, sizes)
        if step.instruction.op == "halt" and step.index != len(all_steps) - 1:
            problems.append(f"unreachable: {program.where(step.index + 1)} comes after halt")
        if len(problems) >= limit:
            break
    if not problems:
        problems = list(_ordering(program, machine, all_steps, limit))
    if problems:
        raise CheckFailed("; ".join(problems[:limit]))


def _static(step: Step, program: Program, machine: Machine, sizes: dict[str, int]) -> Iterable[str]:
    """Addresses of one instruction."""
    for block in (*step.reads, *step.writes):
        size = sizes[block.memory]
        if block.start >= 0 and block.end <= size and block.start % DTYPE_BYTES[block.dtype] == 0:
            continue
        name, text = program.where(step.index), line(step.instruction)
        if block.start < 0 or block.end > size:
            where = f"bytes {block.start:#x} to {block.end:#x} of {block.memory}"
            yield f"out of range: {name} touches {where}, which has {size:#x} bytes [{text}]"
        if block.start % DTYPE_BYTES[block.dtype]:
            yield f"unaligned: {name} reads {block.dtype} at byte {block.start:#x} of {block.memory} [{text}]"
    yield from _fields(step, program, machine)


def _fields(step: Step, program: Program, machine: Machine) -> Iterable[str]:
    """What the operands of one instruction cannot be, wherever they lie."""
    window, op, a = step.window, step.instruction.op, step.instruction.args
    if window is None and op not in ("ldw", "mm", "red"):
        return
    name, text = program.where(step.index), line(step.instruction)
    if op == "mm" and step.weights is None:
        yield f"no weights: {name} multiplies before any ldw whose weights were flipped in [{text}]"
    elif op == "mm" and step.weights and step.weights[0] != a["k"]:
        yield f"wrong weights: {name} multiplies {a['k']} columns by weights of {step.weights[0]} rows [{text}]"
    if op == "red" and a["fn"] == "mean" and a["acc"]:
        yield f"impossible reduction: {name} adds a mean to a mean [{text}]"
    if window and 0 in (window.channels, window.owidth, window.kh, window.kw, window.up_h, window.up_w):
        yield f"impossible window: {name} has a zero in x.channels, x.owidth, x.kernel or x.up [{text}]"
    if window and window.channels and window.k0 + window.k > window.kh * window.kw * window.channels:
        limit = window.kh * window.kw * window.channels
        yield f"out of range: {name} gathers columns to {window.k0 + window.k} of a window of {limit} [{text}]"
    if op == "ldw":
        k, n = a["k"], a["n"]
        if int(k) > machine.array.rows or int(n) > machine.array.cols:
            yield f"out of range: {name} loads {k}x{n} weights into a {machine.array.rows}x{machine.array.cols} array"


class _Shadow:
    """Who touched each line or word last, per queue; 0 is nobody, n + 1 is the queue's instruction n."""

    def __init__(self, entries: int) -> None:
        self.writes: dict[str, _Entries] = {queue: np.zeros(entries, np.int32) for queue in QUEUES}
        self.reads: dict[str, _Entries] = {queue: np.zeros(entries, np.int32) for queue in QUEUES}
        self.initialised: _Entries = np.zeros(entries, np.int32)
        self.touched_by: dict[str, set[str]] = {"r": set(), "w": set()}


class _Checker:
    def __init__(self, program: Program, machine: Machine, all_steps: list[Step]) -> None:
        self.program = program
        self.line_bytes = machine.local.line_bytes
        self.shadows = {SPAD: _Shadow(machine.spad_lines), ACC: _Shadow(machine.acc_lines)}
        for memory in {block.memory for step in all_steps for block in step.writes} - {SPAD, ACC}:
            self.shadows[memory] = _Shadow(-(-program.regions[memory] // _GRANULE))
        self.sequence: dict[str, list[int]] = {
            queue: [] for queue in QUEUES
        }  # queue -> program index by sequence number

    def place(self, block: Block) -> tuple[int, int, int, int, int, bool]:
        """Which shadow entries a block has: first, rows, pitch, columns, their pitch; and whether they are exactly its own."""
        if block.memory in (SPAD, ACC):
            width = -(-block.cols * DTYPE_BYTES[block.dtype] // self.line_bytes)
            pitch = block.row_pitch // self.line_bytes
            return block.start // self.line_bytes, block.rows, pitch, width, 1, True
        size = DTYPE_BYTES[block.dtype]
        if block.row_pitch % _GRANULE == 0 and block.start % _GRANULE == 0:
            pitch, start = block.row_pitch // _GRANULE, block.start // _GRANULE
            if block.col_pitch == size:
                width = -(-block.cols * size // _GRANULE)
                return start, block.rows, pitch, width, 1, block.cols * size % _GRANULE == 0
            if block.col_pitch % _GRANULE == 0:
                return start, block.rows, pitch, block.cols, block.col_pitch // _GRANULE, size == _GRANULE
        start = block.start // _GRANULE
        return start, 1, 0, -(-block.end // _GRANULE) - start, 1, False

    def access(self, step: Step, block: Block, clock: Clock, number: int, write: bool) -> str | None:
        """Check one operand against the shadow and enter it; the problem, if any."""
        shadow = self.shadows.get(block.memory)
        if shadow is None:
            return None  # weights and inputs: nobody writes there while the program runs
        queue = step.queue
        start, rows, pitch, cols, col_pitch, exact = self.place(block)
        joined = col_pitch == 1 and (rows == 1 or pitch == cols)

        def view(entries: _Entries) -> _Entries:
            if joined:
                return entries[start : start + rows * cols]
            return np.ndarray((rows, cols), np.int32, entries.data, 4 * start, (4 * pitch, 4 * col_pitch))

        kinds = (("w", shadow.writes), ("r", shadow.reads)) if write else (("w", shadow.writes),)
        for kind, table in kinds:
            for other in shadow.touched_by[kind]:
                if other == queue:
                    continue
                last = int(view(table[other]).max())
                if last > clock[other]:
                    return self._race(step, block, other, last - 1, write, kind)
        if write:
            view(shadow.writes[queue])[...] = number + 1
            view(shadow.initialised)[...] = 1
            shadow.touched_by["w"].add(queue)
            return None
        known = view(shadow.initialised)
        if exact and step.window is None and not known.all():
            unit = "line" if block.memory in (SPAD, ACC) else "word"
            row = int(np.flatnonzero(known.reshape(-1) == 0)[0]) // max(cols, 1)
            return (
                f"uninitialised: {self.program.where(step.index)} reads row {row} of its {block.rows}x{block.cols} "
                f"operand in {block.memory} before anything wrote that {unit} [{line(step.instruction)}]"
            )
        view(shadow.reads[queue])[...] = number + 1
        shadow.touched_by["r"].add(queue)
        return None

    def _race(self, step: Step, block: Block, other: str, number: int, write: bool, kind: str) -> str:
        earlier = self.sequence[other][number]
        hazard = {(False, "w"): "read after write", (True, "r"): "write after read", (True, "w"): "write after write"}
        return (
            f"race ({hazard[write, kind]}): {self.program.where(step.index)} on queue {step.queue} and "
            f"{self.program.where(earlier)} on queue {other} touch the same part of {block.memory} and no token orders "
            f"them [{line(step.instruction)}] [{line(self.program.instructions[earlier])}]"
        )


def _ordering(program: Program, machine: Machine, all_steps: list[Step], limit: int) -> Iterable[str]:
    """Deadlocks, then races and uninitialised reads in one legal order, found through vector clocks."""
    queues = Queues(program.instructions, machine, program.where)
    checker = _Checker(program, machine, all_steps)
    clocks: dict[str, Clock] = {queue: dict.fromkeys(QUEUES, 0) for queue in QUEUES}
    sent: dict[tuple[str, str], deque[Clock]] = {channel: deque() for channel in CHANNELS}
    before = dict.fromkeys(QUEUES, 0)
    preceding: dict[int, int] = {}
    for index, step in enumerate(all_steps):
        if step.instruction.op == "wait":
            preceding[index] = before[str(step.instruction.args["on"])]
        before[step.queue] += 1
    found = 0
    while ready := queues.ready():
        # Nearest to program order: what a reader expects first is then called the earlier one.
        queue = min(ready, key=queues.head)
        index = queues.issue(queue)
        step = all_steps[index]
        clock = clocks[queue]
        for channel in pops(step.instruction, queue):
            for other, count in sent[channel].popleft().items():
                clock[other] = max(clock[other], count)
        if step.instruction.op == "wait":
            other = str(step.instruction.args["on"])
            clock[other] = max(clock[other], preceding[index] - int(step.instruction.args["outstanding"]))
        number = clock[queue]
        checker.sequence[queue].append(index)
        problems = [checker.access(step, block, clock, number, False) for block in step.reads]
        problems += [checker.access(step, block, clock, number, True) for block in step.writes]
        clock[queue] = number + 1
        for channel in pushes(step.instruction, queue):
            sent[channel].append(dict(clock))
        for problem in problems:
            if problem:
                yield problem
                found += 1
                if found >= limit:
                    return
    try:
        queues.require_finished()
    except CheckFailed as error:
        yield str(error)
