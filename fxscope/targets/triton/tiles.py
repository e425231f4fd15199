"""Pointwise kernels over tensors in different orders: tiles that are read along one dimension and written along another."""

from __future__ import annotations

import math

from fxscope.targets.triton.ir import Axes, Kernel
from fxscope.targets.triton.lines import Part
from fxscope.targets.triton.nest import Access, Nest
from fxscope.targets.triton.schedule import BIG, SMS, Schedule, candidates, half_outputs, power_of_two
from fxscope.targets.triton.values import Values

LEAST = 8  # elements along both dimensions from which a tile pays
SMALL_PART = 4  # so much smaller than the largest, a tensor in another order is no reason for tiles


class Tiled(Nest):
    """A pointwise nest whose columns are neighbours in one tensor, and whose last rows are in another.

    Attributes:
        plain: The same kernel in the order of what it writes.
    """

    def __init__(self, plain: Nest, columns: set[int]) -> None:
        super().__init__(plain.kernel, plain.axes, columns)
        self.plain = plain

    def programs(self, tile: int, block: int) -> int:
        """How many tiles there are."""
        return math.prod(self.rows[:-1]) * -(-self.rows[-1] // tile) * -(-self.col_count // block)


@candidates.register
def _tiles(nest: Tiled) -> list[Schedule]:
    """Sizes of tiles, the largest that still keeps all multiprocessors busy first; then the kernel in the order of what it writes."""
    high, wide, fast = power_of_two(nest.rows[-1]), power_of_two(nest.col_count), half_outputs(nest)
    hints = any(value.memory and nest.big(value.memory) >= BIG for value in nest.kernel.values)
    sizes = [(64, 64, 8), (32, 64, 4), (64, 32, 4), (32, 32, 4), (16, 64, 4), (64, 16, 4), (16, 32, 4)]
    options = dict.fromkeys((min(tile, high), min(block, wide), warps) for tile, block, warps in sizes)
    busy = [option for option in options if nest.programs(*option[:2]) >= 2 * SMS]
    first = busy[0] if busy else max(options, key=lambda option: nest.programs(*option[:2]))
    tiles = [
        Schedule("tiles", block, warps, tile=tile, fast=fast, hints=hints)
        for tile, block, warps in dict.fromkeys([first, *options])
    ]
    return [*tiles, *candidates(nest.plain)]


def nest_of(kernel: Kernel, axes: Axes) -> Nest:
    """A kernel's loop nest: in tiles where it is pointwise and some tensor's neighbours lie apart in what it writes."""
    plain = Nest(kernel, axes)
    if plain.reductions or plain.partials or plain.rows or len(plain.cols) < 2 or plain.cols[-1] < LEAST:
        return plain
    targets = [plain.target(position) for position in range(len(kernel.stores))]
    accesses = [plain.access(value) for value in kernel.values if value.memory is not None]
    accesses += [access for _, access, _ in targets]
    across = [found for access in accesses if (found := _across(plain, access))]
    if not across or any(kind != "full" for _, _, kind in targets) or not any(a.cols[-1] == 1 for a in accesses):
        return plain
    size, dimension = max(across)
    if SMALL_PART * size < max(plain.big(access.memory) for access in accesses if access.memory):
        return plain  # it comes from the cache, whichever way it is read
    tiled = Tiled(plain, set(plain.column_axes(dimension)))
    stored = [tiled.target(position) for position in range(len(kernel.stores))]
    fits = len(tiled.cols) == 1 and tiled.rows[-1] >= LEAST and all(kind == "full" for _, _, kind in stored)
    return tiled if fits else plain


def _across(nest: Nest, access: Access) -> tuple[int, int] | None:
    """Bytes of a tensor whose neighbours lie along another dimension than the last, and that dimension."""
    if access.memory is None or access.cols[-1] in (0, 1):
        return None
    found = [d for d, stride in enumerate(access.cols) if stride == 1 and nest.cols[d] >= LEAST]
    return (nest.big(access.memory), found[-1]) if found else None


class Tiles(Values):
    """Writes a tile per program: Triton moves it through shared memory where it is read and written in different orders."""

    def _tiles(self) -> tuple[int, ...]:
        nest, s = self.nest, self.schedule
        *outer, height = nest.rows
        down, across = -(-height // s.tile), -(-nest.col_count // s.block)
        self.sizes |= {"ROWS": height, "DOWN": down, "ACROSS": across}
        self.comment("a tile is read along one dimension and written along another")
        self.put(f"pid = {self._program()}")
        last, number = "row", "pid // ACROSS"
        if outer:
            last, number = f"row_{len(outer)}", "pid // ACROSS % DOWN"
            self.put("batch = pid // (DOWN * ACROSS)")
            for d in range(len(outer)):
                inner = math.prod(outer[d + 1 :])
                text = f"batch // {inner}" if inner > 1 else "batch"
                self.put(f"row_{d} = {text}" + (f" % {outer[d]}" if d else ""))
        self.put(f"{last} = {number} * TILE + tl.arange(0, TILE)[:, None]")
        self.put("cols = pid % ACROSS * BLOCK + tl.arange(0, BLOCK)[None, :]")
        self.row_mask = f"{last} < ROWS" if height % s.tile else None
        col_mask = "cols < N" if nest.col_count % s.block else None
        terms = [f"({term})" for term in (self.row_mask, col_mask) if term]
        if terms:
            self.put(f"mask = {' & '.join(terms)}")
        part = Part(mask="mask" if terms else None, col_mask=col_mask)
        for position in range(len(nest.kernel.stores)):
            self.store(position, part)
        return (math.prod(outer) * down * across,)
