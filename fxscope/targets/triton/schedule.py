"""How a kernel is written: the formulation and its sizes, and which formulations are worth trying.

The candidates come from experiment on an H200 (docs/triton.md says which and why).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Literal

from fxscope.targets.triton.builder import HALF
from fxscope.targets.triton.ir import Value
from fxscope.targets.triton.nest import Nest

Form = Literal["flat", "row", "loop", "sums", "matmul", "library", "several", "tiles"]
Live = Literal["keep", "repack", "reread"]
Weights = Literal["reload", "hoist", "shifted", "split"]
BIG = 32 * 2**20  # bytes from which a tensor is worth a cache hint
QUEUE, SHORT = 2048, 6144  # programs, and bytes that each moves
SMS = 132  # programs of a persistent grid are a multiple of this; H100 and H200 have as many multiprocessors


@dataclass(frozen=True)
class Schedule:
    """One formulation.

    Attributes:
        form: flat: blocks of elements in memory order. row: a program holds whole rows. loop: a program runs along its rows in
            blocks, once per reduction and once to write. sums: sums over the rows alone, by programs that run down them.
            matmul: tiles of a matrix product, with what follows it. library: the product by the library, what follows in a kernel.
            several: kernels that need nothing of one another, in one launch. tiles: read along one dimension, written along another.
        block: Elements (flat) or columns that one tensor of the program spans; a power of two.
        tile: Rows of a program at a time.
        chunks: Tensors that a row is cut into.
        window: Rows that do not start on 16 bytes: a middle of whole vectors, and the two ends apart.
        programs: Programs of a persistent grid that run over the rows; 0: one program per tile.
        live: What holds a row over a reduction: ``keep`` float32 registers, ``repack`` packed half-precision registers, or
            ``reread`` it from memory.
        weights: Column vectors: ``reload`` for each row, ``hoist`` out of the loop over rows, ``shifted`` copies in memory, or ``split``:
            the first hoisted, the others shifted.
        prefetch: Load the next row of a persistent program before this one is computed.
        words: Half-precision tensors that start between 16-byte boundaries are read in aligned 64-bit words, which are cut and joined.
        ahead: Ask for the next row of a persistent program to be brought into the cache; needs no registers.
        hints: evict_last on large loads.
        early: It may be started before the kernel ahead has ended, where kernels can.
        depth, stages: matmul: elements of the sum that a step takes, and steps that are loaded ahead. several: ``depth`` of its sums.
    """

    form: Form
    block: int
    warps: int = 8
    tile: int = 1
    chunks: int = 1
    window: bool = False
    programs: int = 0
    live: Live = "keep"
    weights: Weights = "reload"
    prefetch: bool = False
    ahead: bool = False
    words: bool = False
    hints: bool = False
    maxnreg: int | None = None
    fast: bool = False
    depth: int = 0
    stages: int | None = None
    early: bool = True

    def text(self) -> str:
        """A few words for tables and comments."""
        if self.form == "library":
            return "the library's product, and a kernel for what follows"
        if self.form == "matmul":
            return f"matmul, tiles of {self.tile}x{self.block}, {self.depth} deep, {self.warps} warps, {self.stages} stages{', early' * self.early}"
        words = [self.form, f"block {self.block}", f"{self.warps} warps"]
        words += [f"{self.depth} deep"] * bool(self.depth)
        words += [f"{self.tile} rows a tile"] * (self.tile > 1) + [f"{self.chunks} chunks"] * (self.chunks > 1)
        words += ["window"] * self.window + [f"{self.programs} programs"] * bool(self.programs)
        words += [self.live] * (self.live != "keep") + [f"weights {self.weights}"] * (self.weights != "reload")
        words += ["prefetch"] * self.prefetch + ["next row to the cache"] * self.ahead
        words += ["aligned words"] * self.words + ["evict_last"] * self.hints
        words += [f"maxnreg {self.maxnreg}"] * bool(self.maxnreg) + ["fast math"] * self.fast
        return ", ".join(words)


LIBRARY = Schedule("library", 0)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def vector(nest: Nest) -> int:
    """Elements of a 16-byte access of the narrowest tensor that varies over rows and columns."""
    sizes = [
        value.memory.dtype.itemsize for value in nest.kernel.values if value.memory and nest.kinds[value] == "full"
    ]
    sizes += [memory.dtype.itemsize for _, memory, _ in nest.kernel.stores]
    return 16 // min(sizes, default=4)


def ragged(nest: Nest) -> bool:
    """Whether rows are contiguous but start anywhere."""
    if len(nest.cols) != 1:
        return False
    width = vector(nest)
    starts = [nest.access(v) for v in nest.kernel.values if v.memory and nest.kinds[v] == "full"]
    starts += [access for _, access, kind in map(nest.target, range(len(nest.kernel.stores))) if kind == "full"]
    contiguous = [a for a in starts if a.cols == (1,)]
    return bool(contiguous) and any(any(s % width for s in (*a.rows, a.offset)) for a in contiguous)


def half_outputs(nest: Nest) -> bool:
    """Whether everything large that is written (or all, where nothing is) has half precision."""
    stores = [nest.target(i) for i in range(len(nest.kernel.stores))]
    large = [access.memory for _, access, kind in stores if kind == "full" and access.memory]
    large = large or [access.memory for _, access, _ in stores if access.memory]
    return bool(large) and all(memory.dtype in HALF for memory in large)


def half_inputs(nest: Nest) -> bool:
    """Whether some tensor that varies over rows and columns is read in half precision."""
    return any(v.memory and v.memory.dtype in HALF and nest.kinds[v] == "full" for v in nest.kernel.values)


def column_vectors(nest: Nest) -> list[Value]:
    """Loads that vary over the columns only: weights and biases."""
    return [v for v in nest.kernel.values if v.op == "load" and nest.kinds[v] == "col"]


def traffic(nest: Nest) -> int:
    """Bytes of everything that varies over rows and columns."""
    memories = {v.memory for v in nest.kernel.values if v.memory and nest.kinds[v] == "full"}
    memories |= {memory for value, memory, _ in nest.kernel.stores if not value.partial}
    return sum(nest.big(memory) for memory in memories)


def elements_before(nest: Nest, value: Value) -> int:
    """How many elements past a 16-byte boundary every row of a half-precision load starts; 0 where that differs by row, or is not so."""
    if value.op != "load" or value.memory is None or value.dtype not in HALF or nest.kinds[value] != "full":
        return 0
    access = nest.access(value)
    if not nest.linear(access) or value.memory.misaligned % 2 or any(stride % 8 for stride in access.rows):
        return 0
    return (value.memory.misaligned // 2 + access.offset) % 8


def may_overlap(moved: int, programs: int) -> bool:
    """Whether a kernel gains by being started early: not as a long queue of programs that move few of its bytes each.

    An H200 starts 0.83 programs a nanosecond of a kernel that overlaps (more of others), and its memory moves 5 kB in the time of one.
    """
    return programs <= QUEUE or moved // programs >= SHORT


@functools.singledispatch
def candidates(nest: Nest) -> list[Schedule]:
    """Formulations worth timing, the one to take untimed first; nests of other kinds register their own."""
    options = _plain_candidates(nest)
    if not any(elements_before(nest, value) for value in nest.kernel.values):
        return options
    joined = [
        replace(o, words=True)
        for o in options
        if o.form in ("flat", "row") and not (o.window or o.prefetch) and o.block >= 8
    ]
    return [*joined, *options[:3]] if joined else options


def _plain_candidates(nest: Nest) -> list[Schedule]:
    from fxscope.targets.triton.row_forms import persistent, rows

    fast = half_outputs(nest)
    hints = any(v.memory and nest.big(v.memory) >= BIG for v in nest.kernel.values)
    if not nest.reductions and not nest.partials:
        return _flat(nest, fast, hints)
    if nest.partials and not nest.reductions:
        return _sums(nest, fast, hints)
    if nest.partials:  # the loop form has none; `fuse.MAX_ROW` bounds these rows
        return persistent(nest, fast, hints)
    if nest.col_count > 65536 or _outer(nest):
        return _loop(nest, fast, hints)
    return rows(nest, fast, hints)


def _flat(nest: Nest, fast: bool, hints: bool) -> list[Schedule]:
    total = nest.col_count
    widest = max((v.memory.dtype.itemsize for v in nest.kernel.values if v.memory), default=4)
    if total * widest < 2**20:
        small = max(128, min(1024, power_of_two(-(-total // (2 * SMS)))))
        return [
            Schedule("flat", small, 4, fast=fast),
            Schedule("flat", min(small * 2, 1024), 4, fast=fast),
            Schedule("flat", 256, 2, fast=fast),
        ]
    grids = [(4096, 8), (2048, 8), (2048, 4), (1024, 4)] if widest <= 2 else [(1024, 4), (512, 4), (1024, 8), (2048, 8)]
    base = [Schedule("flat", block, warps, fast=fast, hints=hints) for block, warps in grids]
    if fast:  # 16 elements a thread
        base.append(Schedule("flat", 1024, 2, fast=fast, hints=hints))
    return base


def _outer(nest: Nest) -> bool:
    """Whether neighbours in memory belong to different rows."""
    loads = [nest.access(v) for v in nest.kernel.values if v.memory and nest.kinds[v] == "full"]
    if not loads or not nest.rows:
        return False
    return all(1 not in a.cols for a in loads) and any(a.rows[-1] == 1 for a in loads) and nest.rows[-1] > 1


def _loop(nest: Nest, fast: bool, hints: bool) -> list[Schedule]:
    n = nest.col_count
    if _outer(nest):
        wide = max(1, min(32, power_of_two(n)))
        tile = 16 if nest.row_count < 64 * SMS else 64
        out = [Schedule("loop", wide, 4, tile=tile, fast=fast), Schedule("loop", wide, 4, tile=32, fast=fast)]
        return [
            *out,
            Schedule("loop", max(wide // 2, 1), 4, tile=64, fast=fast),
            *(
                Schedule("loop", min(block, power_of_two(n)), warps, tile=tile, fast=fast)
                for block, tile, warps in ((64, 32, 8), (128, 8, 4), (256, 8, 8), (512, 16, 16))
            ),
        ]
    return [
        Schedule("loop", block, warps, fast=fast, hints=hints)
        for block, warps in ((4096, 8), (8192, 16), (16384, 32), (4096, 16))
        if block < 2 * n
    ] or [Schedule("loop", power_of_two(n), 4, fast=fast)]


def _sums(nest: Nest, fast: bool, hints: bool) -> list[Schedule]:
    n = nest.col_count
    out = []
    for block, tile, warps in ((512, 4, 4), (1024, 4, 8), (256, 8, 4), (2048, 2, 8), (128, 16, 4)):
        block = min(block, max(power_of_two(n), 16))
        across = -(-n // block)
        for waves in (4, 8):
            down = max(1, min(waves * SMS // across, -(-nest.row_count // tile)))
            out.append(Schedule("sums", block, warps, tile=tile, programs=down, fast=fast, hints=hints))
    return out
