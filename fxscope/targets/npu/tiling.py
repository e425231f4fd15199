"""Tile factors of a product: search over the legal tiles, ranked by a closed form, the best tried in the event model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fxscope.errors import UsageError
from fxscope.targets.npu.fields import MAX_SIZE
from fxscope.targets.npu.groups import Group, Matrix
from fxscope.targets.npu.isa import DTYPE_BYTES
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.slots import allocate
from fxscope.targets.npu.timing import TRANSCENDENTAL, ceil_div, matrix

_MARGIN = 1.03


class Tile(NamedTuple):
    """Tile factors of one product.

    Attributes:
        m, n, k: Tile sizes.
        m_outer: The loop over m runs outside the loop over n.
        a_slots, b_slots: Scratchpad slots of the two operands; two or more are double-buffered.
        sets: Accumulator sets.
        cycles: What the closed form expects.
        traffic: Bytes moved to and from main memory; ``bound``: each operand once.
    """

    m: int
    n: int
    k: int
    m_outer: bool
    a_slots: int
    b_slots: int
    sets: int
    cycles: float
    traffic: int
    bound: int


class Shape(NamedTuple):
    """What decides about tiles; the key of the search's cache."""

    m: int
    n: int
    k: int
    products: int
    dtype: str
    channels: int  # contiguous k of one window position; 0 without a window
    ta: bool
    tb: bool
    in_lines: tuple[str, ...]  # kinds of the accumulator slots
    vectors: int  # interval-weighted vector operations on the tile
    loads: int  # bytes per element of operands that are loaded for the epilogue
    stores: int


def shape_of(group: Group, product: Matrix, ta: bool, tb: bool) -> Shape:
    """The shape of a gemm group."""
    full = [micro for micro in group.micros if group.kinds[micro.result] == "full"]
    return Shape(
        product.m,
        product.n,
        product.k,
        product.images * product.parts,
        product.dtype,
        product.window["x.channels"] if product.window else 0,
        ta,
        tb,
        tuple(allocate(group).kinds),
        sum(2 if micro.fn in TRANSCENDENTAL else 1 for micro in full),
        sum(DTYPE_BYTES[load.view.dtype] for load in group.loads if load.kind == "full"),
        sum(DTYPE_BYTES[store.view.dtype] for store in group.stores),
    )


def _sizes(total: int, unit: int) -> list[int]:
    """Candidate sizes: the whole, its even parts and powers of two, rounded up to the unit."""
    sizes = {min(total, MAX_SIZE)}
    for parts in (2, 3, 4, 6, 8, 12, 16, 24, 32, 64):
        size = ceil_div(ceil_div(total, parts), unit) * unit
        if size <= MAX_SIZE:
            sizes.add(min(size, total))
    size = unit
    while size < min(total, MAX_SIZE):
        sizes.add(size)
        size *= 2
    return sorted(size for size in sizes if size <= MAX_SIZE)


def _k_sizes(shape: Shape, unit: int) -> list[int]:
    """Candidates for k: a window's slice holds whole positions, or divides one."""
    if not shape.channels:
        return _sizes(shape.k, unit)
    sizes = {size for size in _sizes(shape.channels, unit) if shape.channels % size == 0}
    positions = shape.k // shape.channels
    sizes |= {shape.channels * p for p in range(1, positions + 1) if positions % p == 0 or p == positions}
    return sorted(size for size in sizes if size <= MAX_SIZE)


def candidates(shape: Shape, machine: Machine) -> Iterator[Tile]:
    """Every legal tile with its closed-form cost."""
    width = DTYPE_BYTES[shape.dtype]
    unit = max(machine.line_words, 1)
    for n in _sizes(shape.n, min(machine.array.cols, unit * 4)):
        n_lines = machine.lines(n, 4)
        for m in _sizes(shape.m, min(machine.array.rows, unit)):
            tiles = ceil_div(shape.m, m) * ceil_div(shape.n, n) * shape.products
            sets = 1 if tiles == 1 else 2
            acc = sum({"full": m * n_lines, "row": n_lines, "col": m, "one": 1}[kind] for kind in shape.in_lines)
            if acc * sets > machine.acc_lines:
                continue
            for k in _k_sizes(shape, machine.array.rows):
                a = k * machine.lines(m, width) if shape.ta else m * machine.lines(k, width)
                b = n * machine.lines(k, width) if shape.tb else k * machine.lines(n, width)
                steps = ceil_div(shape.k, k)
                least = 1 if tiles * steps == 1 else 2
                if (a + b) * least > machine.spad_lines:
                    continue
                for m_outer in (True, False):
                    yield _cost(shape, machine, m, n, k, m_outer, a, b, least, sets)


