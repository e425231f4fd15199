"""Lowerings of products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.access import View
from fxscope.targets.npu.encoding import float_bits
from fxscope.targets.npu.groups import Const, Matrix, Reg, Value, Windowed
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


def _both_integers(island: Island, a: Any, b: Any) -> tuple[View, View, float] | None:
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
    exact = _both_integers(island, *node.args[1:3])
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


def pair(values: Any, rank: int, default: int) -> tuple[int, int]:
    """A convolution attribute as (vertical, horizontal); one spatial dimension is horizontal."""
    items = [int(v) for v in values] if isinstance(values, list | tuple) else [int(values)]
    if not items:
        items = [default]
    if rank == 1:
        return default, items[0]
    return items[0], items[-1]


def channels_last(island: Island, x: Value, rank: int) -> View:
    """An NCHW (or NCL) value as [n, h, w, c]; channels become contiguous by a copy where they are not."""
    view = island.builder.materialise(x)
    if rank == 1:
        view = View(
            view.buffer, (*view.shape[:2], 1, view.shape[2]), (*view.strides[:2], 0, view.strides[2]), view.offset
        )
    view = view.permute((0, 2, 3, 1))
    if view.shape[3] > 1 and view.strides[3] != 1 and view.buffer.kind != "input":
        view = island.builder.copy(view)
    return view


def _packed(a: int, b: int) -> int:
    return (a & 0xFFFF) | (b & 0xFFFF) << 16


def window_registers(
    image: View,
    channels: int,
    kernel: tuple[int, int],
    step: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    out_width: int,
    fill: float = 0.0,
    up: tuple[int, int] = (1, 1),
) -> dict[str, int]:
    """Registers of ldx for one layer."""
    _, height, width, _ = image.shape
    _, hs, ws, cs = image.strides
    return {
        "x.height": height,
        "x.width": width,
        "x.hstride": hs if height > 1 else ws * width,
        "x.wstride": ws,
        "x.cstride": cs if image.shape[3] > 1 else 1,
        "x.kernel": _packed(*kernel),
        "x.step": _packed(*step),
        "x.dilation": _packed(*dilation),
        "x.pad": _packed(*pad),
        "x.owidth": out_width,
        "x.channels": channels,
        "x.fill": float_bits(fill),
        "x.up": _packed(*up),
    }


@lowering("aten.convolution.default")
def convolution(
    island: Island,
    node: Node,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    """An implicit product per image and group: ldx gathers windows of a channels-last image."""
    shape, dtype = island.shape(node), island.dtype(node)
    rank = len(shape) - 2
    exact = _both_integers(island, *node.args[:2])
    scale = 1.0
    if exact is not None and not (groups > 1 and groups == shape[1]):  # depthwise runs on the vector unit, in f32
        x, weight, scale = exact
    image = channels_last(island, x, rank)
    weights = island.builder.materialise(weight)
    if rank == 1:
        weights = View(
            weights.buffer,
            (*weights.shape[:2], 1, weights.shape[2]),
            (*weights.strides[:2], 0, weights.strides[2]),
            weights.offset,
        )
    step, pad, spread = pair(stride, rank, 1), pair(padding, rank, 0), pair(dilation, rank, 1)
    kernel = (weights.shape[2], weights.shape[3])
    up = (1, 1)
    if transposed:
        # A convolution of step 1 over the image with zeros between its pixels, with the kernel turned round.
        up, step = step, (1, 1)
        pad = (spread[0] * (kernel[0] - 1) - pad[0], spread[1] * (kernel[1] - 1) - pad[1])
        weights = _turned(weights)
        channels, outs = weights.shape[0] // groups, weights.shape[1]
        weights = View(
            weights.buffer,
            (groups, kernel[0], kernel[1], channels, outs),
            (
                channels * weights.strides[0],
                weights.strides[2],
                weights.strides[3],
                weights.strides[0],
                weights.strides[1],
            ),
            weights.offset,
        )
    else:
        outs, channels = weights.shape[0] // groups, weights.shape[1]
        weights = View(
            weights.buffer,
            (groups, kernel[0], kernel[1], channels, outs),
            (outs * weights.strides[0], weights.strides[2], weights.strides[3], weights.strides[1], weights.strides[0]),
            weights.offset,
        )
    height, width = (1, shape[2]) if rank == 1 else (shape[2], shape[3])
    pixels = height * width
    window = window_registers(image, channels, kernel, step, pad, spread, width, up=up)
    anchor: Matrix | Windowed
    if channels == 1 and outs == 1 and groups > 1 and image.strides[3] == 1 and up == (1, 1):
        anchor = _depthwise(island, image, weights, window, kernel, groups, pixels)
    else:
        k = kernel[0] * kernel[1] * channels
        anchor = Matrix(pixels, outs, k, image.shape[0], groups, image, weights, image.dtype, window)
    order = (0, *range(2, rank + 2), 1)
    group = island.builder.group(image.shape[0] * pixels, shape[1], shape, order, anchor)
    if image.dtype == "i8":
        group.raw.add(0)
    island.builder.depend(group, image.buffer.makers | anchor_weights(anchor))
    out: Value = Reg(group, 0, shape, "full", dtype)
    if scale != 1.0:
        out = island.binary("mul", out, Const(scale), shape, "f32")
    if bias is not None:
        out = island.binary("add", out, reshape(island, bias, (shape[1], *(1 for _ in range(rank)))), shape, dtype)
    return out


def anchor_weights(anchor: Matrix | Windowed) -> set[int]:
    """Groups that make the second operand."""
    second = anchor.right if isinstance(anchor, Matrix) else anchor.weight
    return set() if second is None else second.buffer.makers


def _turned(weights: View) -> View:
    """The kernel turned by 180 degrees: negative strides from its last element."""
    offset = weights.offset + sum((weights.shape[d] - 1) * weights.strides[d] for d in (2, 3))
    strides = (*weights.strides[:2], -weights.strides[2], -weights.strides[3])
    return View(weights.buffer, weights.shape, strides, offset)


def _depthwise(
    island: Island,
    image: View,
    weights: View,
    window: dict[str, int],
    kernel: tuple[int, int],
    groups: int,
    pixels: int,
) -> Windowed:
    """One kernel per channel: gather (window, channels), multiply by the weights, add up over the window."""
    window["x.channels"] = groups
    # [groups, kh, kw, 1, 1] as [window, channels]
    flat = View(
        weights.buffer,
        (kernel[0], kernel[1], groups),
        (weights.strides[1], weights.strides[2], weights.strides[0]),
        weights.offset,
    )
    found = flat.reshape((kernel[0] * kernel[1], groups))
    if found is None or (groups > 1 and found.strides[1] != 1):
        found = island.builder.copy(flat).reshape((kernel[0] * kernel[1], groups))
        assert found is not None
    return Windowed(image, window, kernel[0] * kernel[1], groups, pixels, "sum", found)
