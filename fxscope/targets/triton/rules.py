"""What each ATen op that is more than one expression computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxscope.targets.triton.builder import Builder, Ref, compute_dtype

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
MEAN, SUM = 1, 2  # torch's reduction codes


def rule(*packets: str) -> Callable[[Rule], Rule]:
    """Register a rule: ``f(builder, *args in schema order with defaults) -> Ref or tuple``."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(packets, function))
        return function

    return register


def _dims(x: Ref, dim: Any) -> list[int]:
    """Which dimensions: None and [] mean all."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(len(x.dims)))
    return [dim] if isinstance(dim, int) else list(dim)


def _wide(b: Builder, x: Ref, dtype: torch.dtype | None = None) -> Ref:
    """The value as the accumulator's dtype, without rounding anything."""
    return b.cast(x, compute_dtype(dtype or x.dtype))


# -- pointwise


@rule("aten.add", "aten.sub", "aten.rsub")
def add(b: Builder, x: Any, y: Any, alpha: Any = 1, *, packet: str) -> Ref:
    """X + alpha * y and its kin; the scale applies to the second argument."""
    if alpha != 1:
        scaled = b.op("aten.mul", y if packet != "aten.rsub" else x, alpha, name="scaled")
        x, y = (x, scaled) if packet != "aten.rsub" else (scaled, y)
    return b.op(packet, x, y)


@rule("aten.div")
def div(b: Builder, x: Any, y: Any, rounding_mode: str | None = None, *, packet: str) -> Ref:
    """Division; integers divide without a detour through floats when the result is rounded."""
    if rounding_mode is None:
        return b.op("aten.div", x, y)
    dtype = b.op("aten.mul", x, y).dtype
    b.values.pop()
    x, y = (b.cast(v, dtype) if isinstance(v, Ref) else v for v in (x, y))
    if dtype.is_floating_point:
        text = "libdevice.floor({0} / {1})" if rounding_mode == "floor" else "libdevice.trunc({0} / {1})"
    else:
        text = "device.floor_div({0}, {1})" if rounding_mode == "floor" else "({0} // {1})"
    return b.map(text, x, y, dtype=dtype)


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


# -- reductions


@rule("aten.sum", "aten.mean")
def total(
    b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, dtype: Any = None, *, packet: str, val: Any
) -> Ref:
    """Sum or mean over dimensions; half types accumulate in float32."""
    wide = _wide(b, x, val.dtype)
    if packet == "aten.sum":
        out = b.sum(wide, _dims(x, dim), keepdim=keepdim)
    else:
        out = b.mean(wide, _dims(x, dim), keepdim=keepdim, name="mean")
    return b.cast(out, val.dtype)


@rule("aten.amax", "aten.amin")
def extreme(b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, *, packet: str) -> Ref:
    """Largest or smallest; NaN wins."""
    return b.reduce(packet[-3:], x, _dims(x, dim), keepdim=keepdim)


@rule("aten.max", "aten.min")
def extreme_with_index(
    b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, other: Ref | None = None, *, packet: str
) -> Any:
    """Of two tensors, over everything, or over one dimension with the index of the first one."""
    kind = packet[-3:]
    if other is not None:
        return b.op("aten.maximum" if kind == "max" else "aten.minimum", x, other)
    if dim is None:
        return b.reduce(kind, x, _dims(x, None), keepdim=False)
    return b.reduce(kind, x, [dim], keepdim=keepdim), b.reduce("arg" + kind, x, [dim], keepdim=keepdim)


@rule("aten.argmax", "aten.argmin")
def arg_extreme(b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, *, packet: str) -> Ref:
    """Index of the first largest or smallest."""
    return b.reduce(packet[5:], x, _dims(x, dim), keepdim=keepdim)


@rule("aten.any", "aten.all")
def any_all(b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, *, packet: str) -> Ref:
    """Whether one, or every one, is not zero."""
    flags = b.cast(b.op("aten.ne", x, 0, name="nonzero"), torch.int32)
    return b.cast(b.reduce("max" if packet == "aten.any" else "min", flags, _dims(x, dim), keepdim=keepdim), torch.bool)


