"""What each ATen op that reduces rows computes: sums, extremes, norms, softmax, losses, and their gradients."""

from __future__ import annotations

from typing import Any

import torch

from fxscope.targets.triton.builder import Builder, Ref
from fxscope.targets.triton.rules import RULES, dimensions, rule, widened

__all__ = ["RULES"]  # with those of this module

MEAN, SUM = 1, 2  # torch's reduction codes


@rule("aten.sum", "aten.mean")
def total(
    b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, dtype: Any = None, *, packet: str, val: Any
) -> Ref:
    """Sum or mean over dimensions; half types accumulate in float32."""
    wide = widened(b, x, val.dtype)
    if packet == "aten.sum":
        out = b.sum(wide, dimensions(x, dim), keepdim=keepdim)
    else:
        out = b.mean(wide, dimensions(x, dim), keepdim=keepdim, name="mean")
    return b.cast(out, val.dtype)


@rule("aten.amax", "aten.amin")
def extreme(b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, *, packet: str) -> Ref:
    """Largest or smallest; NaN wins."""
    return b.reduce(packet[-3:], x, dimensions(x, dim), keepdim=keepdim)


@rule("aten.max", "aten.min")
def extreme_with_index(
    b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, other: Ref | None = None, *, packet: str
) -> Any:
    """Of two tensors, over everything, or over one dimension with the index of the first one."""
    kind = packet[-3:]
    if other is not None:
        return b.op("aten.maximum" if kind == "max" else "aten.minimum", x, other)
    if dim is None:
        return b.reduce(kind, x, dimensions(x, None), keepdim=False)
    return b.reduce(kind, x, [dim], keepdim=keepdim), b.reduce("arg" + kind, x, [dim], keepdim=keepdim)


@rule("aten.argmax", "aten.argmin")
def arg_extreme(b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, *, packet: str) -> Ref:
    """Index of the first largest or smallest."""
    return b.reduce(packet[5:], x, dimensions(x, dim), keepdim=keepdim)


@rule("aten.any", "aten.all")
def any_all(b: Builder, x: Ref, dim: Any = None, keepdim: bool = False, *, packet: str) -> Ref:
    """Whether one, or every one, is not zero."""
    flags = b.cast(b.op("aten.ne", x, 0, name="nonzero"), torch.int32)
    return b.cast(
        b.reduce("max" if packet == "aten.any" else "min", flags, dimensions(x, dim), keepdim=keepdim), torch.bool
    )


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
    dims = dimensions(x, dim)
    mean, _, var = _moments(b, widened(b, x), dims, 1 if correction is None else correction)
    if "std" in packet:
        var = b.op("aten.sqrt", var, name="deviation")
    dtype = x.dtype
    out = tuple(b.cast(v if keepdim else b.squeeze(v, dims), dtype) for v in (var, mean))
    return out if packet.endswith("mean") else out[0]


@rule("aten.logsumexp")
def logsumexp(b: Builder, x: Ref, dim: Any, keepdim: bool = False, *, packet: str) -> Ref:
    """log(sum(exp(x))), shifted by the maximum where that is finite."""
    dims = dimensions(x, dim)
    wide = widened(b, x)
    top = b.reduce("max", wide, dims)
    shift = b.where(b.op("aten.isinf", top, name="infinite"), 0.0, top, name="shift")
    out = b.op("aten.log", b.sum(b.op("aten.exp", wide - shift, name="exp"), dims), name="log") + shift
    return b.cast(out if keepdim else b.squeeze(out, dims), x.dtype)


@rule("aten._softmax", "aten._log_softmax")
def softmax(b: Builder, x: Ref, dim: int, half_to_float: bool, *, packet: str, val: Any) -> Ref:
    """Softmax and its logarithm, shifted by the row's maximum."""
    wide = widened(b, x)
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
    wide, y = widened(b, g), widened(b, y)
    if packet == "aten._softmax_backward_data":
        product = b.map("{0} * {1}", wide, y, name="product")
        out = b.map("{0} - {1} * {2}", product, y, b.sum(product, [dim]), name="out")
    else:
        out = b.map("{0} - {1} * {2}", wide, b.op("aten.exp", y, name="exp"), b.sum(wide, [dim]), name="out")
    return b.cast(out, val.dtype)


