"""What each ATen op that is more than one expression computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxscope.targets.triton.builder import Builder, Ref, compute_dtype, triton_dtype

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*packets: str) -> Callable[[Rule], Rule]:
    """Register a rule: ``f(builder, *args in schema order with defaults) -> Ref or tuple``."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(packets, function))
        return function

    return register


def dimensions(x: Ref, dim: Any) -> list[int]:
    """Which dimensions: None and [] mean all."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(len(x.dims)))
    return [dim] if isinstance(dim, int) else list(dim)


def widened(b: Builder, x: Ref, dtype: torch.dtype | None = None) -> Ref:
    """The value as the accumulator's dtype, without rounding anything."""
    return b.cast(x, compute_dtype(dtype or x.dtype))


# -- pointwise


@rule("aten.add", "aten.sub", "aten.rsub")
def add(b: Builder, x: Any, y: Any, alpha: Any = 1, *, packet: str) -> Ref:
    """X + alpha * y and its kin; of ``rsub`` it is the first argument that is scaled, and taken away."""
    if alpha != 1:
        term = y if packet != "aten.rsub" else x
        scaled = b.op("aten.mul", term, alpha, name="scaled") if isinstance(term, Ref) else term * alpha
        x, y = (x, scaled) if packet != "aten.rsub" else (scaled, y)
    return b.op(packet, x, y)


@rule("aten.div")
def div(b: Builder, x: Any, y: Any, rounding_mode: str | None = None, *, packet: str) -> Ref:
    """Division; where its result is rounded, integers stay integers, and the quotient of floats is the nearest one."""
    if rounding_mode is None:
        return b.op("aten.div", x, y)
    dtype = b.op("aten.mul", x, y).dtype
    b.values.pop()
    x, y = (b.cast(v, dtype) if isinstance(v, Ref) else v for v in (x, y))
    towards_zero = "libdevice.trunc(device.divide({0}, {1}))" if dtype.is_floating_point else "({0} // {1})"
    return b.map("device.floor_div({0}, {1})" if rounding_mode == "floor" else towards_zero, x, y, dtype=dtype)


@rule("aten.floor_divide")
def floor_divide(b: Builder, x: Any, y: Any, *, packet: str) -> Ref:
    """Division rounded down."""
    return div(b, x, y, "floor", packet="aten.div")


@rule("aten.remainder")
def remainder(b: Builder, x: Any, y: Any, *, packet: str) -> Ref:
    """Remainder with the sign of the divisor."""
    dtype = b.op("aten.mul", x, y).dtype
    b.values.pop()
    x, y = (b.cast(v, dtype) if isinstance(v, Ref) else v for v in (x, y))
    return b.map("device.remainder({0}, {1})", x, y, dtype=dtype)


@rule("aten.clamp", "aten.hardtanh")
def clamp(b: Builder, x: Ref, low: Any = None, high: Any = None, *, packet: str) -> Ref:
    """Limit from both sides; NaN stays NaN."""
    if packet == "aten.hardtanh":
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    if low is not None:
        x = b.op("aten.maximum", x, low, name="" if high is None else "low")
    return x if high is None else b.op("aten.minimum", x, high)


@rule("aten.sign")
def sign(b: Builder, x: Ref, *, packet: str) -> Ref:
    """-1, 0 or 1; 0 of NaN, as in PyTorch."""
    kind = triton_dtype(compute_dtype(x.dtype))
    if x.dtype == torch.bool:
        return b.op("aten.clone", x)
    return b.map(f"({{0}} > 0).to({kind}) - ({{0}} < 0).to({kind})", x)


@rule("aten.where")
def where(b: Builder, condition: Ref, x: Any, y: Any, *, packet: str) -> Ref:
    """Select."""
    return b.where(condition, x, y)


@rule("aten.masked_fill")
def masked_fill(b: Builder, x: Ref, mask: Ref, value: Any, *, packet: str) -> Ref:
    """A number (or 0-d tensor) where the mask holds."""
    if isinstance(value, Ref):
        value = b.cast(value, x.dtype)
    return b.where(mask, value if isinstance(value, Ref) else b.const(value, x.dtype), x)


@rule("aten._to_copy", "prims.convert_element_type")
def to_copy(b: Builder, x: Ref, dtype: torch.dtype | None = None, *unused: Any, packet: str) -> Ref:
    """A change of dtype that the program wrote."""
    return b.cast(x, dtype or x.dtype, rounded=True)


