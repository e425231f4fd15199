"""Lowerings of element-wise ops, reductions and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.groups import Const, Value
from fxscope.targets.npu.lowering import Island, dtype_name, lowering
from fxscope.targets.npu.lowering_shape import reshape
from fxscope.targets.npu.reductions import reduce as reduce_value

if TYPE_CHECKING:
    from torch.fx import Node

UNARY = {
    "aten.relu.default": "relu",
    "aten.neg.default": "neg",
    "aten.abs.default": "abs",
    "aten.sigmoid.default": "sigmoid",
    "aten.tanh.default": "tanh",
    "aten.silu.default": "silu",
    "aten.exp.default": "exp",
    "aten.exp2.default": "exp2",
    "aten.expm1.default": "expm1",
    "aten.log.default": "log",
    "aten.log1p.default": "log1p",
    "aten.sqrt.default": "sqrt",
    "aten.rsqrt.default": "rsqrt",
    "aten.reciprocal.default": "recip",
    "aten.erf.default": "erf",
    "aten.sin.default": "sin",
    "aten.cos.default": "cos",
    "aten.floor.default": "floor",
    "aten.ceil.default": "ceil",
    "aten.round.default": "round",
    "aten.trunc.default": "trunc",
    "aten.sign.default": "sign",
    "aten.isnan.default": "isnan",
    "aten.logical_not.default": "not",
    "aten.bitwise_not.default": "not",
}
BINARY = {
    "aten.mul.Tensor": "mul",
    "aten.mul.Scalar": "mul",
    "aten.div.Tensor": "div",
    "aten.div.Scalar": "div",
    "aten.maximum.default": "max",
    "aten.minimum.default": "min",
    "aten.pow.Tensor_Scalar": "pow",
    "aten.pow.Tensor_Tensor": "pow",
    "aten.logical_and.default": "and",
    "aten.logical_or.default": "or",
    "aten.bitwise_and.Tensor": "and",
    "aten.bitwise_or.Tensor": "or",
    **{f"aten.{fn}.{kind}": fn for fn in ("lt", "le", "gt", "ge", "eq", "ne") for kind in ("Scalar", "Tensor")},
}


@lowering(*UNARY)
def unary(island: Island, node: Node, x: Value) -> Value:
    """One ewu."""
    return island.unary(UNARY[str(node.target)], x, island.shape(node), island.dtype(node))


@lowering(*BINARY)
def binary(island: Island, node: Node, a: Any, b: Any) -> Value:
    """One ewb or ewi; a power of two is a product, as in torch."""
    fn, shape, dtype = BINARY[str(node.target)], island.shape(node), island.dtype(node)
    if fn == "pow" and b == 2:
        return island.binary("mul", a, a, shape, dtype)
    return island.binary(fn, island.value(a), island.value(b), shape, dtype)


@lowering("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Scalar")
def add(island: Island, node: Node, a: Any, b: Any, alpha: float = 1) -> Value:
    """A + alpha * b, a - alpha * b, b - alpha * a."""
    shape, dtype = island.shape(node), island.dtype(node)
    a, b = island.value(a), island.value(b)
    if "rsub" in str(node.target):
        a, b = b, a
    if alpha != 1:
        own = b.shape if not isinstance(b, Const) else shape
        b = island.binary("mul", b, Const(float(alpha)), own, dtype)
    return island.binary("add" if "add" in str(node.target) else "sub", a, b, shape, dtype)


@lowering("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def where(island: Island, node: Node, condition: Value, a: Any, b: Any) -> Value:
    """Sel."""
    return island.select(condition, island.value(a), island.value(b), island.shape(node), island.dtype(node))


@lowering("aten.masked_fill.Scalar")
def masked_fill(island: Island, node: Node, x: Value, mask: Value, value: Any) -> Value:
    """Sel with a number."""
    return island.select(mask, island.value(value), x, island.shape(node), island.dtype(node))


@lowering("aten.clamp.default", "aten.hardtanh.default", "aten.clamp_min.default", "aten.clamp_max.default")
def clamp(island: Island, node: Node, x: Value, low: Any = None, high: Any = None) -> Value:
    """Max and min with numbers."""
    shape, dtype, name = island.shape(node), island.dtype(node), str(node.target)
    if name.startswith("aten.hardtanh"):
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    if name.startswith("aten.clamp_max"):
        low, high = None, low
    if low is not None:
        x = island.binary("max", x, Const(float(low)), shape, dtype)
    if high is not None:
        x = island.binary("min", x, Const(float(high)), shape, dtype)
    return x


@lowering("aten.leaky_relu.default")
def leaky_relu(island: Island, node: Node, x: Value, slope: float = 0.01) -> Value:
    """max(x, 0) + slope * min(x, 0)."""
    shape, dtype = island.shape(node), island.dtype(node)
    below = island.binary("mul", island.binary("min", x, Const(0.0), shape, dtype), Const(slope), shape, dtype)
    return island.binary("add", island.unary("relu", x, shape, dtype), below, shape, dtype)


@lowering("aten.elu.default")
def elu(island: Island, node: Node, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    """Scale * x where positive, scale * alpha * (exp(input_scale * x) - 1) elsewhere."""
    shape, dtype = island.shape(node), island.dtype(node)

    def scaled(value: Value, factor: float) -> Value:
        return value if factor == 1 else island.binary("mul", value, Const(float(factor)), shape, dtype)

    below = scaled(island.unary("expm1", scaled(x, input_scale), shape, dtype), alpha * scale)
    return island.select(island.binary("gt", x, Const(0.0), shape, "b8"), scaled(x, scale), below, shape, dtype)


@lowering("aten.gelu.default")
def gelu(island: Island, node: Node, x: Value, approximate: str = "none") -> Value:
    """One ewu."""
    fn = "gelu_tanh" if approximate == "tanh" else "gelu"
    return island.unary(fn, x, island.shape(node), island.dtype(node))


@lowering("aten.gelu_backward.default")
def gelu_backward(island: Island, node: Node, grad: Value, x: Value, approximate: str = "none") -> Value:
    """Grad * (Phi(x) + x * phi(x)), the exact form (the table refuses tanh)."""
    shape, dtype = island.shape(node), island.dtype(node)

    def scaled(value: Value, factor: float) -> Value:
        return island.binary("mul", value, Const(factor), shape, dtype)

    cdf = island.binary(
        "add", scaled(island.unary("erf", scaled(x, math.sqrt(0.5)), shape, dtype), 0.5), Const(0.5), shape, dtype
    )
    square = scaled(island.binary("mul", x, x, shape, dtype), -0.5)
    pdf = scaled(island.unary("exp", square, shape, dtype), 1 / math.sqrt(2 * math.pi))
    slope = island.binary("add", cdf, island.binary("mul", x, pdf, shape, dtype), shape, dtype)
    return island.binary("mul", grad, slope, shape, dtype)


@lowering("aten._to_copy.default", "prims.convert_element_type.default")
def to_copy(island: Island, node: Node, x: Value, dtype: Any = None, **_: Any) -> Value:
    """Another data type; layout and device stay."""
    wanted = island.dtype(node) if dtype is None else dtype_name(dtype)
    source = node.args[0].meta["val"].dtype
    return x if dtype_name(source) == wanted else island.cast(x, island.shape(node), wanted)


# Reductions


def _dims(dims: Any, rank: int) -> list[int]:
    if dims is None or dims == []:
        return list(range(rank))
    return sorted({int(d) % max(rank, 1) for d in (dims if isinstance(dims, list | tuple) else [dims])})


def _shape_of(node: Node) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["val"].shape)


def reduction(island: Island, fn: str, x: Value, shape: Sequence[int], dims: Sequence[int], dtype: str) -> Value:
    """Reduce, dimensions kept; nothing to reduce is a copy."""
    if not dims or math.prod(shape[d] for d in dims) == 1:
        kept = tuple(1 if d in dims else size for d, size in enumerate(shape))
        return reshape(island, x, kept)
    return reduce_value(island.builder, fn, x, shape, dims, dtype)


REDUCTIONS = {
    "aten.sum.dim_IntList": "sum",
    "aten.sum.default": "sum",
    "aten.mean.dim": "mean",
    "aten.mean.default": "mean",
    "aten.amax.default": "max",
    "aten.amin.default": "min",
    "aten.any.dim": "max",
    "aten.any.dims": "max",
    "aten.all.dim": "min",
}


@lowering(*REDUCTIONS)
def reduce(island: Island, node: Node, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    """sum, mean, amax, amin, any, all."""
    shape = _shape_of(node.args[0])
    result = reduction(island, REDUCTIONS[str(node.target)], x, shape, _dims(dims, len(shape)), island.dtype(node))
    return reshape(island, result, island.shape(node))


@lowering("aten.var_mean.correction", "aten.var.correction")
def var_mean(
    island: Island, node: Node, x: Value, dims: Any = None, correction: float | None = None, keepdim: bool = False
) -> Any:
    """Two passes over the row: mean, then the mean square of the difference."""
    shape = _shape_of(node.args[0])
    where_ = _dims(dims, len(shape))
    both = "var_mean" in str(node.target)
    out = island.shape(node, 0) if both else island.shape(node)
    mean, _, variance = moments(island, x, shape, where_)
    count = math.prod(shape[d] for d in where_)
    freedom = count - (1 if correction is None else correction)
    factor = count / freedom if freedom > 0 else math.inf  # torch's, too: nan where the squares add up to 0
    if factor != 1:
        kept = tuple(1 if d in where_ else size for d, size in enumerate(shape))
        variance = island.binary("mul", variance, Const(factor), kept, "f32")
    variance = reshape(island, variance, out)
    return (variance, reshape(island, mean, out)) if both else variance


def moments(island: Island, x: Value, shape: tuple[int, ...], dims: list[int]) -> tuple[Value, Value, Value]:
    """Mean, difference from it, biased variance; dimensions kept."""
    mean = reduction(island, "mean", x, shape, dims, "f32")
    centred = island.binary("sub", x, mean, shape, "f32")
    square = island.binary("mul", centred, centred, shape, "f32")
    return mean, centred, reduction(island, "mean", square, shape, dims, "f32")


@lowering("aten._softmax.default", "aten._log_softmax.default")
def softmax(island: Island, node: Node, x: Value, dim: int, half_to_float: bool = False) -> Value:
    """exp(x - max) / sum, or x - max - log(sum)."""
    shape, dtype = island.shape(node), island.dtype(node)
    dims = _dims(dim, len(shape))
    kept = tuple(1 if d in dims else size for d, size in enumerate(shape))
    shifted = island.binary("sub", x, reduction(island, "max", x, shape, dims, "f32"), shape, "f32")
    powers = island.unary("exp", shifted, shape, "f32")
    total = reduction(island, "sum", powers, shape, dims, "f32")
    if "log" in str(node.target):
        return island.binary("sub", shifted, island.unary("log", total, kept, "f32"), shape, dtype)
    return island.binary("div", powers, total, shape, dtype)


@lowering("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default")
def softmax_backward(island: Island, node: Node, grad: Value, output: Value, dim: int, input_dtype: Any) -> Value:
    """(grad - sum(grad * output)) * output, or grad - exp(output) * sum(grad)."""
    shape, dtype = island.shape(node), island.dtype(node)
    dims = _dims(dim, len(shape))
    if "log" in str(node.target):
        total = reduction(island, "sum", grad, shape, dims, "f32")
        share = island.binary("mul", island.unary("exp", output, shape, "f32"), total, shape, "f32")
        return island.binary("sub", grad, share, shape, dtype)
    total = reduction(island, "sum", island.binary("mul", grad, output, shape, "f32"), shape, dims, "f32")
    return island.binary("mul", island.binary("sub", grad, total, shape, "f32"), output, shape, dtype)
