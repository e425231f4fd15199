"""Lowerings of pooling: windows gathered per channel, reduced over their positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.access import View
from fxscope.targets.npu.groups import Reg, Value, Windowed
from fxscope.targets.npu.lowering import Island, lowering
from fxscope.targets.npu.lowering_matrix import channels_last, pair, window_registers
from fxscope.targets.npu.lowering_shape import reshape

if TYPE_CHECKING:
    from torch.fx import Node


@lowering("aten.max_pool2d_with_indices.default", "aten.max_pool2d.default", "aten.avg_pool2d.default")
def pool(island: Island, node: Node, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, *rest: Any) -> Any:
    """Windows gathered per channel and reduced; indices are not made."""
    name = str(node.target)
    several = "with_indices" in name
    shape, dtype = (
        (island.shape(node, 0), island.dtype(node, 0)) if several else (island.shape(node), island.dtype(node))
    )
    squeezed = len(shape) == 3
    view = island.builder.materialise(x)
    if squeezed:
        view = View(view.buffer, (1, *view.shape), (0, *view.strides), view.offset)
    size = pair(kernel, 2, 1)
    step = pair(stride, 2, 1) if stride else size
    dilation = pair(rest[0], 2, 1) if "max" in name and rest else (1, 1)
    image = channels_last(island, view, 2)
    if image.shape[3] > 1 and image.strides[3] != 1:
        image = island.builder.copy(image)
    full = shape if not squeezed else (1, *shape)
    fill = -math.inf if "max" in name else 0.0
    window = window_registers(image, full[1], size, step, pair(padding, 2, 0), dilation, full[3], fill)
    anchor = Windowed(image, window, size[0] * size[1], full[1], full[2] * full[3], "max" if "max" in name else "mean")
    group = island.builder.group(full[0] * full[2] * full[3], full[1], full, (0, 2, 3, 1), anchor)
    island.builder.depend(group, image.buffer.makers)
    out: Value = Reg(group, 0, full, "full", dtype)
    if squeezed:
        out = reshape(island, out, shape)
    return (out, None) if several else out


@lowering("aten._adaptive_avg_pool2d.default")
def adaptive_pool(island: Island, node: Node, x: Value, size: Sequence[int]) -> Value:
    """An average pool where the output divides the input (the table's own clause refuses the rest)."""
    shape = tuple(int(s) for s in node.args[0].meta["val"].shape)
    out = island.shape(node)
    kernel = (shape[-2] // out[-2], shape[-1] // out[-1])
    return _average(island, node, x, kernel)


def _average(island: Island, node: Node, x: Value, kernel: tuple[int, int]) -> Value:
    """An average over disjoint windows."""
    shape = island.shape(node)
    image = channels_last(island, x, 2)
    if image.shape[3] > 1 and image.strides[3] != 1:
        image = island.builder.copy(image)
    window = window_registers(image, shape[1], kernel, kernel, (0, 0), (1, 1), shape[3])
    anchor = Windowed(image, window, kernel[0] * kernel[1], shape[1], shape[2] * shape[3], "mean")
    group = island.builder.group(shape[0] * shape[2] * shape[3], shape[1], shape, (0, 2, 3, 1), anchor)
    island.builder.depend(group, image.buffer.makers)
    return Reg(group, 0, shape, "full", island.dtype(node))