@rule("aten.pow")
def power(b: Builder, x: Any, y: Any, *, packet: str) -> Ref:
    """Small powers are products and roots, as everywhere in PyTorch."""
    if isinstance(y, (int, float)) and isinstance(x, Ref):
        if y == 2:
            return b.op("aten.square", x)
        if y == 3:
            return b.op("aten.mul", b.op("aten.square", x, name="square"), x)
        if y == 0.5 and x.dtype.is_floating_point:
            return b.op("aten.sqrt", x)
        if y == -0.5 and x.dtype.is_floating_point:
            return b.op("aten.rsqrt", x)
        if y == 1:
            return b.op("aten.clone", x)
    dtype = b.op("aten.mul", x, y).dtype
    b.values.pop()
    return b.cast(b.op("aten.pow", x, y, name="power"), dtype, rounded=True)


@rule("aten.silu")
def silu(b: Builder, x: Ref, *, packet: str) -> Ref:
    """X * sigmoid(x)."""
    return x * b.op("aten.sigmoid", x, name="gate")


@rule("aten.gelu")
def gelu(b: Builder, x: Ref, approximate: str = "none", *, packet: str) -> Ref:
    """GELU. The tanh form is written with a sigmoid, 0.5 (1 + tanh u) = sigmoid(2u): no cancellation for negative x."""
    if approximate == "tanh":
        inner = b.map("{0} * (1.5957691216057308 + 0.07135481627362952 * {0} * {0})", x, name="inner")
        return x * b.op("aten.sigmoid", inner, name="gate")
    cdf = b.map("0.5 * {0}", b.op("aten.erfc", x * -math.sqrt(0.5), name="erfc"), name="cdf")
    return x * cdf


@rule("aten.gelu_backward")
def gelu_backward(b: Builder, g: Ref, x: Ref, approximate: str = "none", *, packet: str) -> Ref:
    """Gradient of GELU."""
    if approximate == "tanh":
        inner = b.map("{0} * (1.5957691216057308 + 0.07135481627362952 * {0} * {0})", x, name="inner")
        slope = b.map("1.5957691216057308 + 0.21406444881088857 * {0} * {0}", x, name="slope")
        gate = b.op("aten.sigmoid", inner, name="gate")
        return g * b.map("{0} * (1 + {1} * (1 - {0}) * {2})", gate, x, slope, name="grad")
    cdf = b.map("0.5 * {0}", b.op("aten.erfc", x * -math.sqrt(0.5), name="erfc"), name="cdf")
    pdf = b.map("0.3989422804014327 * tl.exp(-0.5 * {0} * {0})", x, name="pdf")
    return g * b.map("{0} + {1} * {2}", cdf, x, pdf, name="grad")


@rule("aten.silu_backward")
def silu_backward(b: Builder, g: Ref, x: Ref, *, packet: str) -> Ref:
    """Gradient of x * sigmoid(x)."""
    gate = b.op("aten.sigmoid", x, name="gate")
    return g * b.map("{0} * (1 + {1} * (1 - {0}))", gate, x, name="grad")


@rule("aten.sigmoid_backward")
def sigmoid_backward(b: Builder, g: Ref, y: Ref, *, packet: str) -> Ref:
    """Gradient of sigmoid from its result."""
    return g * b.map("{0} * (1 - {0})", y, name="grad")


@rule("aten.tanh_backward")
def tanh_backward(b: Builder, g: Ref, y: Ref, *, packet: str) -> Ref:
    """Gradient of tanh from its result."""
    return g * b.map("1 - {0} * {0}", y, name="grad")


@rule("aten.threshold_backward")
def threshold_backward(b: Builder, g: Ref, x: Ref, threshold: Any, *, packet: str) -> Ref:
    """Gradient where x is above the threshold (or NaN), else 0."""
    return b.where(b.op("aten.le", x, threshold, name="below"), 0, g)


@rule("aten.hardtanh_backward")
def hardtanh_backward(b: Builder, g: Ref, x: Ref, low: Any = -1.0, high: Any = 1.0, *, packet: str) -> Ref:
    """Gradient between the limits."""
    outside = b.op(
        "aten.logical_or", b.op("aten.le", x, low, name="low"), b.op("aten.ge", x, high, name="high"), name="outside"
    )
    return b.where(outside, 0, g)


