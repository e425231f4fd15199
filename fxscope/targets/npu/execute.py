"""Running programs: every instruction bound once to views of the memories, then replayed as often as wanted.

Addresses never depend on data, so legality (ranges, tokens, races) is proven once, by check.py, before the first run.
One instruction is one or a few torch calls. The order of accumulation is the program's: ``gemm`` multiplies its whole
tile with torch.mm in f32 (i8: exactly, in i32) and adds it to what the accumulator holds.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxscope.targets.npu.encoding import bits_float
from fxscope.targets.npu.isa import REGIONS, Instruction
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.operands import ACC, SPAD, Block, Step, Window, steps
from fxscope.targets.npu.queues import Queues

TORCH = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i8": torch.int8,
    "b8": torch.uint8,
    "i32": torch.int32,
}
Thunk = Callable[[], Any]


class Memories:
    """The byte buffers of one running program, and typed views of them."""

    def __init__(self, machine: Machine, regions: dict[str, int]) -> None:
        sizes = {SPAD: machine.local.scratchpad, ACC: machine.local.accumulator}
        sizes.update({region: regions.get(region, 0) for region in REGIONS})
        self.bytes = {name: torch.zeros(-(-size // 64) * 64, dtype=torch.uint8) for name, size in sizes.items()}
        self._typed = {
            (name, dtype): buffer.view(TORCH[dtype]) for name, buffer in self.bytes.items() for dtype in TORCH
        }

    def view(self, block: Block) -> torch.Tensor:
        """The block as a [rows, cols] view."""
        typed = self._typed[block.memory, block.dtype]
        size = typed.element_size()
        strides = (block.row_pitch // size, block.col_pitch // size)
        return typed.as_strided((block.rows, block.cols), strides, block.start // size)

    def strided(
        self, memory: str, dtype: str, shape: Sequence[int], strides: Sequence[int], start: int
    ) -> torch.Tensor:
        """A view of any rank; ``strides`` in elements, ``start`` in bytes."""
        typed = self._typed[memory, dtype]
        return typed.as_strided(tuple(shape), tuple(strides), start // typed.element_size())


class Executor:
    """A program bound to its memories. ``run`` executes all of it in program order."""

    def __init__(self, instructions: Sequence[Instruction], machine: Machine, memories: Memories) -> None:
        self.machine = machine
        self.instructions = instructions
        self.memories = memories
        self._weights = _Weights()
        self.thunks: list[Thunk | None] = [self._bind(step) for step in steps(instructions, machine)]
        self._plan: list[Thunk] = [thunk for thunk in self.thunks if thunk is not None]

    def run(self) -> None:
        """Execute once, in program order, which the token rules make equal to every legal interleaving."""
        for thunk in self._plan:
            thunk()

    def run_interleaved(self, seed: int) -> None:
        """Execute once with a random ready queue chosen at every step, as VTA's simulator does, to expose missing tokens."""
        chance = random.Random(seed)
        queues = Queues(self.instructions, self.machine)
        while True:
            ready = queues.ready()
            if not ready:
                break
            index = queues.issue(chance.choice(ready))
            thunk = self.thunks[index]
            if thunk is not None:
                thunk()
        queues.require_finished()

    def _bind(self, step: Step) -> Thunk | None:
        op = step.instruction.op
        binder = _BINDERS.get(op)
        return binder(self, step) if binder else None


class _Weights:
    """Shadow and active weight registers; ``ldw`` fills the shadow, ``mm flip`` takes it."""

    shadow: torch.Tensor | None = None
    active: torch.Tensor | None = None


def _load(executor: Executor, step: Step) -> Thunk:
    source, target = executor.memories.view(step.reads[0]), executor.memories.view(step.writes[0])
    if step.reads[0].dtype == "b8" and target.dtype == torch.float32:
        return functools.partial(_load_bool, target, source)
    return functools.partial(target.copy_, source)


def _load_bool(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source != 0)


def _store(executor: Executor, step: Step) -> Thunk:
    source, target = executor.memories.view(step.reads[0]), executor.memories.view(step.writes[0])
    if source.dtype == torch.float32 and target.dtype in (torch.int8, torch.uint8):
        return functools.partial(_narrow, target, source)
    return functools.partial(target.copy_, source)


def _narrow(target: torch.Tensor, source: torch.Tensor) -> None:
    if target.dtype == torch.uint8:
        target.copy_(source != 0)
    else:
        target.copy_(source.round().clamp_(-128, 127))


