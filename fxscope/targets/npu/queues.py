"""The three in-order queues and the token channels between them: what may issue next, and why nothing can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from fxscope.errors import CheckFailed
from fxscope.targets.npu.assembly import line
from fxscope.targets.npu.isa import QUEUES, Instruction, neighbour
from fxscope.targets.npu.machine import Machine

CHANNELS = tuple((producer, consumer) for producer in QUEUES for consumer in QUEUES if producer != consumer)


def pops(instruction: Instruction, queue: str) -> tuple[tuple[str, str], ...]:
    """Channels (producer, consumer) that the instruction takes a token from."""
    out: tuple[tuple[str, str], ...] = ()
    if instruction.pop_prev:
        out += ((neighbour(queue, -1), queue),)
    if instruction.pop_next:
        out += ((neighbour(queue, 1), queue),)
    return out


def pushes(instruction: Instruction, queue: str) -> tuple[tuple[str, str], ...]:
    """Channels that the instruction gives a token to."""
    out: tuple[tuple[str, str], ...] = ()
    if instruction.push_prev:
        out += ((queue, neighbour(queue, -1)),)
    if instruction.push_next:
        out += ((queue, neighbour(queue, 1)),)
    return out


class Queues:
    """State of the queues while a flat program runs; no time in it.

    Dispatch is in program order into queues of finite depth, as in the machine: an instruction can only issue once it
    has entered its queue.
    """

    def __init__(
        self, instructions: Sequence[Instruction], machine: Machine, where: Callable[[int], str] | None = None
    ) -> None:
        self._instructions = instructions
        self._owner = [instruction.queue for instruction in instructions]
        self._depth = {"l": machine.queues.load, "x": machine.queues.execute, "s": machine.queues.store}
        self._limit = machine.queues.tokens
        self._where = where or (lambda index: f"instruction {index}")
        self._waiting: dict[str, deque[int]] = {queue: deque() for queue in QUEUES}
        self._next = 0
        self.tokens = dict.fromkeys(CHANNELS, 0)
        self._done = dict.fromkeys(QUEUES, 0)
        # For `wait`: how many instructions of each queue precede an instruction in program order.
        self._before: dict[int, dict[str, int]] = {}
        seen = dict.fromkeys(QUEUES, 0)
        for index, instruction in enumerate(instructions):
            if instruction.op == "wait":
                self._before[index] = dict(seen)
            seen[self._owner[index]] += 1
        self._dispatch()

    def _dispatch(self) -> None:
        while self._next < len(self._instructions):
            queue = self._owner[self._next]
            if len(self._waiting[queue]) >= self._depth[queue]:
                return
            self._waiting[queue].append(self._next)
            self._next += 1

    def blocked(self, queue: str) -> str | None:
        """Why the head of a queue cannot issue; None where it can."""
        if not self._waiting[queue]:
            return "empty"
        index = self._waiting[queue][0]
        instruction = self._instructions[index]
        for channel in pops(instruction, queue):
            if not self.tokens[channel]:
                return f"waits for a token {channel[0]}->{channel[1]}"
        for channel in pushes(instruction, queue):
            if self.tokens[channel] >= self._limit:
                return f"channel {channel[0]}->{channel[1]} is full ({self._limit})"
        if instruction.op == "wait":
            other = str(instruction.args["on"])
            need = self._before[index][other] - int(instruction.args["outstanding"])
            if self._done[other] < need:
                return f"waits for {need - self._done[other]} more of queue {other}"
        return None

    def ready(self) -> list[str]:
        """Queues whose head can issue now."""
        return [queue for queue in QUEUES if self._waiting[queue] and self.blocked(queue) is None]

    def head(self, queue: str) -> int:
        """Index of the instruction at the head of a queue that is not empty."""
        return self._waiting[queue][0]

    def issue(self, queue: str) -> int:
        """Issue the head of a queue; returns its index."""
        index = self._waiting[queue].popleft()
        instruction = self._instructions[index]
        for channel in pops(instruction, queue):
            self.tokens[channel] -= 1
        for channel in pushes(instruction, queue):
            self.tokens[channel] += 1
        self._done[queue] += 1
        self._dispatch()
        return index

    def finished(self) -> bool:
        """All instructions issued."""
        return self._next == len(self._instructions) and not any(self._waiting.values())

    def require_finished(self) -> None:
        """Raise the diagnosis of a deadlock where instructions remain.

        Raises:
            CheckFailed: Names each queue's head instruction, what it waits for, and the state of the channels.
        """
        if self.finished():
            return
        heads = []
        for queue in QUEUES:
            if self._waiting[queue]:
                index = self._waiting[queue][0]
                text = line(self._instructions[index])
                heads.append(f"queue {queue}: {self._where(index)} [{text}] {self.blocked(queue)}")
            else:
                heads.append(f"queue {queue}: empty")
        held = ", ".join(f"{a}->{b} {count}" for (a, b), count in self.tokens.items() if count) or "none"
        raise CheckFailed(f"deadlock: {'; '.join(heads)}; tokens held: {held}")
