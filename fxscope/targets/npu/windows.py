"""Geometry of gathers: images as channels-last views, depth folded into channels, the registers of ``ldx``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxscope.targets.npu.access import View
from fxscope.targets.npu.encoding import float_bits
from fxscope.targets.npu.groups import Const, Value
from fxscope.targets.npu.lowering import Island

Triple = tuple[int, int, int]


class Geometry(NamedTuple):
    """How a convolution walks: depth, vertical, horizontal; a dimension that is not there has stride 1 and padding 0."""

    stride: Triple
    padding: Triple
    dilation: Triple
    transposed: bool = False

    @classmethod
    def of(cls, rank: int, stride: Any, padding: Any, dilation: Any, transposed: bool = False) -> Geometry:
        """From the arguments of aten.convolution with ``rank`` spatial dimensions."""
        return cls(triple(stride, rank, 1), triple(padding, rank, 0), triple(dilation, rank, 1), bool(transposed))


def triple(values: Any, rank: int, default: int) -> Triple:
    """An attribute (a number, or one per spatial dimension, or none) as depth, vertical, horizontal."""
    items = [int(v) for v in values] if isinstance(values, list | tuple) else [int(values)]
    if len(items) <= 1:
        items = (items or [default]) * rank
    items = [default] * (3 - rank) + items
    return items[0], items[1], items[2]


def spatial(view: View) -> View:
    """[n, c, l], [n, c, h, w] or [n, c, d, h, w] as [n, c, d, h, w]."""
    missing = 5 - len(view.shape)
    return View(
        view.buffer,
        (*view.shape[:2], *(1 for _ in range(missing)), *view.shape[2:]),
        (*view.strides[:2], *(0 for _ in range(missing)), *view.strides[2:]),
        view.offset,
    )


def channels_last(island: Island, x: Value, *, dense: bool = False) -> View:
    """A value of up to three spatial dimensions as [n, d, h, w, c].

    Channels of values made here become contiguous by a copy where they are not; those of inputs only if ``dense``.
    """
    view = spatial(island.builder.materialise(x)).permute((0, 2, 3, 4, 1))
    if view.shape[4] > 1 and view.strides[4] != 1 and (dense or view.buffer.kind != "input"):
        view = island.builder.copy(view)
    return view


def padded(
    island: Island,
    image: View,
    sizes: Sequence[int],
    low: Sequence[int],
    up: Sequence[int],
    order: Sequence[int] | None = None,
) -> View:
    """Zeros of ``sizes`` with element i of each dimension at low + i * up; what falls outside is cut off.

    ``order`` lists the dimensions from slow to fast in memory (default: as they are).
    """
    builder = island.builder
    target = builder.dense(f"{builder.node}_padded", image.dtype, sizes, "scratch", order)
    inside = target
    whole = True
    for dim, (size, first, step) in enumerate(zip(sizes, low, up, strict=True)):
        begin = max(0, -(first // step))
        end = min(image.shape[dim] - 1, (size - 1 - first) // step)
        if end < begin:
            begin, end = 0, -1
        whole = whole and step == 1 and end - begin + 1 == size
        image = image.slice(dim, begin, end + 1)
        inside = inside.slice(dim, first + begin * step, first + end * step + 1, step)
    if not whole:
        zero = builder.materialise(Const(0.0))
        builder.copy(zero.expand(sizes), target=target)
    if inside.numel:
        filled = set(target.buffer.makers)
        builder.copy(image, target=inside)
        builder.depend(builder.groups[-1], filled)
    return target


def depth_as_channels(
    island: Island, image: View, kernel: int, geometry: Geometry, up: int, pad: int, depth: int, groups: int
) -> View:
    """[n, d, h, w, c] as [n, depth, h, w, groups * kernel * c / groups]: the taps of a kernel in depth lie side by side.

    Along depth, memory is laid out so that neighbouring planes of a pixel are neighbours: without dilation and groups the
    taps overlap as views and only the padding costs a copy.
    """
    n, d, h, w, c = image.shape
    step, spread = (1 if geometry.transposed else geometry.stride[0]), geometry.dilation[0]
    if kernel == 1 and pad == 0 and up == 1:
        return image.slice(1, 0, (depth - 1) * step + 1, step)
    need = (depth - 1) * step + (kernel - 1) * spread + 1
    own = c // groups
    parts = View(
        image.buffer,
        (n, d, h, w, groups, own),
        (*image.strides[:4], own * image.strides[4], image.strides[4]),
        image.offset,
    )
    dense = padded(
        island, parts, (n, need, h, w, groups, own), (0, pad, 0, 0, 0, 0), (1, up, 1, 1, 1, 1), (0, 2, 3, 4, 1, 5)
    )
    sn, sd, sh, sw, sg, sc = dense.strides
    taps = View(
        dense.buffer,
        (n, depth, h, w, groups, kernel, own),
        (sn, step * sd, sh, sw, sg, spread * sd, sc),
        dense.offset,
    )
    shape = (n, depth, h, w, groups * kernel * own)
    found = taps.reshape(shape) or island.builder.copy(taps).reshape(shape)
    assert found is not None  # a dense copy takes any shape
    return found


def packed(pair: Sequence[int]) -> int:
    """Two 16-bit numbers in a register."""
    return (pair[0] & 0xFFFF) | (pair[1] & 0xFFFF) << 16


def window_registers(
    image: View,
    channels: int,
    kernel: Sequence[int],
    step: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    out_width: int,
    fill: float = 0.0,
    up: Sequence[int] = (1, 1),
) -> dict[str, int]:
    """Registers of ldx for one layer; ``image`` is [..., h, w, c]."""
    height, width, depth = image.shape[-3:]
    hs, ws, cs = image.strides[-3:]
    return {
        "x.height": height,
        "x.width": width,
        "x.hstride": hs if height > 1 else ws * width,
        "x.wstride": ws,
        "x.cstride": cs if depth > 1 else 1,
        "x.kernel": packed(kernel),
        "x.step": packed(step),
        "x.dilation": packed(dilation),
        "x.pad": packed(pad),
        "x.owidth": out_width,
        "x.channels": channels,
        "x.fill": float_bits(fill),
        "x.up": packed(up),
    }