def _moments(b: Builder, x: Ref, dims: list[int], correction: float = 0.0) -> tuple[Ref, Ref, Ref]:
    """Mean, x - mean and variance, in two passes over the row: exact where the mean is large."""
    mean = b.mean(x, dims)
    centred = b.map("{0} - {1}", x, mean, name="centred")
    squares = b.sum(b.map("{0} * {0}", centred, name="square"), dims, name="square_sum")
    count = b.count(x, dims) - correction
    return mean, centred, b.map("{0} / {1}", squares, float(max(count, 0.0)), name="variance")


@rule("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def variance(
    b: Builder, x: Ref, dim: Any = None, correction: Any = 1, keepdim: bool = False, *, packet: str, val: Any
) -> Any:
    """Variance, deviation, with or without the mean."""
    dims = _dims(x, dim)
    mean, _, var = _moments(b, _wide(b, x), dims, 1 if correction is None else correction)
    if "std" in packet:
        var = b.op("aten.sqrt", var, name="deviation")
    dtype = x.dtype
    out = tuple(b.cast(v if keepdim else b.squeeze(v, dims), dtype) for v in (var, mean))
    return out if packet.endswith("mean") else out[0]


@rule("aten.logsumexp")
def logsumexp(b: Builder, x: Ref, dim: Any, keepdim: bool = False, *, packet: str) -> Ref:
    """log(sum(exp(x))), shifted by the maximum where that is finite."""
    dims = _dims(x, dim)
    wide = _wide(b, x)
    top = b.reduce("max", wide, dims)
    shift = b.where(b.op("aten.isinf", top, name="infinite"), 0.0, top, name="shift")
    out = b.op("aten.log", b.sum(b.op("aten.exp", wide - shift, name="exp"), dims), name="log") + shift
    return b.cast(out if keepdim else b.squeeze(out, dims), x.dtype)


@rule("aten._softmax", "aten._log_softmax")
def softmax(b: Builder, x: Ref, dim: int, half_to_float: bool, *, packet: str, val: Any) -> Ref:
    """Softmax and its logarithm, shifted by the row's maximum."""
    wide = _wide(b, x)
    shifted = b.map("{0} - {1}", wide, b.reduce("max", wide, [dim]), name="shifted")
    exp = b.op("aten.exp", shifted, name="exp")
    total = b.sum(exp, [dim])
    if packet == "aten._softmax":
        out = b.map("{0} * {1}", exp, b.map("1.0 / {0}", total, name="scale"), name="out")
    else:
        out = b.map("{0} - {1}", shifted, b.op("aten.log", total, name="log"), name="out")
    return b.cast(out, val.dtype)


@rule("aten._softmax_backward_data", "aten._log_softmax_backward_data")
def softmax_backward(b: Builder, g: Ref, y: Ref, dim: int, dtype: Any, *, packet: str, val: Any) -> Ref:
    """Gradient of softmax from its result."""
    wide, y = _wide(b, g), _wide(b, y)
    if packet == "aten._softmax_backward_data":
        product = b.map("{0} * {1}", wide, y, name="product")
        out = b.map("{0} - {1} * {2}", product, y, b.sum(product, [dim]), name="out")
    else:
        out = b.map("{0} - {1} * {2}", wide, b.op("aten.exp", y, name="exp"), b.sum(wide, [dim]), name="out")
    return b.cast(out, val.dtype)


def _affine(b: Builder, x: Ref, weight: Ref | None, bias: Ref | None) -> Ref:
    if weight is not None:
        x = b.map("{0} * {1}", x, _wide(b, weight), name="scaled")
    return x if bias is None else b.map("{0} + {1}", x, _wide(b, bias), name="shifted")