def _gather(executor: Executor, step: Step) -> Thunk:
    """ldx: rows of contiguous channels where the layout allows, single elements otherwise."""
    window = step.window
    assert window is not None
    outside, inside = step.reads[0], step.writes[0]
    target = executor.memories.view(inside)
    a = step.instruction.args
    size = 4 if outside.dtype in ("f32", "i32") else outside.col_pitch
    typed = executor.memories.strided(
        outside.memory, outside.dtype, (executor.memories.bytes[outside.memory].numel() // size,), (1,), 0
    )
    base = int(a["addr"]) // size
    offsets, valid = window_offsets(window)
    fill = bits_float(window.fill)
    channels, whole = window.channels, window.k0 % window.channels == 0 and window.k % window.channels == 0
    pixels = window.height * window.width
    if whole and window.cstride == 1 and window.wstride and window.hstride == window.width * window.wstride:
        table = typed.as_strided((pixels, channels), (window.wstride, 1), base)
        rows = torch.div(offsets[:, ::channels], window.wstride, rounding_mode="floor").reshape(-1)
        outside_rows = (~valid[:, ::channels]).reshape(-1).nonzero().reshape(-1)
        rows[outside_rows] = 0
        direct = target.is_contiguous() and target.dtype == typed.dtype
        flat = target.view(-1, channels) if direct else None
        return functools.partial(_gather_rows, table, rows, outside_rows, fill, flat, target)
    indices = (offsets + base).masked_fill_(~valid, 0)
    return functools.partial(_gather_elements, typed, indices, None if bool(valid.all()) else ~valid, fill, target)


def _gather_rows(
    table: torch.Tensor,
    rows: torch.Tensor,
    outside: torch.Tensor,
    fill: float,
    flat: torch.Tensor | None,
    target: torch.Tensor,
) -> None:
    if flat is not None:
        torch.index_select(table, 0, rows, out=flat)
        if outside.numel():
            flat.index_fill_(0, outside, fill)
        return
    gathered = table.index_select(0, rows)
    if outside.numel():
        gathered.index_fill_(0, outside, fill)
    target.copy_(gathered.view(target.shape))


def _gather_elements(
    typed: torch.Tensor, indices: torch.Tensor, outside: torch.Tensor | None, fill: float, target: torch.Tensor
) -> None:
    gathered = typed[indices]
    target.copy_(gathered if outside is None else gathered.masked_fill(outside, fill))


def window_offsets(window: Window) -> tuple[torch.Tensor, torch.Tensor]:
    """Element offsets [pixels, k] from the image's first element, and which of them lie inside the image."""
    pixel = torch.arange(window.first, window.first + window.count)
    k = torch.arange(window.k0, window.k0 + window.k)
    position, channel = k // window.channels, k % window.channels
    row = (pixel // window.owidth * window.step_h - window.top)[:, None] + (position // window.kw * window.dil_h)[None]
    col = (pixel % window.owidth * window.step_w - window.left)[:, None] + (position % window.kw * window.dil_w)[None]
    valid = (row % window.up_h == 0) & (col % window.up_w == 0) & (row >= 0) & (col >= 0)
    row, col = row // window.up_h, col // window.up_w
    valid &= (row < window.height) & (col < window.width)
    return row * window.hstride + col * window.wstride + channel[None] * window.cstride, valid


def _multiply(executor: Executor, step: Step) -> Thunk:
    a = step.instruction.args
    left, right = (executor.memories.view(block) for block in step.reads[:2])
    result = executor.memories.view(step.writes[0])
    left, right = left.t() if a["ta"] else left, right.t() if a["tb"] else right
    return _product(left, right, result, bool(a["acc"]))


def _product(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, accumulate: bool) -> Thunk:
    if left.dtype == torch.float32:
        if accumulate:
            return functools.partial(result.addmm_, left, right)
        return functools.partial(torch.mm, left, right, out=result)
    return functools.partial(_wide_product, left, right, result, accumulate)


def _wide_product(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, accumulate: bool) -> None:
    # Doubles hold sums of 8-bit products exactly up to 2**53, far beyond any legal k.
    wide = torch.float64 if left.dtype == torch.int8 else torch.float32
    product = torch.mm(left.to(wide), right.to(wide))
    if accumulate:
        result.add_(product.to(result.dtype))
    else:
        result.copy_(product)


def _load_weights(executor: Executor, step: Step) -> Thunk:
    source = executor.memories.view(step.reads[0])
    source = source.t() if step.instruction.args["tb"] else source
    weights = executor._weights

    def load() -> None:
        weights.shadow = source.clone()

    return load


def _fold(executor: Executor, step: Step) -> Thunk:
    a = step.instruction.args
    left, result = executor.memories.view(step.reads[0]), executor.memories.view(step.writes[0])
    weights = executor._weights

    def fold() -> None:
        if a["flip"]:
            weights.active = weights.shadow
        assert weights.active is not None  # check.py refuses an mm without weights
        _product(left, weights.active, result, bool(a["acc"]))()

    return fold


def _lazy(name: str) -> Callable[[Executor, Step], Thunk]:
    def bind(executor: Executor, step: Step) -> Thunk:
        from fxscope.targets.npu import vector_unit

        binder: Callable[[Memories, Step], Thunk] = getattr(vector_unit, name)
        return binder(executor.memories, step)

    return bind


_BINDERS: dict[str, Callable[[Executor, Step], Thunk]] = {
    "ld": _load,
    "st": _store,
    "ldx": _gather,
    "gemm": _multiply,
    "ldw": _load_weights,
    "mm": _fold,
    "ewu": _lazy("unary"),
    "ewb": _lazy("binary"),
    "ewi": _lazy("immediate"),
    "red": _lazy("reduce"),
    "pool": _lazy("pool"),
    "xpose": _lazy("transpose"),
}
