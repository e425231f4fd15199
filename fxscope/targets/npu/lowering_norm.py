"""Lowerings of normalisations, with the statistics of the data or with running ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.groups import Const, Value
from fxscope.targets.npu.lowering import Island, lowering
from fxscope.targets.npu.lowering_pointwise import moments, reduction
from fxscope.targets.npu.lowering_shape import reshape

if TYPE_CHECKING:
    from torch.fx import Node


def _inverse_deviation(island: Island, variance: Value, eps: float, shape: tuple[int, ...]) -> Value:
    return island.unary("rsqrt", island.binary("add", variance, Const(eps), shape, "f32"), shape, "f32")


def _affine(
    island: Island,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    own: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: str,
) -> Value:
    """X * weight + bias, both under the shape ``own``."""
    if weight is not None:
        x = island.binary("mul", x, reshape(island, weight, own), shape, dtype)
    return x if bias is None else island.binary("add", x, reshape(island, bias, own), shape, dtype)


@lowering("aten.native_layer_norm.default")
def layer_norm(
    island: Island, node: Node, x: Value, normalized: list[int], weight: Value | None, bias: Value | None, eps: float
) -> Any:
    """(x - mean) * rsqrt(var + eps) * weight + bias; also mean and rstd."""
    shape, dtype = island.shape(node, 0), island.dtype(node, 0)
    dims = list(range(len(shape) - len(normalized), len(shape)))
    kept = tuple(1 if d in dims else size for d, size in enumerate(shape))
    mean, centred, variance = moments(island, x, shape, dims)
    rstd = _inverse_deviation(island, variance, eps, kept)
    out = island.binary("mul", centred, rstd, shape, dtype)
    return _affine(island, out, weight, bias, tuple(normalized), shape, dtype), mean, rstd


@lowering("aten._fused_rms_norm.default")
def rms_norm(
    island: Island, node: Node, x: Value, normalized: list[int], weight: Value | None, eps: float | None
) -> Any:
    """X * rsqrt(mean(x * x) + eps) * weight; also rstd."""
    import torch

    shape, dtype = island.shape(node, 0), island.dtype(node, 0)
    dims = list(range(len(shape) - len(normalized), len(shape)))
    kept = tuple(1 if d in dims else size for d, size in enumerate(shape))
    small = torch.finfo(node.meta["val"][0].dtype).eps if eps is None else eps
    square = reduction(island, "mean", island.binary("mul", x, x, shape, "f32"), shape, dims, "f32")
    rstd = _inverse_deviation(island, square, small, kept)
    out = island.binary("mul", x, rstd, shape, dtype)
    return _affine(island, out, weight, None, tuple(normalized), shape, dtype), rstd


@lowering("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    island: Island,
    node: Node,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> Any:
    """X * scale + shift per channel, with scale = weight * rsqrt(var + eps), shift = bias - mean * scale."""
    shape, dtype = island.shape(node, 0), island.dtype(node, 0)
    channels = (shape[1],)
    scale = _inverse_deviation(island, variance, eps, channels)
    if weight is not None:
        scale = island.binary("mul", scale, weight, channels, "f32")
    shift = island.binary("mul", mean, scale, channels, "f32")
    shift = (
        island.unary("neg", shift, channels, "f32")
        if bias is None
        else island.binary("sub", bias, shift, channels, "f32")
    )
    out = _affine(island, x, scale, shift, (shape[1], *(1 for _ in shape[2:])), shape, dtype)
    empty = island.builder.dense(f"{node.name}_empty", "f32", (0,), "scratch")
    return out, empty, empty


def _of_batch(
    island: Island, node: Node, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """Normalised by the statistics of the batch, mean, rstd, biased variance; the statistics have one entry per channel."""
    shape, dtype = island.shape(node, 0), island.dtype(node, 0)
    dims = [d for d in range(len(shape)) if d != 1]
    wide = tuple(size if d == 1 else 1 for d, size in enumerate(shape))
    mean, centred, variance = moments(island, x, shape, dims)
    rstd = _inverse_deviation(island, variance, eps, wide)
    out = island.binary("mul", centred, rstd, shape, dtype)
    out = _affine(island, out, weight, bias, (shape[1], *(1 for _ in shape[2:])), shape, dtype)
    mean, rstd, variance = (reshape(island, value, (shape[1],)) for value in (mean, rstd, variance))
    return out, mean, rstd, variance


@lowering("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(
    island: Island,
    node: Node,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalised by the batch; the running statistics move towards it, the variance unbiased."""
    shape = island.shape(node, 0)
    out, mean, rstd, variance = _of_batch(island, node, x, weight, bias, eps)
    count = math.prod(shape) // shape[1]
    unbiased = island.binary("mul", variance, Const(count / max(count - 1, 1)), (shape[1],), "f32")
    return (
        out,
        mean,
        rstd,
        _towards(island, running_mean, mean, momentum, shape[1], island.dtype(node, 3)),
        _towards(island, running_variance, unbiased, momentum, shape[1], island.dtype(node, 4)),
    )


def _towards(island: Island, old: Value, new: Value, momentum: float, channels: int, dtype: str) -> Value:
    kept = island.binary("mul", old, Const(1.0 - momentum), (channels,), "f32")
    return island.binary(
        "add", island.binary("mul", new, Const(momentum), (channels,), "f32"), kept, (channels,), dtype
    )


@lowering("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_running(
    island: Island,
    node: Node,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalised by the batch; what instance norm is made of."""
    return _of_batch(island, node, x, weight, bias, eps)[:3]


@lowering("aten.native_group_norm.default")
def group_norm(
    island: Island,
    node: Node,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> Any:
    """Each group of channels of each image normalised by its own statistics; also mean and rstd."""
    shape, dtype = island.shape(node, 0), island.dtype(node, 0)
    apart = (n, groups, channels // groups, *shape[2:])
    dims = list(range(2, len(apart)))
    kept = (n, groups, *(1 for _ in dims))
    mean, centred, variance = moments(island, reshape(island, x, apart), apart, dims)
    rstd = _inverse_deviation(island, variance, eps, kept)
    out = island.binary("mul", centred, rstd, apart, "f32")
    own = (groups, channels // groups, *(1 for _ in shape[2:]))
    out = reshape(island, _affine(island, out, weight, bias, own, apart, dtype), shape)
    return out, reshape(island, mean, (n, groups)), reshape(island, rstd, (n, groups))