@rule("aten.native_layer_norm")
def layer_norm(
    b: Builder, x: Ref, shape: Any, weight: Ref | None, bias: Ref | None, eps: float, *, packet: str, val: Any
) -> Any:
    """Layer norm over the last dimensions."""
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    mean, centred, var = _moments(b, _wide(b, x), dims)
    rstd = b.map("tl.rsqrt({0} + {1})", var, float(eps), name="rstd")
    out = _affine(b, b.map("{0} * {1}", centred, rstd, name="normed"), weight, bias)
    return b.cast(out, x.dtype), b.cast(mean, val[1].dtype), b.cast(rstd, val[2].dtype)


@rule("aten._fused_rms_norm")
def rms_norm(b: Builder, x: Ref, shape: Any, weight: Ref | None, eps: float | None, *, packet: str, val: Any) -> Any:
    """Root-mean-square norm over the last dimensions."""
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    wide = _wide(b, x)
    eps = torch.finfo(x.dtype).eps if eps is None else float(eps)
    rstd = b.map("tl.rsqrt({0} + {1})", b.mean(b.map("{0} * {0}", wide, name="square"), dims), eps, name="rstd")
    out = _affine(b, b.map("{0} * {1}", wide, rstd, name="normed"), weight, None)
    return b.cast(out, x.dtype), b.cast(rstd, val[1].dtype)


def _norm_backward(
    b: Builder, g: Ref, normed: Ref, rstd: Ref, weight: Ref | None, dims: list[int], *, centred: bool
) -> Ref:
    wide = g if weight is None else b.map("{0} * {1}", g, _wide(b, weight), name="scaled")
    slope = b.mean(b.map("{0} * {1}", wide, normed, name="product"), dims, name="slope")
    if not centred:
        return b.map("{0} * ({1} - {2} * {3})", rstd, wide, normed, slope, name="grad")
    level = b.mean(wide, dims, name="level")
    return b.map("{0} * ({1} - {2} - {3} * {4})", rstd, wide, level, normed, slope, name="grad")


@rule("aten.native_layer_norm_backward")
def layer_norm_backward(
    b: Builder, g: Ref, x: Ref, shape: Any, mean: Ref, rstd: Ref, weight: Any, bias: Any, mask: Any, *, packet: str
) -> Any:
    """Gradients of layer norm; those of weight and bias are sums over the rows."""
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    rows = list(range(len(x.dims) - len(shape)))
    wide = _wide(b, g)
    normed = b.map("({0} - {1}) * {2}", _wide(b, x), mean, rstd, name="normed")
    dx = b.cast(_norm_backward(b, wide, normed, rstd, weight, dims, centred=True), x.dtype) if mask[0] else None
    dw = db = None
    if mask[1]:
        dw = b.sum(
            b.map("{0} * {1}", wide, normed, name="weight_term"), rows, keepdim=False, name="weight", partial=True
        )
    if mask[2]:
        db = b.sum(wide, rows, keepdim=False, name="bias", partial=True)
    return dx, dw, db


@rule("aten._fused_rms_norm_backward")
def rms_norm_backward(b: Builder, g: Ref, x: Ref, shape: Any, rstd: Ref, weight: Any, mask: Any, *, packet: str) -> Any:
    """Gradients of the root-mean-square norm."""
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    rows = list(range(len(x.dims) - len(shape)))
    wide = _wide(b, g)
    normed = b.map("{0} * {1}", _wide(b, x), rstd, name="normed")
    dx = b.cast(_norm_backward(b, wide, normed, rstd, weight, dims, centred=False), x.dtype) if mask[0] else None
    dw = None
    if mask[1]:
        dw = b.sum(
            b.map("{0} * {1}", wide, normed, name="weight_term"), rows, keepdim=False, name="weight", partial=True
        )
    return dx, dw


