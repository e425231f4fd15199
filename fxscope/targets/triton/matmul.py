"""Matrix products with what follows them in one kernel: where that is possible, and in which formulations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from fxscope.targets.triton.ir import Axes, Kernel, Memory, Value
from fxscope.targets.triton.nest import INT32, Nest
from fxscope.targets.triton.nodes import packet
from fxscope.targets.triton.schedule import LIBRARY, Schedule, candidates

if TYPE_CHECKING:
    from torch.fx import Node

    from fxscope.targets.triton.fuse import Plan

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, eq=False)
class Operand:
    """A matrix (or vector) in memory: strides of its two dimensions in elements, 0 where it is repeated."""

    memory: Memory
    offset: int
    rows: int
    cols: int


class MatmulNest(Nest):
    """The loop nest of a pointwise kernel whose rows and columns are those of a matrix product that it starts from.

    Attributes:
        a, b: (rows, depth) and (depth, columns).
        bias: Added to the product, None for ``mm``.
        product: The values that stand for the product.
        node: Name of the product's FX node.
        library: The kernel that is the library call, and ``tail`` what then follows it; for comparison.
    """

    def __init__(
        self, fused: Kernel, axes: Axes, product: list[Value], library: Kernel, operands: list[Operand], depth: int
    ) -> None:
        columns = set(axes.flat(axes.dims(product[0].dims)[-1]))
        super().__init__(fused, axes, columns=columns)
        self.product = product
        self.library = library
        self.node = library.nodes[0]
        self.depth = depth
        self.bias = operands[0] if len(operands) == 3 else None
        self.a, self.b = operands[-2:]
        self.tail: Nest | None = None
        self.write_tail: Callable[[Nest, Schedule], Any] | None = None

    @property
    def dtype(self) -> Any:
        """Of the operands."""
        return self.a.memory.dtype

    def fits(self) -> bool:
        """Whether rows and columns are the product's own, in its order, and everything is written once."""
        if len(self.product[0].dims) != 2 or not self.rows or not self.cols:
            return False
        rows, cols = _row_major(self.rows, self.col_count), _row_major(self.cols, 1)
        if any((a.rows, a.cols, a.offset) != (rows, cols, 0) for a in map(self.access, self.product)):
            return False
        if any(self.target(at)[2] != "full" for at in range(len(self.kernel.stores))):
            return False
        return all(_span(operand, self) <= INT32 for operand in (self.a, self.b)) and not self.int64()


def _row_major(sizes: tuple[int, ...], inner: int) -> tuple[int, ...]:
    strides = []
    for size in reversed(sizes):
        strides.append(inner)
        inner *= size
    return tuple(reversed(strides))


def _span(operand: Operand, nest: MatmulNest) -> int:
    sizes = (nest.row_count, nest.depth) if operand is nest.a else (nest.depth, nest.col_count)
    return abs(operand.rows) * (sizes[0] - 1) + abs(operand.cols) * (sizes[1] - 1) + abs(operand.offset)


def epilogues(plan: Plan) -> dict[int, MatmulNest]:
    """By the index of the pointwise kernel: the nest in which it and the product before it would be one kernel.

    The product must be used by that kernel alone, element by element in its own rows and columns.
    """
    found: dict[int, MatmulNest] = {}
    nodes = {node.name: node for node in plan.island.graph.nodes}
    returned = {memory for memory, _ in plan.outputs}
    for kernel in plan.kernels.values():
        if kernel.extern is None:
            continue
        node = nodes[kernel.nodes[0]]
        memory = plan.memory[(node, 0)]
        users = [other for other in plan.kernels.values() if kernel.index in other.needs]
        if memory in returned or len(users) != 1 or users[0].extern is not None or users[0].index in found:
            continue
        operands = _operands(plan, kernel, node)
        tail = users[0]
        product = [value for value in tail.values if value.op == "load" and value.memory is memory]
        pointwise = all(value.op != "reduce" for value in tail.values)
        if operands is None or not product or not pointwise or not tail.stores:
            continue
        if not all(len(plan.axes.dims(value.dims)) == 2 for value in product):
            continue
        fused = Kernel(tail.index, tail.values, tail.stores, nodes=[*kernel.nodes, *tail.nodes])
        nest = MatmulNest(fused, plan.axes, product, kernel, operands, int(operands_depth(node)))
        if nest.fits():
            found[tail.index] = nest
    return found


def operands_depth(node: Node) -> int:
    """The size over which a product sums."""
    left: Any = node.args[-2]
    return int(left.meta["val"].shape[1])


def _operands(plan: Plan, kernel: Kernel, node: Node) -> list[Operand] | None:
    """(bias,) a and b of an ``mm`` or ``addmm`` that a kernel of ours can compute; else None."""
    assert kernel.extern is not None
    _, args, kwargs = kernel.extern
    if packet(node) not in ("aten.mm", "aten.addmm") or kwargs:
        return None
    out = []
    for position, (arg, source) in enumerate(zip(args, node.args, strict=True)):
        assert isinstance(arg, tuple)
        memory, seen = arg
        value = source.meta["val"]
        if memory.dtype not in DTYPES or memory.dtype != node.meta["val"].dtype:
            return None
        strides, offset = tuple(memory.strides), 0
        if seen is not None:
            key, _ = plan.root(source)
            base = key[0].meta["val"]
            base = base[key[1]] if isinstance(base, (tuple, list)) else base
            if memory.source is None and tuple(base.stride()) != strides:
                return None
            strides, offset = tuple(value.stride()), int(value.storage_offset() - base.storage_offset())
        if len(args) == 3 and position == 0:
            shape = (1,) * (2 - value.dim()) + tuple(value.shape)
            strides = (0,) * (2 - value.dim()) + strides
            strides = tuple(0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))
        out.append(Operand(memory, offset, *strides))
    return out


@candidates.register
def _products(nest: MatmulNest) -> list[Schedule]:
    """The library call first, which is what is taken untimed; then tiles of the product from large to small."""
    half = nest.dtype.itemsize == 2
    shapes = [
        (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4), (64, 256, 32, 4, 4),
        (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4), (32, 64, 64, 4, 5), (16, 64, 128, 4, 4), (16, 128, 64, 4, 4),
    ]  # fmt: skip
    rows, cols = nest.row_count, nest.col_count
    out = []
    for tile, block, depth, warps, stages in shapes:
        if not half:
            depth //= 2
        small = (tile > 16 and tile >= 2 * rows) or (block > 64 and block >= 2 * cols)
        if not small and 3 * math.prod((tile, block)) <= 2**17:
            # Of small tiles many wait where they start early, in shared memory that the kernel ahead could use.
            plain = Schedule("matmul", block, warps, tile=tile, depth=depth, stages=stages, early=False)
            out += [plain, replace(plain, early=True)] if tile * block >= 2**14 else [plain]
    return [LIBRARY, *(out or [Schedule("matmul", 64, 4, tile=16, depth=32, stages=3, early=False)])]
