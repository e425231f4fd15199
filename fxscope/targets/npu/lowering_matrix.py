"""Lowerings of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.access import View
from fxscope.targets.npu.groups import Const, Matrix, Reg, Value
from fxscope.targets.npu.lowering import Island, lowering
from fxscope.targets.npu.lowering_integers import matrix_sums, operands, scaled
from fxscope.targets.npu.lowering_shape import reshape

if TYPE_CHECKING:
    from torch.fx import Node


def product(island: Island, left: View, right: View, shape: tuple[int, ...], dtype: str) -> Reg:
    """[images..., m, k] @ [images..., k, n]; a result of ``shape``."""
    m, k = left.shape[-2:]
    n = right.shape[-1]
    images = math.prod(left.shape[:-2])
    matrix = Matrix(m, n, k, images, 1, left, right, left.dtype)
    group = island.builder.group(images * m, n, shape, None, matrix)
    if left.dtype == "i8":
        group.raw.add(0)
    island.builder.depend(group, left.buffer.makers | right.buffer.makers)
    return Reg(group, 0, shape, "full", dtype)


def _matrices(island: Island, x: Value, shape: Sequence[int]) -> View:
    """A value as [images, rows, columns]."""
    view = island.builder.materialise(x).expand(shape)
    rank = len(view.shape)
    return View(view.buffer, (1,) * (3 - rank) + view.shape, (0,) * (3 - rank) + view.strides, view.offset)


_RESHAPES = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
_SAME = ("aten.clone.default", "aten.expand.default", "aten.contiguous.default")


def _before_join(island: Island, node: Node) -> View | None:
    """The view [images..., rows, columns] that a batch of matrices was joined from, where no element has to move for it.

    ``view`` of a transposed [batch, heads, ...] needs a copy to join its two leading dimensions; a product does not.
    """
    rank, at = node.meta["val"].shape[-2:], node
    while str(at.target) in (*_RESHAPES, *_SAME):
        before = at.args[0]
        shape = before.meta["val"].shape
        if len(shape) < 3 or tuple(shape[-2:]) != tuple(rank):
            return None
        at = before
        value = island.values[at]
        if len(shape) > 3 and isinstance(value, View) and shape.numel() == node.meta["val"].numel():
            return value
    return None


@lowering("aten.mm.default", "aten.bmm.default", "aten._int_mm.default")
def mm(island: Island, node: Node, a: Value, b: Value) -> Value:
    """A product, or one per batch element."""
    shape, dtype = island.shape(node), island.dtype(node)
    if len(shape) == 3:
        left, right = (_before_join(island, arg) for arg in node.args)
        if left is not None and right is not None and left.shape[:-2] == right.shape[:-2]:
            return product(island, left, right, shape, dtype)
    return _product_of(island, node.args, a, b, shape, dtype)


def _product_of(island: Island, nodes: Sequence[Any], a: Value, b: Value, shape: tuple[int, ...], dtype: str) -> Value:
    """A product of two operands; on the integers where both were dequantised."""
    shapes = [tuple(int(size) for size in arg.meta["val"].shape) for arg in nodes]
    found = operands(island, nodes[0], nodes[1], len(shapes[1]) - 1)
    if found is None:
        return product(island, _matrices(island, a, shapes[0]), _matrices(island, b, shapes[1]), shape, dtype)
    left, right = found
    out = product(
        island, _matrices(island, left.view, shapes[0]), _matrices(island, right.view, shapes[1]), shape, "f32"
    )
    columns, rows = matrix_sums(island, left, right, shapes[0], shapes[1])
    per_column = (*(1 for _ in shape[:-1]), shape[-1])
    return scaled(island, out, left, right, columns, rows, shapes[0][-1], shape, per_column)


@lowering("aten.addmm.default", "aten.baddbmm.default")
def addmm(island: Island, node: Node, bias: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value:
    """Beta * bias + alpha * (a @ b)."""
    shape, dtype = island.shape(node), island.dtype(node)
    out = _product_of(island, node.args[1:3], a, b, shape, dtype)
    if alpha != 1:
        out = island.binary("mul", out, Const(float(alpha)), shape, dtype)
    if beta == 0:
        return out
    if beta != 1 and not isinstance(bias, Const):
        bias = island.binary("mul", bias, Const(float(beta)), bias.shape, dtype)
    return island.binary("add", out, bias, shape, dtype)


@lowering("aten.mv.default", "aten.dot.default")
def mv(island: Island, node: Node, a: Value, b: Value) -> Value:
    """A product with a column."""
    shapes = [tuple(arg.meta["val"].shape) for arg in node.args]
    left = island.builder.materialise(a).expand(shapes[0])
    right = island.builder.materialise(b).expand(shapes[1])
    if len(left.shape) == 1:
        left = View(left.buffer, (1, *left.shape), (0, *left.strides), left.offset)
    right = View(right.buffer, (1, *right.shape, 1), (0, *right.strides, 1), right.offset)
    left = View(left.buffer, (1, *left.shape), (0, *left.strides), left.offset)
    out = product(island, left, right, (left.shape[1], 1), island.dtype(node))
    return reshape(island, out, island.shape(node))
