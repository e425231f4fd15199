"""An island to a program: lower, schedule, place, choose tiles, emit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fxscope.targets.npu.access import View
from fxscope.targets.npu.emit import Emitter
from fxscope.targets.npu.gemm import Plan, choose, emit_product
from fxscope.targets.npu.groups import Copy, Group, Matrix, Reduce, Windowed
from fxscope.targets.npu.isa import DTYPE_BYTES
from fxscope.targets.npu.lowering import Island
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.placement import MemoryReport, drop_dead, live_ranges, place, schedule
from fxscope.targets.npu.program import Placed, Program
from fxscope.targets.npu.reduce_loops import emit_reduce
from fxscope.targets.npu.simulate import simulate
from fxscope.targets.npu.tiling import Shape, Tile
from fxscope.targets.npu.vector_loops import emit_copy, emit_vector, emit_window

if TYPE_CHECKING:
    from torch.fx import GraphModule

TRIED = 3  # tiles of each shape that the event model compares
_TRIAL_TILES = 24  # result tiles of a trial


@dataclass
class Compiled:
    """A program with what the compiler decided.

    Attributes:
        groups: In the order they run.
        constants: Weights that the compiler made: buffer view to number.
        proven: The program was proven legal (an executable does, once).
    """

    program: Program
    machine: Machine
    groups: list[Group]
    inputs: list[View | None]
    outputs: list[View | float | None]
    constants: list[tuple[View, float]]
    memory: list[MemoryReport] = field(default_factory=list)
    proven: bool = False


def compile_island(gm: GraphModule, machine: Machine, *, fuse: bool = True, tried: int = TRIED) -> Compiled:
    """Compile an island of functional ATen ops.

    Args:
        gm: Functional ATen with ``meta["val"]``.
        machine: What to compile for.
        fuse: False runs every node on its own, through main memory.
        tried: Tile factors per shape that are compared in the event model; 1 takes the closed form's best.

    Raises:
        UsageError: A node has no lowering, or something does not fit the machine; named.
    """
    island = Island(gm, machine, fuse=fuse)
    ordered = schedule(island.builder.groups)
    outputs = [view.buffer for view in island.outputs if isinstance(view, View)]
    ordered = drop_dead(ordered, outputs)
    live_ranges(ordered, outputs)
    buffers = [b for b in island.builder.buffers if b.kind != "scratch" or b.first >= 0 or b in outputs]
    regions, memory = place(buffers, outputs, machine)
    emitter = Emitter(machine)
    tiles: dict[Shape, list[Tile]] = {}
    chosen: dict[tuple[int, ...], Tile] = {}
    for order, group in enumerate(ordered):
        if isinstance(group.anchor, Matrix):
            plan, candidates = choose(group, machine, tiles, tried)
            key = (id(candidates), plan.plain, plan.ta, plan.tb)
            if key not in chosen:
                chosen[key] = _best(group, machine, island.sources, plan, candidates)
            tile = chosen[key]
            product = group.anchor
            # The bound counts an image and the weights once, however many windows hold a pixel and images share weights.
            gathers = product.window is not None and not plan.plain
            taken = product.m * product.k * product.images * product.parts
            once = min(product.left.numel, product.left.buffer.elements) if gathers else taken
            shared = (product.images - 1) * product.parts * product.k * product.n if product.window else 0
            saved = (taken - once + shared) * DTYPE_BYTES[product.dtype]
            group.note.update(
                tile=f"{tile.m}x{tile.n}x{tile.k}", sets=tile.sets, loop="m n k" if tile.m_outer else "n m k",
                slots=f"{tile.a_slots}+{tile.b_slots}", traffic=tile.traffic, bound=tile.bound - saved, macs=product.macs,
                refetch=taken / once,
            )  # fmt: skip
            emit_product(emitter, group, island.sources, order, plan, tile)
        elif isinstance(group.anchor, Windowed):
            emit_window(emitter, group, island.sources, order)
        elif isinstance(group.anchor, Copy):
            emit_copy(emitter, group, island.sources, order)
        elif isinstance(group.anchor, Reduce):
            emit_reduce(emitter, group, island.sources, order)
        else:
            emit_vector(emitter, group, island.sources, order)
    views = {view.buffer: view for view in (*island.inputs, *island.outputs) if isinstance(view, View)}
    program = Program(
        machine=machine.name,
        instructions=emitter.instructions,
        debug=emitter.debug,
        regions=regions,
        inputs=[_placed(view) for view in island.inputs if view is not None],
        outputs=[_placed(view) for view in island.outputs if isinstance(view, View)],
        tensors=[_placed(views.get(b) or View(b, (b.elements,), (1,))) for b in buffers],
        groups=[_title(group) for group in ordered],
    )
    constants = [
        (View(buffer, (1,), (1,)), buffer.constant) for buffer in island.builder.buffers if buffer.constant is not None
    ]
    return Compiled(program, machine, ordered, island.inputs, island.outputs, constants, memory)


def _best(group: Group, machine: Machine, sources: dict[str, str], plan: Plan, candidates: list[Tile]) -> Tile:
    """The candidate that the event model finds fastest, on its first tiles scaled to all of them."""
    if len(candidates) == 1:
        return candidates[0]
    best, best_time = candidates[0], math.inf
    for tile in candidates:
        trial = Emitter(machine)
        product = plan.product
        total = math.ceil(product.m / tile.m) * math.ceil(product.n / tile.n) * product.images * product.parts
        limit = min(total, _TRIAL_TILES)
        emit_product(trial, group, sources, 0, plan, tile, limit)
        time = simulate(trial.instructions, machine).total * total / limit
        if time < best_time:
            best, best_time = tile, time
    return best


def _placed(view: View) -> Placed:
    buffer = view.buffer
    return Placed(
        name=buffer.name,
        region=buffer.region,
        offset=buffer.offset,
        dtype=buffer.dtype,
        shape=view.shape,
        strides=view.strides,
        bytes=buffer.bytes,
        first=buffer.first,
        last=buffer.last,
        spilled=buffer.spilled,
    )


def _title(group: Group) -> str:
    return f"{group.kind}: {', '.join(group.nodes)}"