def _cost(
    shape: Shape, machine: Machine, m: int, n: int, k: int, m_outer: bool, a: int, b: int, least: int, sets: int
) -> Tile:
    """The steady state of a double-buffered pipeline: the slowest engine, plus filling and draining it."""
    width = DTYPE_BYTES[shape.dtype]
    m_tiles, n_tiles, k_tiles = ceil_div(shape.m, m), ceil_div(shape.n, n), ceil_div(shape.k, k)
    a_slots = b_slots = least
    spare = machine.spad_lines - (a + b) * least
    # The operand of the outer loop stays where all its k tiles fit (and the next row of tiles can be prefetched).
    keep = k_tiles + 1 if (m_tiles if m_outer else n_tiles) * shape.products > 1 else k_tiles
    if m_outer and k_tiles + least > least:
        extra = max(keep - least, 0)
        if extra * a <= spare:
            a_slots += extra
            spare -= extra * a
    elif not m_outer:
        extra = max(keep - least, 0)
        if extra * b <= spare:
            b_slots += extra
            spare -= extra * b
    a_kept, b_kept = m_outer and a_slots >= k_tiles, not m_outer and b_slots >= k_tiles
    a_reads = shape.m * shape.k * (1 if a_kept or n_tiles == 1 else n_tiles)
    b_reads = shape.k * shape.n * (1 if b_kept or m_tiles == 1 else m_tiles)
    memory = machine.dram
    run = min(memory.burst, (shape.channels or k) * width) if not shape.ta else memory.burst
    a_bytes = a_reads * width * memory.burst / max(run, 1)
    b_run = min(memory.burst, (k if shape.tb else n) * width)
    b_bytes = b_reads * width * memory.burst / max(b_run, 1)
    epilogue = shape.m * shape.n * shape.loads
    stored = shape.m * shape.n * shape.stores
    transfers = (m_tiles * n_tiles * k_tiles) * ((0 if a_kept else 1) + (0 if b_kept else 1)) + m_tiles * n_tiles
    load = max(
        (a_bytes + b_bytes + epilogue) / memory.bytes_per_cycle,
        transfers * memory.read_latency / machine.queues.outstanding,
    )
    bus = (a_bytes + b_bytes + epilogue + stored) / memory.bytes_per_cycle
    one = matrix(machine, min(m, shape.m), min(n, shape.n), min(k, shape.k), shape.dtype)
    groups = ceil_div(m * n, machine.vector.lanes)
    vector = shape.vectors * groups * machine.vector.interval + machine.vector.latency * shape.vectors
    compute = m_tiles * n_tiles * (k_tiles * one.busy + one.latency + vector)
    fill = (a + b) * machine.local.line_bytes / memory.bytes_per_cycle + memory.read_latency
    drain = m * n * shape.stores / memory.bytes_per_cycle + memory.write_latency
    cycles = max(load, compute, bus) * shape.products + fill + drain
    traffic = int((a_reads + b_reads) * width + epilogue + stored) * shape.products
    bound = int((shape.m * shape.k + shape.k * shape.n) * width + epilogue + stored) * shape.products
    return Tile(m, n, k, m_outer, a_slots, b_slots, sets, cycles, traffic, bound)


def search(shape: Shape, machine: Machine, keep: int = 1) -> list[Tile]:
    """The best tiles by the closed form, less traffic first on a tie.

    Raises:
        UsageError: No tile fits the machine; names the memories.
    """
    found = list(candidates(shape, machine))
    fastest = min((tile.cycles for tile in found), default=0.0)
    # The closed form is no better than a few per cent: within that, less traffic and then fewer, larger instructions.
    best = sorted(
        found,
        key=lambda tile: (
            max(0, math.ceil(tile.cycles / fastest / _MARGIN) - 1) if fastest else 0,
            tile.traffic,
            -tile.m * tile.n * tile.k,
        ),
    )
    if not best:
        raise UsageError(
            f"no tile of a {shape.m}x{shape.n}x{shape.k} product fits {machine.name}: scratchpad "
            f"{machine.local.scratchpad} bytes, accumulator {machine.local.accumulator} bytes"
        )
    out: list[Tile] = []
    for tile in best:
        if all((tile.m, tile.n, tile.k, tile.m_outer) != (o.m, o.n, o.k, o.m_outer) for o in out):
            out.append(tile)
        if len(out) == keep:
            break
    return out


def k_slices(shape_k: int, channels: int, size: int) -> list[tuple[int, int]]:
    """Slices (start, length) of k for tiles of ``size``."""
    if channels and size < channels:
        return [
            (position * channels + at, min(size, channels - at))
            for position in range(shape_k // channels)
            for at in range(0, channels, size)
        ]
    return [(at, min(size, shape_k - at)) for at in range(0, shape_k, size)]