@rule("aten.native_group_norm")
def group_norm(
    b: Builder,
    x: Ref,
    weight: Any,
    bias: Any,
    n: int,
    c: int,
    hw: int,
    groups: int,
    eps: float,
    *,
    packet: str,
    val: Any,
) -> Any:
    """Group norm: channels in groups, everything else of a group in one row."""
    rows = b.reshape(_wide(b, x), (n, groups, c // groups, hw))
    mean, centred, var = _moments(b, rows, [2, 3])
    rstd = b.map("tl.rsqrt({0} + {1})", var, float(eps), name="rstd")
    normed = b.map("{0} * {1}", centred, rstd, name="normed")
    per_channel = [v if v is None else b.reshape(v, (1, groups, c // groups, 1)) for v in (weight, bias)]
    out = b.reshape(b.cast(_affine(b, normed, *per_channel), x.dtype), val[0].shape)
    flat = [b.cast(b.squeeze(v, [2, 3]), val[1].dtype) for v in (mean, rstd)]
    return out, *flat


@rule("aten._native_batch_norm_legit_no_training")
def batch_norm(
    b: Builder, x: Ref, weight: Any, bias: Any, mean: Ref, var: Ref, momentum: Any, eps: float, *, packet: str, val: Any
) -> Any:
    """Batch norm with the running statistics."""
    shape = [1 if d != 1 else x.shape[1] for d in range(len(x.dims))]
    per = {
        k: None if v is None else b.reshape(_wide(b, v), shape)
        for k, v in {"w": weight, "b": bias, "m": mean, "v": var}.items()
    }
    scale = b.map("tl.rsqrt({0} + {1})", per["v"], float(eps), name="rstd")
    out = _affine(b, (_wide(b, x) - per["m"]) * scale, per["w"], per["b"])
    return b.cast(out, x.dtype), None, None


def _picked(b: Builder, x: Ref, target: Ref, name: str) -> Ref:
    """Where the column is the row's target, of the same rank as x."""
    return b.map("{0} == {1}", b.index(x, -1), target, dtype=torch.bool, name=name)


@rule("aten.nll_loss_forward")
def nll_loss(
    b: Builder, x: Ref, target: Ref, weight: Any, reduction: int, ignore: int, *, packet: str, val: Any
) -> Any:
    """Negative log-likelihood of the targets: a row reduction that picks one column."""
    wide = _wide(b, x)
    column = Ref(target.value, (*target.dims, ()), b)
    picked = b.where(_picked(b, x, column, "picked"), wide, 0.0, name="term")
    loss = b.squeeze(-b.sum(picked, [-1], name="picked_sum"), [-1])
    kept = b.op("aten.ne", target, ignore, name="kept")
    loss = b.where(kept, loss, 0.0, name="loss")
    if reduction not in (MEAN, SUM):
        return b.cast(loss, x.dtype), b.cast(b.const(0, torch.float32), val[1].dtype)
    count = b.cast(b.sum(b.cast(kept, torch.float32), [0], keepdim=False, name="count"), val[1].dtype)
    total = b.sum(loss, [0], keepdim=False, name="total")
    return b.cast(total / count if reduction == MEAN else total, x.dtype), count


@rule("aten.nll_loss_backward")
def nll_loss_backward(
    b: Builder, g: Ref, x: Ref, target: Ref, weight: Any, reduction: int, ignore: int, total: Ref, *, packet: str
) -> Ref:
    """Minus the gradient at the target's column, 0 elsewhere."""
    column = Ref(target.value, (*target.dims, ()), b)
    if reduction == MEAN:
        g = g / total
    elif reduction == 0:
        g = Ref(g.value, (*g.dims, ()), b)
    hit = b.op(
        "aten.logical_and", _picked(b, x, column, "picked"), b.op("aten.ne", column, ignore, name="kept"), name="hit"
    )
    return b.cast(b.where(hit, -g, 0.0), x.dtype)


@rule("aten.gather")
def gather(b: Builder, x: Ref, dim: int, index: Ref, sparse: bool = False, *, packet: str) -> Ref:
    """One element per row, as a row reduction that picks it."""
    hit = b.map("{0} == {1}", b.index(x, dim), index, dtype=torch.bool, name="picked")
    return b.reduce("sum", b.where(hit, x, 0, name="term"), [dim], keepdim=True, name="sum")
