"""Lowerings of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.access import View
from fxscope.targets.npu.groups import Const, Matrix, Reg, Value
from fxscope.targets.npu.lowering import Island, lowering
from fxscope.targets.npu.lowering_shape import reshape

if TYPE_CHECKING:
    from torch.fx import Node


_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
_TURNS = ("aten.permute.default", "aten.t.default", "aten.transpose.int")


def _integers(island: Island, node: Any) -> tuple[View, float] | None:
    """The i8 tensor and the scale behind an operand that was dequantised with zero point 0; None for any other.

    A product of two of them runs on the integers, exactly, and is scaled once: what requantisation on a machine does.
    """
    if str(node.target) == _DEQUANTIZE and node.args[2] == 0:
        view = island.builder.materialise(island.values[node.args[0]])
        return (view, float(node.args[1])) if view.dtype == "i8" else None
    if str(node.target) in _TURNS:
        found = _integers(island, node.args[0])
        turned = island.values[node]
        before = island.values[node.args[0]]
        if found is None or not isinstance(turned, View):
            return None
        stored = island.builder.materialise(before)
        order = [stored.strides.index(stride) for stride in turned.strides]
        return (found[0].permute(order), found[1]) if len(set(order)) == len(order) else None
    return None


def both_integers(island: Island, a: Any, b: Any) -> tuple[View, View, float] | None:
    """Two operands that were dequantised without zero points: the integers and the product of their scales."""
    left, right = _integers(island, a), _integers(island, b)
    return (left[0], right[0], left[1] * right[1]) if left is not None and right is not None else None


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
    shapes = [tuple(arg.meta["val"].shape) for arg in node.args]
    return product(island, _matrices(island, a, shapes[0]), _matrices(island, b, shapes[1]), shape, dtype)


@lowering("aten.addmm.default", "aten.baddbmm.default")
def addmm(island: Island, node: Node, bias: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value:
    """Beta * bias + alpha * (a @ b)."""
    shapes = [tuple(arg.meta["val"].shape) for arg in node.args[1:3]]
    shape, dtype = island.shape(node), island.dtype(node)
    exact = both_integers(island, *node.args[1:3])
    scale = 1.0
    if exact is not None:
        a, b, scale = exact
    out: Value = product(island, _matrices(island, a, shapes[0]), _matrices(island, b, shapes[1]), shape, dtype)
    if scale != 1.0:
        out = island.binary("mul", out, Const(scale), shape, "f32")
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
