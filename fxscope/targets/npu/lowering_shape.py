"""Lowerings of ops that only move or rename elements: views where strides allow, copies where not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.access import View, contiguous
from fxscope.targets.npu.groups import Const, Reg, Value
from fxscope.targets.npu.lowering import Island, lowering

if TYPE_CHECKING:
    from torch.fx import Node


def reshape(island: Island, x: Value, shape: Sequence[int]) -> Value:
    """The same elements in row-major order under another shape."""
    shape = tuple(shape)
    if isinstance(x, Const) or tuple(x.shape) == shape:
        return x
    if isinstance(x, Reg) and x.group.order is None and x.kind in ("full", "col"):
        fits = x.group.is_full(shape) and x.group.is_full(x.shape)
        column = x.kind == "col" and x.group.rows == math.prod(shape) == math.prod(x.shape)
        if fits or column:
            return Reg(x.group, x.number, shape, x.kind, x.dtype, base=x)
    view = island.builder.materialise(x)
    found = view.reshape(shape)
    if found is not None:
        return found
    # A copy in the source's own order moves long runs; it will do where the new shape only joins dimensions before it.
    order = sorted(range(len(view.shape)), key=lambda d: -view.strides[d])
    leading = [d for d in range(len(view.shape) - 2) if view.shape[d] != 1]
    kept = [*sorted(leading), *(d for d in order if d not in leading)]
    trial = View(view.buffer, view.shape, contiguous(view.shape, kept), 0)
    dense = island.builder.copy(view, kept if trial.reshape(shape) is not None else None)
    found = dense.reshape(shape)
    assert found is not None  # a dense copy takes any shape
    return found


def _view(island: Island, x: Value) -> View:
    return island.builder.materialise(x)


@lowering(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
)
def view(island: Island, node: Node, x: Value, *_: Any) -> Value:
    """A reshape; the result's shape is known."""
    return reshape(island, x, island.shape(node))


@lowering(
    "aten.alias.default",
    "aten.clone.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.contiguous.default",
)
def same(island: Island, node: Node, x: Value, **_: Any) -> Value:
    """The value itself: graphs are functional, and layouts inside an island are ours."""
    return x


TURNS = ("aten.permute.default", "aten.t.default", "aten.transpose.int")


def turn(node: Node, rank: int) -> list[int]:
    """The order of dimensions that one of TURNS makes."""
    order = list(range(rank))
    args: Any = node.args
    if str(node.target) == "aten.permute.default":
        return [int(d) % rank for d in args[1]]
    if str(node.target) == "aten.t.default":
        return order[::-1]
    first, second = int(args[1]) % rank, int(args[2]) % rank
    order[first], order[second] = order[second], order[first]
    return order


@lowering(*TURNS)
def permute(island: Island, node: Node, x: Value, *_: Any) -> Value:
    """Dimensions in another order; no element moves."""
    if isinstance(x, Const):
        return x
    order = turn(node, len(x.shape))
    return x if order == list(range(len(order))) else _view(island, x).permute(order)


