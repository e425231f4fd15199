"""What the tuner runs: formulations on tensors made for them, and the card that compiles, starts and times them."""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fxscope.targets import replay
from fxscope.targets.triton import module
from fxscope.targets.triton.agreement import poison
from fxscope.targets.triton.emit import Source
from fxscope.targets.triton.ir import Memory
from fxscope.targets.triton.matmul import MatmulNest, Operand
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import LIBRARY, Schedule

Tensors = Mapping[str, torch.Tensor]


@dataclass
class Run:
    """One formulation, ready to start.

    Attributes:
        start: Starts it on the i-th set of tensors.
        sets: How many sets of tensors there are.
        outputs: What it writes into on the first set, by name of the memory.
    """

    schedule: Schedule
    start: Callable[[int], None]
    sets: int
    outputs: dict[str, torch.Tensor]


class Card:
    """A CUDA device as the tuner sees it."""

    interpreted = False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def name(self) -> str:
        """What choices that are kept on disk are for."""
        return torch.cuda.get_device_name(self.device)

    def build(self, source: Source) -> module.Binary:
        """Compile a kernel; several threads may at a time."""
        return module.compile_binary(source, torch.cuda.get_device_capability(self.device))

    def wait(self) -> None:
        """Until everything that was started has ended.

        Raises:
            RuntimeError: A kernel failed.
        """
        torch.cuda.synchronize(self.device)

    def warm_up(self, run: Run) -> None:
        """Up to 50 rounds of 30 launches, until a round takes 30 ms, so that the first candidate is not timed at idle clocks."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(50):
            start.record()
            for i in range(30):
                run.start(i)
            end.record()
            end.synchronize()
            if start.elapsed_time(end) > 30:
                return

    def seconds(self, run: Run, launches: int, repeats: int) -> float:
        """Median time of one launch, by replays of a CUDA graph of ``launches`` on the sets of tensors in turn."""
        graph = replay.capture(run.start, launches)
        graph.replay()
        return statistics.median(replay.seconds(graph.replay) / launches for _ in range(repeats))


class Bench:
    """Makes tensors for a kernel's memories, the same for every candidate, and runs of candidates on them.

    Args:
        values: Tensors for the memories that the kernel reads, by name; others are filled with random numbers.
        sets: How many sets of tensors a run has at most.
        uniform: The random numbers lie between 0 and 1, else around 0.
    """

    def __init__(
        self, card: Any, device: torch.device, values: Tensors, *, sets: int = 3, uniform: bool = False
    ) -> None:
        self.card, self.device, self.values, self.sets, self.uniform = card, device, values, sets, uniform
        self.pool: dict[tuple[str, int], torch.Tensor] = {}

    def tame(self) -> Bench:
        """One of numbers whose logarithms, roots and powers are finite, for results to compare."""
        whole = {name: value for name, value in self.values.items() if not value.is_floating_point()}
        return Bench(self.card, self.device, whole, sets=1, uniform=True)

    def run(self, nest: Nest, source: Source, binary: Any) -> Run:
        """A kernel of ours, its outputs poisoned."""
        from fxscope.targets.triton.executable import shifted_copies

        launch = binary.launcher(self.device.index or 0)
        written = dict.fromkeys(memory.name for _, memory, _ in nest.kernel.stores)
        size = sum(nest.big(memory) for memory in source.args)
        sets = max(1, min(self.sets, 2**33 // max(size, 1)))
        calls = [{m.name: self.tensor(m, m.name in written, copy) for m in source.args} for copy in range(sets)]
        n, interpreted = nest.col_count, self.card.interpreted

        def start(i: int) -> None:
            tensors = calls[i % sets]
            shifted = [shifted_copies(tensors[m.name], n, -(-n // 64) * 64, interpreted) for m in source.shifted]
            launch(*shifted, *(tensors[m.name] for m in source.args))

        return Run(source.schedule, start, sets, {name: calls[0][name] for name in written})

    def library(self, nest: MatmulNest, schedule: Schedule) -> Run:
        """The library's product into memory, and the kernel for what follows in a formulation of its own."""
        assert nest.tail is not None
        assert nest.write_tail is not None
        assert nest.library.extern is not None
        source = nest.write_tail(nest.tail, schedule)
        after = self.run(nest.tail, source, self.card.build(source))
        memory = nest.product[0].memory
        assert memory is not None
        call = nest.library.extern[0].overloadpacket.out
        rows, cols = nest.row_count, nest.col_count
        operands: list[tuple[Operand, tuple[int, ...]]] = [(nest.a, (rows, nest.depth)), (nest.b, (nest.depth, cols))]
        if nest.bias is not None:
            # A bias as the program has it, a vector: for a matrix the library takes another way.
            operands.insert(0, (nest.bias, (rows, cols) if nest.bias.rows else (cols,)))

        def operand(place: Operand, shape: tuple[int, ...], copy: int) -> torch.Tensor:
            base = self.tensor(place.memory, False, copy)
            strides = (place.rows, place.cols)[-len(shape) :]
            return base.as_strided(shape, strides, base.storage_offset() + place.offset)

        given = [[operand(*pair, copy) for pair in operands] for copy in range(after.sets)]
        results = [self.tensor(memory, False, copy) for copy in range(after.sets)]

        def start(i: int) -> None:
            call(*given[i % after.sets], out=results[i % after.sets])
            after.start(i)

        return Run(LIBRARY, start, after.sets, after.outputs)

    def tensor(self, memory: Memory, written: bool, copy: int) -> torch.Tensor:
        """A tensor for a memory, kept from one candidate to the next; poisoned anew where it is written."""
        if not written and copy == 0 and memory.name in self.values:
            return self.values[memory.name]
        key = (memory.name, copy)
        if key not in self.pool or self.pool[key].shape != memory.shape:
            shift = memory.misaligned // memory.dtype.itemsize
            self.pool[key] = self._numbers(memory, copy)[shift:].as_strided(memory.shape, memory.strides)
        if written:
            poison(self.pool[key])
        return self.pool[key]

    def _numbers(self, memory: Memory, copy: int) -> torch.Tensor:
        """Random ones by a generator of their own, so that tuning leaves the program's alone; whole numbers may be indices: zero."""
        size = 9 + sum((n - 1) * abs(s) for n, s in zip(memory.shape, memory.strides, strict=True))
        generator = torch.Generator(self.device).manual_seed(zlib.crc32(memory.name.encode()) + copy)
        if memory.dtype.is_floating_point:
            draw = torch.rand if self.uniform else torch.randn
            numbers = draw(size, generator=generator, dtype=torch.float32, device=self.device)
            return (0.05 + 0.9 * numbers if self.uniform else numbers).to(memory.dtype)
        if memory.dtype == torch.bool:
            return torch.randint(0, 2, (size,), generator=generator, device=self.device).bool()
        return torch.zeros(size, dtype=memory.dtype, device=self.device)