def _affine(b: Builder, x: Ref, weight: Ref | None, bias: Ref | None) -> Ref:
    if weight is not None:
        x = b.map("{0} * {1}", x, widened(b, weight), name="scaled")
    return x if bias is None else b.map("{0} + {1}", x, widened(b, bias), name="shifted")


@rule("aten.native_layer_norm")
def layer_norm(
    b: Builder, x: Ref, shape: Any, weight: Ref | None, bias: Ref | None, eps: float, *, packet: str, val: Any
) -> Any:
    """Layer norm over the last dimensions."""
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    mean, centred, var = _moments(b, widened(b, x), dims)
    rstd = b.map("tl.rsqrt({0} + {1})", var, float(eps), name="rstd")
    out = _affine(b, b.map("{0} * {1}", centred, rstd, name="normed"), weight, bias)
    return b.cast(out, x.dtype), b.cast(mean, val[1].dtype), b.cast(rstd, val[2].dtype)


@rule("aten._fused_rms_norm")
def rms_norm(b: Builder, x: Ref, shape: Any, weight: Ref | None, eps: float | None, *, packet: str, val: Any) -> Any:
    """Root-mean-square norm over the last dimensions."""
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    wide = widened(b, x)
    eps = torch.finfo(x.dtype).eps if eps is None else float(eps)
    rstd = b.map("tl.rsqrt({0} + {1})", b.mean(b.map("{0} * {0}", wide, name="square"), dims), eps, name="rstd")
    out = _affine(b, b.map("{0} * {1}", wide, rstd, name="normed"), weight, None)
    return b.cast(out, x.dtype), b.cast(rstd, val[1].dtype)


def _norm_backward(
    b: Builder, g: Ref, normed: Ref, rstd: Ref, weight: Ref | None, dims: list[int], *, centred: bool
) -> Ref:
    wide = g if weight is None else b.map("{0} * {1}", g, widened(b, weight), name="scaled")
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
    wide = widened(b, g)
    normed = b.map("({0} - {1}) * {2}", widened(b, x), mean, rstd, name="normed")
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
    wide = widened(b, g)
    normed = b.map("{0} * {1}", widened(b, x), rstd, name="normed")
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
    rows = b.reshape(widened(b, x), (n, groups, c // groups, hw))
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
    """Batch norm with the running statistics, which a GPU also returns (on a CPU they come without elements)."""
    shape = [1 if d != 1 else x.shape[1] for d in range(len(x.dims))]
    rstd = b.map("tl.rsqrt({0} + {1})", widened(b, var), float(eps), name="rstd")
    centre, scale, w, shift = (
        None if v is None else b.reshape(widened(b, v), shape) for v in (mean, rstd, weight, bias)
    )
    out = _affine(b, (widened(b, x) - centre) * scale, w, shift)
    saved = (None, None) if 0 in val[1].shape else (b.cast(mean, val[1].dtype), b.cast(rstd, val[2].dtype))
    return b.cast(out, x.dtype), *saved


def _picked(b: Builder, x: Ref, target: Ref, name: str) -> Ref:
    """Where the column is the row's target, of the same rank as x."""
    return b.map("{0} == {1}", b.index(x, -1), target, dtype=torch.bool, name=name)


@rule("aten.nll_loss_forward")
def nll_loss(
    b: Builder, x: Ref, target: Ref, weight: Any, reduction: int, ignore: int, *, packet: str, val: Any
) -> Any:
    """Negative log-likelihood of the targets: of each row one column."""
    wide = widened(b, x)
    column = Ref(target.value, (*target.dims, ()), b)
    loss = b.squeeze(-b.pick(wide, -1, column), [-1])
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
    """One element per row."""
    return b.pick(x, dim, index)