@lowering("aten.expand.default")
def expand(island: Island, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    """Stride 0."""
    shape = island.shape(node)
    return x if isinstance(x, Const) or tuple(x.shape) == shape else _view(island, x).expand(shape)


@lowering("aten.repeat.default")
def repeat(island: Island, node: Node, x: Value, times: Sequence[int]) -> Value:
    """Every dimension behind one of stride 0, joined by a copy where it has to be."""
    if isinstance(x, Const):
        return x
    view = _view(island, x)
    own = (*(1 for _ in range(len(times) - len(view.shape))), *view.shape)
    single = tuple(size for pair in zip((1 for _ in own), own, strict=True) for size in pair)
    wide = tuple(size for pair in zip((int(t) for t in times), own, strict=True) for size in pair)
    apart = view.reshape(single)
    assert apart is not None  # dimensions of size 1 go anywhere
    return reshape(island, apart.expand(wide), island.shape(node))


@lowering("aten.slice.Tensor")
def slice_(
    island: Island, node: Node, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """Part of a dimension."""
    if isinstance(x, Const) or tuple(x.shape) == island.shape(node):
        return x
    dim %= len(x.shape)
    size = x.shape[dim]
    begin = 0 if start is None else min(max(start + size if start < 0 else start, 0), size)
    stop = size if end is None else min(max(end + size if end < 0 else end, 0), size)
    return _view(island, x).slice(dim, begin, stop, step)


@lowering("aten.select.int")
def select(island: Island, node: Node, x: Value, dim: int, index: int) -> Value:
    """One index of a dimension."""
    if isinstance(x, Const):
        return x
    dim %= len(x.shape)
    return _view(island, x).select(dim, index % x.shape[dim])


@lowering("aten.split_with_sizes.default", "aten.split.Tensor", "aten.unbind.int")
def split(island: Island, node: Node, x: Value, sizes: Any = 0, dim: int = 0) -> tuple[Value, ...]:
    """Slices of one dimension; unbind drops it."""
    whole = _view(island, x)
    if str(node.target) == "aten.unbind.int":
        dim = int(sizes) % len(whole.shape)
        return tuple(whole.select(dim, index) for index in range(whole.shape[dim]))
    dim %= len(whole.shape)
    if isinstance(sizes, int):
        sizes = [min(sizes, whole.shape[dim] - at) for at in range(0, whole.shape[dim], sizes)]
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return tuple(whole.slice(dim, end - size, end) for end, size in zip(ends, sizes, strict=True))


@lowering("aten.cat.default")
def cat(island: Island, node: Node, parts: Sequence[Value], dim: int = 0) -> Value:
    """Every part stored at its place: by the group that makes it where its layout allows, else by a copy."""
    shape = island.shape(node)
    dim %= len(shape)
    kept: list[Reg | View] = []
    for number, part in enumerate(parts):
        meta: Any = node.args[0][number].meta["val"]
        if tuple(meta.shape) != (0,):
            kept.append(_view(island, part).expand(tuple(meta.shape)) if isinstance(part, Const) else part)
    order: Sequence[int] | None = None
    first = kept[0]
    if isinstance(first, Reg):
        order = first.group.order
    elif isinstance(first, View) and 0 not in first.strides:
        order = sorted(range(len(shape)), key=lambda d: -first.strides[d] if first.shape[d] > 1 else -(1 << 60))
    target = island.builder.dense(node.name, island.dtype(node), shape, "scratch", order)
    at = 0
    for part in kept:
        place = target.slice(dim, at, at + part.shape[dim])
        at += part.shape[dim]
        if isinstance(part, Reg) and part.dtype == target.dtype and island.builder.store_into(part, place):
            continue
        island.builder.copy(_view(island, part).expand(part.shape), target=place)
    return target


@lowering("aten.constant_pad_nd.default")
def constant_pad(island: Island, node: Node, x: Value, pad: Sequence[int], value: float = 0) -> Value:
    """The border filled, then the inside copied; negative padding cuts."""
    shape = island.shape(node)
    source = _view(island, x)
    target = island.builder.dense(node.name, source.dtype, shape, "scratch")
    island.builder.copy(_view(island, island.value(value)).expand(shape), target=target)
    inside = target
    for index in range(len(pad) // 2):
        dim = len(shape) - 1 - index
        low, high = int(pad[2 * index]), int(pad[2 * index + 1])
        source = source.slice(dim, max(-low, 0), source.shape[dim] - max(-high, 0))
        inside = inside.slice(dim, max(low, 0), shape[dim] - max(high, 0))
    filled = set(target.buffer.makers)
    island.builder.copy(source, target=inside)
    island.builder.depend(island.builder.groups[-1], filled)
    return target


@lowering(
    "aten.full.default",
    "aten.full_like.default",
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.ones.default",
    "aten.ones_like.default",
    "aten.scalar_tensor.default",
)
def full(island: Island, node: Node, *args: Any, **_: Any) -> Value:
    """A number; it takes memory only where somebody needs it there."""
    name = str(node.target)
    if "zeros" in name or "ones" in name:
        return Const(1.0 if "ones" in name else 0.0)
    return Const(float(args[0] if "scalar_tensor" in name else args[1]))
