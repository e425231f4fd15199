"""Lowerings of convolutions in one, two and three dimensions, and of their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.access import View
from fxscope.targets.npu.groups import Const, Matrix, Reg, Value, Windowed
from fxscope.targets.npu.lowering import Island, lowering
from fxscope.targets.npu.lowering_integers import Integers, kernel_sums, operands, scaled
from fxscope.targets.npu.lowering_pointwise import reduction
from fxscope.targets.npu.lowering_pool import pooled
from fxscope.targets.npu.lowering_shape import reshape
from fxscope.targets.npu.windows import (
    Geometry,
    channels_last,
    depth_as_channels,
    padded,
    spatial,
    triple,
    window_registers,
)

if TYPE_CHECKING:
    from torch.fx import Node


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
    geometry = Geometry.of(rank, stride, padding, dilation, transposed)
    found = (
        None if transposed or (groups > 1 and groups == shape[1]) else operands(island, node.args[0], node.args[1], 0)
    )
    # Depthwise kernels run on the vector unit, in f32. The corrections of zero points are made for flat, ungrouped kernels.
    if found is not None and (all(one.symmetric for one in found) or (groups == 1 and rank < 3)):
        out = _of_integers(island, *found, shape, geometry, groups)
    else:
        out = convolve(island, x, weight, shape, dtype, geometry, groups)
    if bias is not None:
        out = island.binary("add", out, reshape(island, bias, (shape[1], *(1 for _ in range(rank)))), shape, dtype)
    return out


def _of_integers(
    island: Island, left: Integers, right: Integers, shape: tuple[int, ...], geometry: Geometry, groups: int
) -> Value:
    """A convolution on the integers: the border is the zero point, so that it stands for 0."""
    zero = left.zero.value if isinstance(left.zero, Const) else 0.0
    out = convolve(island, left.view, right.view, shape, "f32", geometry, groups, fill=zero)
    weights, given = right.view.shape, left.view.shape
    rows: Value | None = None
    if not right.symmetric:
        sums = reduction(island, "sum", left.view, given, [1], "f32")
        kernel = triple(weights[2:], len(shape) - 2, 1)
        rows = pooled(
            island, sums, (shape[0], 1, *shape[2:]), "f32", kernel, geometry.stride, geometry.padding, geometry.dilation,
            "sum", fill=zero * given[1],
        )  # fmt: skip
    columns = kernel_sums(island, left, right, weights)
    per_column = (shape[1], *(1 for _ in shape[2:]))
    return scaled(island, out, left, right, columns, rows, math.prod(weights[1:]), shape, per_column)


def convolve(
    island: Island,
    x: Value,
    weight: Value,
    shape: tuple[int, ...],
    dtype: str,
    geometry: Geometry,
    groups: int,
    fill: float = 0.0,
) -> Value:
    """A convolution without bias to ``shape``; weights are [out, in / groups, ...], transposed [in, out / groups, ...]."""
    image = channels_last(island, x)
    weights = spatial(island.builder.materialise(weight))
    kernel = weights.shape[2:]
    step, up, pad = geometry.stride, (1, 1, 1), geometry.padding
    if geometry.transposed:
        # A convolution of step 1 over the image with zeros between its pixels, with the kernel turned round.
        step, up = up, step
        pad = tuple(d * (k - 1) - p for d, k, p in zip(geometry.dilation, kernel, geometry.padding, strict=True))  # type: ignore[assignment]
        weights = _turned(weights)
        ins, outs = weights.shape[0] // groups, weights.shape[1]
        part, k, n = ins * weights.strides[0], weights.strides[0], weights.strides[1]
    else:
        outs, ins = weights.shape[0] // groups, weights.shape[1]
        part, k, n = outs * weights.strides[0], weights.strides[1], weights.strides[0]
    taps = weights.strides[2:]
    weights = View(
        weights.buffer,
        (groups, kernel[1], kernel[2], kernel[0], ins, outs),
        (part, taps[1], taps[2], taps[0], k, n),
        weights.offset,
    )
    out = (*(1 for _ in range(5 - len(shape))), *shape[2:])
    image = depth_as_channels(island, image, kernel[0], geometry, up[0], pad[0], out[0], groups)
    merged = (image.shape[0] * image.shape[1], *image.shape[2:])
    joined = image.select(1, 0) if image.shape[1] == 1 else image.reshape(merged)
    image = joined if joined is not None else image
    channels = kernel[0] * ins
    images, pixels = math.prod(image.shape[:-3]), out[1] * out[2]
    window = window_registers(
        image, channels, kernel[1:], step[1:], pad[1:], geometry.dilation[1:], out[2], fill, up[1:]
    )
    anchor: Matrix | Windowed
    if channels == 1 and outs == 1 and groups > 1 and image.strides[-1] == 1 and joined is not None:
        anchor = _depthwise(island, image, weights, window, groups, pixels)
    else:
        anchor = Matrix(
            pixels, outs, kernel[1] * kernel[2] * channels, images, groups, image, weights, image.dtype, window
        )
    group = island.builder.group(images * pixels, shape[1], shape, (0, *range(2, len(shape)), 1), anchor)
    if image.dtype == "i8":
        group.raw.add(0)
    second = anchor.right if isinstance(anchor, Matrix) else anchor.weight
    island.builder.depend(group, image.buffer.makers | (second.buffer.makers if second is not None else set()))
    return Reg(group, 0, shape, "full", dtype)


def _turned(weights: View) -> View:
    """The kernel turned by 180 degrees: negative strides from its last element."""
    offset = weights.offset + sum((weights.shape[d] - 1) * weights.strides[d] for d in (2, 3, 4))
    strides = (*weights.strides[:2], *(-stride for stride in weights.strides[2:]))
    return View(weights.buffer, weights.shape, strides, offset)


def _depthwise(
    island: Island, image: View, weights: View, window: dict[str, int], groups: int, pixels: int
) -> Windowed:
    """One kernel per channel: gather (window, channels), multiply by the weights, add up over the window."""
    window["x.channels"] = groups
    rows, cols = weights.shape[1:3]
    # [groups, kh, kw, 1, 1, 1] as [window, channels]
    flat = View(
        weights.buffer,
        (rows, cols, groups),
        (weights.strides[1], weights.strides[2], weights.strides[0]),
        weights.offset,
    )
    found = flat.reshape((rows * cols, groups))
    if found is None or found.strides[1] != 1 or found.strides[0] < 0:
        dense = island.builder.dense(f"{island.builder.node}_kernel", weights.dtype, (rows, cols, groups), "scratch")
        for row in range(rows):  # a turned kernel has negative strides, which a transfer has not
            for col in range(cols):
                target = dense.select(0, row).select(0, col)
                island.builder.copy(flat.select(0, row).select(0, col), target=target)
        found = dense.reshape((rows * cols, groups))
        assert found is not None
    return Windowed(image, window, rows * cols, groups, pixels, "sum", found)


@lowering("aten.convolution_backward.default")
def convolution_backward(
    island: Island,
    node: Node,
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """Of the input: the convolution the other way round. Of the weights: a product per tap. Of the bias: a sum."""
    shape = tuple(int(size) for size in node.args[0].meta["val"].shape)
    rank = len(shape) - 2
    geometry = Geometry.of(rank, stride, padding, dilation, transposed)
    of_input: Value | None = None
    of_weight: Value | None = None
    of_bias: Value | None = None
    if mask[0]:
        other = geometry._replace(transposed=not transposed)
        of_input = convolve(island, grad, weight, island.shape(node, 0), island.dtype(node, 0), other, groups)
    if mask[1]:
        small, large = (x, grad) if transposed else (grad, x)
        of_weight = _weight_gradient(
            island, small, large, island.shape(node, 1), island.dtype(node, 1), geometry, groups
        )
    if mask[2]:
        dims = [d for d in range(len(shape)) if d != 1]
        total = reduction(island, "sum", grad, shape, dims, island.dtype(node, 2))
        of_bias = reshape(island, total, island.shape(node, 2))
    return of_input, of_weight, of_bias


def _weight_gradient(
    island: Island,
    small: Value,
    large: Value,
    shape: tuple[int, ...],
    dtype: str,
    geometry: Geometry,
    groups: int,
) -> Value:
    """Per tap and group: small [pixels, out / groups] transposed, times the pixels of large that the tap meets.

    ``large`` is what the kernel slides over, ``small`` what comes of it (or goes into it, for a transposed convolution);
    ``shape`` is that of the weights: [channels of small, channels of large / groups, ...].
    """
    left = channels_last(island, small, dense=True)
    right = channels_last(island, large, dense=True)
    out = left.shape[1:4]
    kernel = (*(1 for _ in range(5 - len(shape))), *shape[2:])
    step, spread, low = geometry.stride, geometry.dilation, geometry.padding
    if any(low):
        need = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, step, kernel, spread, strict=True)]
        sizes = (right.shape[0], *need, right.shape[4])
        right = padded(island, right, sizes, (0, *low, 0), (1, 1, 1, 1, 1))
    outs, ins = shape[0] // groups, shape[1]
    pixels = math.prod(left.shape[:4])
    flat = left.reshape((pixels, left.shape[4])) or island.builder.copy(left).reshape((pixels, left.shape[4]))
    assert flat is not None
    strides = right.strides
    taps = tuple(d * s for d, s in zip(spread, strides[1:4], strict=True))
    steps = tuple(s * own for s, own in zip(step, strides[1:4], strict=True))
    if outs == 1 and ins == 1 and groups > 1:
        met = View(
            right.buffer,
            (*kernel, right.shape[0], *out, groups),
            (*taps, strides[0], *steps, strides[4]),
            right.offset,
        )
        product = island.binary("mul", met, left, met.shape, "f32")
        total = reduction(island, "sum", product, met.shape, [3, 4, 5, 6], dtype)
        per_tap = island.builder.materialise(reshape(island, total, (*kernel, groups, 1)))
        return reshape(island, per_tap.permute((3, 4, 0, 1, 2)), shape)
    outer = (*kernel, groups)
    a = View(
        flat.buffer,
        (*outer, outs, pixels),
        (0, 0, 0, outs * flat.strides[1], flat.strides[1], flat.strides[0]),
        flat.offset,
    )
    b = View(
        right.buffer,
        (*outer, right.shape[0], *out, ins),
        (*taps, ins * strides[4], strides[0], *steps, strides[4]),
        right.offset,
    )
    images = math.prod(outer)
    anchor = Matrix(outs, ins, pixels, images, 1, a, b, a.dtype)
    group = island.builder.group(images * outs, ins, (*outer, outs, ins), None, anchor)
    island.builder.depend(group, flat.buffer.makers | right.buffer.makers)
    result = island.builder.materialise(Reg(group, 0, (*outer, outs, ins), "full", dtype))
    return reshape(island, result.permute((3, 4, 5, 0, 1, 2)), shape)
