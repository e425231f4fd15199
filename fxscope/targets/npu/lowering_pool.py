"""Lowerings of pooling: windows gathered per channel, reduced over their positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.access import View
from fxscope.targets.npu.groups import Reg, Value, Windowed
from fxscope.targets.npu.lowering import Island, lowering
from fxscope.targets.npu.lowering_shape import reshape
from fxscope.targets.npu.windows import Triple, channels_last, triple, window_registers

if TYPE_CHECKING:
    from torch.fx import Node


@lowering(
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool2d.default",
    "aten.max_pool3d_with_indices.default",
    "aten.avg_pool2d.default",
    "aten.avg_pool3d.default",
)
def pool(island: Island, node: Node, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, *rest: Any) -> Any:
    """Windows gathered per channel and reduced; indices are not made. Depth is pooled by a second round."""
    name = str(node.target)
    several, rank = "with_indices" in name, 3 if "3d" in name else 2
    shape, dtype = (
        (island.shape(node, 0), island.dtype(node, 0)) if several else (island.shape(node), island.dtype(node))
    )
    full = shape if len(shape) == rank + 2 else (1, *shape)
    given = tuple(int(size) for size in node.args[0].meta["val"].shape)
    x = reshape(island, x, given if len(shape) == rank + 2 else (1, *given))
    size = triple(kernel, rank, 1)
    step = triple(stride, rank, 1) if stride else size
    dilation = triple(rest[0], rank, 1) if "max" in name and rest else (1, 1, 1)
    fn = "max" if "max" in name else "mean"
    out = pooled(island, x, full, dtype, size, step, triple(padding, rank, 0), dilation, fn)
    out = reshape(island, out, shape)
    return (out, None) if several else out


def pooled(
    island: Island,
    x: Value,
    shape: tuple[int, ...],
    dtype: str,
    kernel: Triple,
    step: Triple,
    pad: Triple,
    dilation: Triple,
    fn: str,
    fill: float | None = None,
) -> Value:
    """Pool [n, c, (d,) h, w] to ``shape``: height and width of every plane, then depth as the height of an image."""
    image = channels_last(island, x, dense=True)
    n, d, h, w, channels = image.shape
    planes = image.select(1, 0) if d == 1 else image.reshape((n * d, h, w, channels))
    if planes is None:
        planes = island.builder.copy(image).reshape((n * d, h, w, channels))
        assert planes is not None
    deep = len(shape) == 5 and (kernel[0], step[0], pad[0]) != (1, 1, 0)
    flat = (shape[0], channels, d, *shape[-2:]) if deep else shape
    made: Value = _window(
        island,
        planes,
        flat,
        dtype if not deep else "f32",
        kernel[1:],
        step[1:],
        pad[1:],
        dilation[1:],
        fn,
        fill=fill,
    )
    if not deep:
        return made
    view = channels_last(island, made, dense=True)
    columns = view.reshape((n, d, shape[3] * shape[4], channels))
    assert columns is not None  # stored channels-last
    return _window(
        island, columns, shape, dtype, (kernel[0], 1), (step[0], 1), (pad[0], 0), (dilation[0], 1), fn,
        width=shape[3] * shape[4],
    )  # fmt: skip


def _window(
    island: Island,
    image: View,
    shape: tuple[int, ...],
    dtype: str,
    kernel: Sequence[int],
    step: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    fn: str,
    width: int = 0,
    fill: float | None = None,
) -> Reg:
    if fill is None:
        fill = -math.inf if fn == "max" else 0.0
    pixels = math.prod(shape[2:]) * shape[0] // image.shape[0]
    window = window_registers(image, shape[1], kernel, step, pad, dilation, width or shape[-1], fill)
    anchor = Windowed(image, window, kernel[0] * kernel[1], shape[1], pixels, fn)
    order = (0, *range(2, len(shape)), 1)
    group = island.builder.group(math.prod(shape) // shape[1], shape[1], shape, order, anchor)
    island.builder.depend(group, image.buffer.makers)
    return Reg(group, 0, shape, "full", dtype)


@lowering("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_pool(island: Island, node: Node, x: Value, size: Sequence[int]) -> Value:
    """An average over disjoint windows where the output divides the input (the target refuses the rest)."""
    given = tuple(int(s) for s in node.args[0].meta["val"].shape)
    shape, rank = island.shape(node), len(size)
    full = shape if len(shape) == rank + 2 else (1, *shape)
    kernel = triple([i // o for i, o in zip(given[-rank:], shape[-rank:], strict=True)], rank, 1)
    x = reshape(island, x, given if len(shape) == rank + 2 else (1, *given))
    return reshape(
        island, pooled(island, x, full, island.dtype(node), kernel, kernel, (0, 0, 0), (1, 1, 1), "mean"), shape
    )