@rule("aten.leaky_relu")
def leaky_relu(b: Builder, x: Ref, slope: Any = 0.01, *, packet: str) -> Ref:
    """X where positive, else slope * x."""
    return b.where(b.op("aten.gt", x, 0, name="positive"), x, x * slope)


@rule("aten.leaky_relu_backward")
def leaky_relu_backward(b: Builder, g: Ref, x: Ref, slope: Any, is_result: bool = False, *, packet: str) -> Ref:
    """Gradient of leaky ReLU."""
    return b.where(b.op("aten.gt", x, 0, name="positive"), g, g * slope)


@rule("aten.elu")
def elu(b: Builder, x: Ref, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0, *, packet: str) -> Ref:
    """Exponential linear unit."""
    low = b.op("aten.expm1", x * input_scale if input_scale != 1 else x, name="expm1") * (alpha * scale)
    return b.where(b.op("aten.gt", x, 0, name="positive"), x * scale, low)


@rule("aten.softplus")
def softplus(b: Builder, x: Ref, beta: Any = 1, threshold: Any = 20, *, packet: str) -> Ref:
    """log(1 + exp(beta x)) / beta, linear above the threshold."""
    scaled = x * float(beta)
    soft = b.op("aten.log1p", b.op("aten.exp", scaled, name="exp"), name="log1p") * (1.0 / beta)
    return b.where(b.op("aten.gt", scaled, float(threshold), name="linear"), x, soft)


@rule("aten.hardsigmoid", "aten.hardswish")
def hardsigmoid(b: Builder, x: Ref, *, packet: str) -> Ref:
    """relu6(x + 3) / 6, times x for hardswish."""
    gate = b.op("aten.minimum", b.op("aten.relu", x + 3.0, name="low"), 6.0, name="gate") * (1.0 / 6.0)
    return gate if packet == "aten.hardsigmoid" else x * gate


@rule("aten.mish")
def mish(b: Builder, x: Ref, *, packet: str) -> Ref:
    """X * tanh(softplus(x))."""
    soft = b.where(
        b.op("aten.gt", x, 20.0, name="linear"), x, b.op("aten.log1p", b.op("aten.exp", x, name="exp"), name="log1p")
    )
    return x * b.op("aten.tanh", soft, name="tanh")


@rule("aten.addcmul", "aten.addcdiv")
def addcmul(b: Builder, x: Ref, y: Ref, z: Ref, value: Any = 1, *, packet: str) -> Ref:
    """X + value * y * z, or / z."""
    other = b.op("aten.mul" if packet == "aten.addcmul" else "aten.div", y, z, name="term")
    return b.op("aten.add", x, other if value == 1 else b.op("aten.mul", other, value, name="scaled"))


@rule("aten.native_dropout_backward")
def native_dropout_backward(b: Builder, g: Ref, mask: Ref, scale: float, *, packet: str) -> Ref:
    """The kept gradient, scaled."""
    return b.op("aten.mul", b.op("aten.mul", g, mask, name="kept"), scale)


@rule("aten.full", "aten.scalar_tensor")
def full(b: Builder, *args: Any, packet: str, val: Any) -> Ref:
    """A constant tensor."""
    shape, value = args[:2] if packet == "aten.full" else ((), args[0])
    return b.const(value, val.dtype, shape)


@rule(
    "aten.full_like", "aten.zeros_like", "aten.ones_like", "aten.new_zeros", "aten.new_ones", "aten.zeros", "aten.ones"
)
def full_like(b: Builder, like: Any, value: Any = None, *unused: Any, packet: str, val: Any) -> Ref:
    """A constant tensor."""
    value = value if packet == "aten.full_like" else int("ones" in packet)
    return b.const(value, val.dtype, tuple(val.shape))


@rule("aten.arange", "prims.iota")
def arange(b: Builder, *unused: Any, packet: str, val: Any, start: int, step: int) -> Ref:
    """Equally spaced integers."""
    return b.arange(int(val.shape[0]), start, step, val.dtype)


@rule("aten.tril", "aten.triu")
def triangle(b: Builder, x: Ref, diagonal: int = 0, *, packet: str) -> Ref:
    """Zero above (tril) or below (triu) a diagonal."""
    row, column = b.index(x, -2, "row_index"), b.index(x, -1, "column_index")
    keep = b.op("aten.le" if packet == "aten.tril" else "aten.ge", column, row + diagonal, name="keep")
    return b.where(keep, x, 0)
