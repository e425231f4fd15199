"""Quantised values: products on the integers themselves, with the corrections that zero points and scales per channel need.

With qa, qb the integers, za, zb their zero points and sa, sb their scales, a product over k of (qa - za) sa and (qb - zb) sb is

    sa sb (sum qa qb - za sum qb - zb (sum qa - K za))

The first sum is exact in i32 on the matrix unit; the others are one number per column or row (the gemmlowp paper's equation 7,
arXiv 1712.05877), added up on the vector unit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from fxscope.targets.npu.access import View
from fxscope.targets.npu.groups import Const, Value
from fxscope.targets.npu.lowering import Island, lowering
from fxscope.targets.npu.lowering_pointwise import reduction
from fxscope.targets.npu.lowering_shape import TURNS, reshape, turn

if TYPE_CHECKING:
    from torch.fx import Node

_PER_TENSOR = "quantized_decomposed.dequantize_per_tensor.default"
_PER_CHANNEL = "quantized_decomposed.dequantize_per_channel.default"


class Integers(NamedTuple):
    """A dequantised operand before it was dequantised.

    Attributes:
        view: The i8 tensor.
        scale, zero: One number each, or a value with one entry per index of dimension ``axis``.
    """

    view: View
    scale: Value
    zero: Value
    axis: int | None

    @property
    def symmetric(self) -> bool:
        """Known to have zero point 0."""
        return isinstance(self.zero, Const) and self.zero.value == 0


def integers(island: Island, node: Any) -> Integers | None:
    """The i8 tensor behind an operand, through transpositions; None for any other operand."""
    name = str(node.target)
    if name in (_PER_TENSOR, _PER_CHANNEL):
        stored = node.args[0].meta["val"]
        if str(stored.dtype) != "torch.int8":
            return None
        view = island.builder.materialise(island.values[node.args[0]])
        scale, zero = (island.values.get(arg, arg) for arg in node.args[1:3])
        axis = int(node.args[3]) % stored.dim() if name == _PER_CHANNEL else None
        return Integers(view, island.value(scale), island.value(0 if zero is None else zero), axis)
    if name in TURNS:
        found = integers(island, node.args[0])
        if found is None:
            return None
        order = turn(node, len(found.view.shape))
        axis = None if found.axis is None else order.index(found.axis)
        return found._replace(view=found.view.permute(order), axis=axis)
    return None


def operands(island: Island, a: Node, b: Node, column: int) -> tuple[Integers, Integers] | None:
    """Both operands of a product as integers, where the machine can multiply them so.

    The left one has one scale, the right one one scale or one per index of its dimension ``column``.
    """
    left, right = integers(island, a), integers(island, b)
    if left is None or right is None or left.axis is not None or right.axis not in (None, column):
        return None
    return left, right


def scaled(
    island: Island,
    out: Value,
    left: Integers,
    right: Integers,
    column_sums: Value | None,
    row_sums: Value | None,
    depth: int,
    shape: tuple[int, ...],
    per_column: tuple[int, ...],
) -> Value:
    """The product in f32: corrected for zero points, then scaled.

    ``column_sums`` of the right operand and ``row_sums`` of the left one broadcast to ``shape``, as a value per column does
    under the shape ``per_column``; ``depth`` is K.
    """

    def wide(value: Value) -> Value:
        return value if isinstance(value, Const) else reshape(island, value, per_column)

    if column_sums is not None:
        out = island.binary("sub", out, _times(island, column_sums, left.zero), shape, "f32")
    if row_sums is not None:
        assert isinstance(left.zero, Const)  # axis is None
        sums: Value = row_sums
        if left.zero.value:
            own = row_sums.shape if not isinstance(row_sums, Const) else ()
            sums = island.binary("sub", row_sums, Const(depth * left.zero.value), own, "f32")
        correction = island.binary("mul", sums, wide(right.zero), shape, "f32")
        out = island.binary("sub", out, correction, shape, "f32")
    return island.binary("mul", out, wide(_times(island, right.scale, left.scale)), shape, "f32")


def _times(island: Island, value: Value, factor: Value) -> Value:
    """A value times a number."""
    shape = value.shape if not isinstance(value, Const) else ()
    return island.binary("mul", value, factor, shape, "f32")


def matrix_sums(
    island: Island, left: Integers, right: Integers, a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[Value | None, Value | None]:
    """Sums that a product [..., m, k] @ [..., k, n] needs: of the columns [..., 1, n] and of the rows [..., m, 1]."""
    columns = None if left.symmetric else reduction(island, "sum", right.view, b, [len(b) - 2], "f32")
    rows = None if right.symmetric else reduction(island, "sum", left.view, a, [len(a) - 1], "f32")
    return columns, rows


def kernel_sums(island: Island, left: Integers, right: Integers, shape: tuple[int, ...]) -> Value | None:
    """Sum of every kernel [out, in, ...], as [out, 1, ...] without the first dimension's neighbours: [1, out, 1, ...]."""
    if left.symmetric:
        return None
    sums = reduction(island, "sum", right.view, shape, list(range(1, len(shape))), "f32")
    return reshape(island, sums, (1, shape[0], *(1 for _ in shape[2:])))


@lowering(_PER_CHANNEL, "quantized_decomposed.quantize_per_channel.default")
def per_channel(
    island: Island,
    node: Node,
    x: Value,
    scales: Value,
    zeros: Value | None,
    axis: int,
    low: int,
    high: int,
    dtype: Any,
    **_: Any,
) -> Value:
    """As per tensor, with a scale and a zero point per index of one dimension."""
    shape, out = island.shape(node), island.dtype(node)
    own = tuple(size if d == axis % len(shape) else 1 for d, size in enumerate(shape))
    count = math.prod(own)
    if "dequantize" in str(node.target):
        if zeros is not None:
            x = island.binary("sub", x, reshape(island, zeros, own), shape, "f32")
        return island.binary("mul", x, reshape(island, scales, own), shape, out)
    inverse = island.binary("div", Const(1.0), scales, (count,), "f32")
    x = island.unary("round", island.binary("mul", x, reshape(island, inverse, own), shape, "f32"), shape, "f32")
    if zeros is not None:
        x = island.binary("add", x, reshape(island, zeros, own), shape, "f32")
    return island.binary(
        "min", island.binary("max", x, Const(float(low)), shape, "f32"), Const(float(high)), shape, out
    )


@lowering("quantized_decomposed.quantize_per_tensor.default", _PER_TENSOR)
def per_tensor(
    island: Island, node: Node, x: Value, scale: float, zero: int, low: int, high: int, dtype: Any, **_: Any
) -> Value:
    """round(x / scale) + zero, saturated; or (x - zero) * scale. Rounding is half to even."""
    shape, out = island.shape(node), island.dtype(node)
    if "dequantize" in str(node.target):
        shifted = island.binary("sub", x, Const(float(zero)), shape, "f32") if zero else x
        return island.binary("mul", shifted, Const(float(scale)), shape, out)
    turned = island.binary("mul", x, Const(1.0 / scale), shape, "f32")
    rounded = island.binary("add", island.unary("round", turned, shape, "f32"), Const(float(zero)), shape, "f32")
    floor = island.binary("max", rounded, Const(float(low)), shape, "f32")
    return island.binary("min", floor, Const(float(high)), shape, out)
