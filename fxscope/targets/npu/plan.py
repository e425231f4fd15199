"""The fast way to the same results: a whole tile loop nest as one batched computation.

The loops of a group repeat the same operations on disjoint tiles, so running each operation once on all rows and columns
gives what the instructions give; only the order in which a product sums over k differs (rounding). Tests hold the two
against each other; ``instructions`` mode runs the encoded program itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional

from fxscope.targets.npu import vector_unit
from fxscope.targets.npu.access import Rows, View
from fxscope.targets.npu.encoding import bits_float
from fxscope.targets.npu.execute import TORCH, Memories
from fxscope.targets.npu.gemm import Plan as ProductPlan
from fxscope.targets.npu.gemm import plan as plan_product
from fxscope.targets.npu.gemm import start
from fxscope.targets.npu.groups import Copy, Group, Matrix, Micro, Operand, Reduce, Windowed
from fxscope.targets.npu.operands import signed16

Thunk = Callable[[], Any]


class Plan:
    """Every group of a schedule, bound to the memories of one executable."""

    def __init__(self, groups: Sequence[Group], memories: Memories) -> None:
        self._runs = [_bind(group, memories) for group in groups if group.stores or isinstance(group.anchor, Copy)]

    def run(self) -> None:
        """All groups in order."""
        for run in self._runs:
            run()


def tensor(
    memories: Memories,
    view: View,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    offset: int = 0,
) -> torch.Tensor:
    """The memory behind a view, or under another shape and strides from ``offset`` elements into it."""
    buffer = view.buffer
    start = buffer.offset + (view.offset + offset) * TORCH[buffer.dtype].itemsize
    return memories.strided(
        buffer.region,
        buffer.dtype,
        view.shape if shape is None else shape,
        view.strides if strides is None else strides,
        start,
    )


def _bind(group: Group, memories: Memories) -> Thunk:
    anchor = group.anchor
    if isinstance(anchor, Copy):
        return _copy(anchor, memories)
    if isinstance(anchor, Reduce):
        return _reduce(group, anchor, memories)
    first: Callable[[], torch.Tensor] | None = None
    if isinstance(anchor, Matrix):
        first = _matrix(anchor, memories)
    elif isinstance(anchor, Windowed):
        first = _windowed(anchor, memories)
    loads = [(load.number, _operand(load, group, memories)) for load in group.loads]
    bools = {load.number for load in group.loads if load.view.dtype == "b8"}
    micros = [(micro.result, _micro(micro), micro.sources) for micro in group.micros]
    stores = [(store.number, _operand(store, group, memories)) for store in group.stores]
    last = {number: index for index, micro in enumerate(group.micros) for number in micro.sources}
    kept = {store.number for store in group.stores}

    def run() -> None:
        values: dict[int, torch.Tensor] = {}
        if first is not None:
            values[0] = first()
        for number, view in loads:
            values[number] = view != 0 if number in bools else view
            if values[number].dtype not in (torch.float32, torch.int32):
                wide = torch.int32 if view.dtype == torch.int8 else torch.float32
                values[number] = values[number].to(wide)
        for index, (result, function, sources) in enumerate(micros):
            values[result] = function(*(values[number] for number in sources))
            for number in sources:
                if last.get(number) == index and number not in kept:
                    values.pop(number, None)
        for number, view in stores:
            _put(view, values[number])

    return run


def _put(view: torch.Tensor, value: torch.Tensor) -> None:
    """Narrowed as st does."""
    if view.dtype == torch.int8 and value.dtype == torch.float32:
        value = value.round().clamp(-128, 127)
    elif view.dtype == torch.uint8:
        value = value != 0
    # A row or column of a full value: the instructions store it once, from the first tile.
    view.copy_(value.reshape(view.shape))


def _operand(operand: Operand, group: Group, memories: Memories) -> torch.Tensor:
    """A load or store as a view over rows x cols (rows over several dimensions are kept apart: [outer..., cols])."""
    kind = operand.kind
    rows = operand.rows
    sizes, strides = (list(rows.sizes), list(rows.strides)) if kind in ("full", "col") else ([1], [0])
    cols, cstride = (group.cols, operand.cstride) if kind in ("full", "row") else (1, 1)
    return tensor(memories, operand.view, [*sizes, cols], [*strides, cstride])


def _flat(value: torch.Tensor) -> torch.Tensor:
    return value if value.dim() == 2 else value.reshape(-1, value.shape[-1])


def _micro(micro: Micro) -> Callable[..., torch.Tensor]:
    fn = micro.fn
    if micro.op == "red":
        function = vector_unit.REDUCE[fn]
        return lambda x: function(_flat(x), 1, keepdim=True)
    if micro.op == "ewi":
        return vector_unit.with_number(fn, micro.imm)
    if fn == "sel":
        return lambda c, a, b: torch.where(_flat(c) != 0, _flat(a), _flat(b))
    if micro.op == "ewb":
        binary = vector_unit.two(fn)
        return lambda a, b: binary(_flat(a), _flat(b))
    unary = vector_unit.one(fn)
    return lambda x: unary(_flat(x))


def _copy(anchor: Copy, memories: Memories) -> Thunk:
    source, target = tensor(memories, anchor.source), tensor(memories, anchor.target)
    return lambda: target.copy_(source)


def _reduce(group: Group, anchor: Reduce, memories: Memories) -> Thunk:
    source = tensor(memories, anchor.source)
    dims = list(range(anchor.kept, len(anchor.source.shape)))
    store = group.stores[0]
    target = tensor(memories, store.view, store.rows.sizes, store.rows.strides)
    function, bools = vector_unit.REDUCE[anchor.fn], anchor.source.dtype == "b8"

    def run() -> None:
        value = function((source != 0 if bools else source).to(torch.float32), dims)
        if anchor.scale != 1.0:
            value = value * anchor.scale
        _put(target, value)

    return run


def _matrix(product: Matrix, memories: Memories) -> Callable[[], torch.Tensor]:
    found = plan_product(product)
    wide = torch.float64 if product.dtype == "i8" else torch.float32
    out = torch.int32 if product.dtype == "i8" else torch.float32
    parts = [
        (_left(found, memories, image, part), _right(found, memories, image, part))
        for image in range(product.images)
        for part in range(product.parts)
    ]
    if len(parts) == 1:
        left, right = parts[0]
        return lambda: torch.mm(left().to(wide), right.to(wide)).to(out)
    if product.window is None and len(product.right.shape) == len(product.left.shape):
        all_left, all_right = tensor(memories, product.left), tensor(memories, product.right)
        return lambda: torch.matmul(all_left.to(wide), all_right.to(wide)).to(out).view(-1, product.n)

    def run() -> torch.Tensor:
        result = torch.empty((product.images, product.m, product.parts, product.n), dtype=out)
        for number, (left, right) in enumerate(parts):
            image, part = divmod(number, product.parts)
            result[image, :, part] = torch.mm(left().to(wide), right.to(wide)).to(out)
        return result.view(product.images * product.m, product.parts * product.n)

    return run


def _left(found: ProductPlan, memories: Memories, image: int, part: int) -> Callable[[], torch.Tensor]:
    product = found.product
    rows, inner = found.left_strides
    first = start(found.left_images, image)
    if found.plain:
        channels = product.k if product.window else 0
        offset = first + part * channels * inner
        view = tensor(memories, product.left, (product.m, product.k), (rows, inner), offset)
        return lambda: view
    window = product.window
    assert window is not None
    left = product.left
    channels = window["x.channels"]
    whole = tensor(
        memories,
        left,
        (*left.shape[-3:-1], channels),
        left.strides[-3:],
        first + part * channels * left.strides[-1],
    )
    return lambda: gather(whole, window, product.m).reshape(product.m, product.k)


def _right(found: ProductPlan, memories: Memories, image: int, part: int) -> torch.Tensor:
    product = found.product
    right = product.right
    outer = part if product.window else image
    rows: Rows = found.right_rows
    offset = start(found.right_images, outer)
    if len(rows.sizes) == 1 and rows.strides[0] >= 0:
        return tensor(memories, right, (product.k, product.n), (rows.strides[0], found.right_cstride), offset)
    # Torch has no negative strides: a turned kernel is read through its flipped view.
    strides = [abs(stride) for stride in rows.strides]
    low = sum((size - 1) * stride for size, stride in zip(rows.sizes, rows.strides, strict=True) if stride < 0)
    straight = tensor(memories, right, [*rows.sizes, product.n], [*strides, found.right_cstride], offset + low)
    return _Turned(straight, [d for d, stride in enumerate(rows.strides) if stride < 0], (product.k, product.n))


class _Turned:
    """A matrix whose rows come from flipped dimensions, made when it is read."""

    def __init__(self, straight: torch.Tensor, dims: list[int], shape: tuple[int, int]) -> None:
        self._straight, self._dims, self._shape = straight, dims, shape

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """As a tensor."""
        return self._straight.flip(self._dims).reshape(self._shape).to(dtype)


def gather(image: torch.Tensor, window: dict[str, int], pixels: int) -> torch.Tensor:
    """All windows of an [h, w, c] image: [pixels, kh, kw, c]."""
    kernel, step, dilation, pad, up = (
        (window[name] & 0xFFFF, window[name] >> 16) for name in ("x.kernel", "x.step", "x.dilation", "x.pad", "x.up")
    )
    top, left = signed16(pad[0]), signed16(pad[1])
    height, width, channels = image.shape
    if up != (1, 1):
        spread = image.new_zeros(((height - 1) * up[0] + 1, (width - 1) * up[1] + 1, channels))
        spread[:: up[0], :: up[1]] = image
        image = spread
        height, width = spread.shape[:2]
    out_w = window["x.owidth"]
    out_h = pixels // out_w
    need_h = (out_h - 1) * step[0] + (kernel[0] - 1) * dilation[0] + 1
    need_w = (out_w - 1) * step[1] + (kernel[1] - 1) * dilation[1] + 1
    bottom, right = need_h - height - top, need_w - width - left
    if top or left or bottom > 0 or right > 0:
        image = functional.pad(
            image, (0, 0, left, max(right, 0), top, max(bottom, 0)), value=bits_float(window["x.fill"])
        )
    h, w, c = image.stride()
    return image.as_strided(
        (out_h, out_w, kernel[0], kernel[1], channels),
        (h * step[0], w * step[1], h * dilation[0], w * dilation[1], c),
        image.storage_offset(),
    ).reshape(pixels, kernel[0], kernel[1], channels)


def _windowed(anchor: Windowed, memories: Memories) -> Callable[[], torch.Tensor]:
    image = tensor(memories, anchor.image)
    weight = tensor(memories, anchor.weight) if anchor.weight is not None else None
    function = vector_unit.REDUCE[anchor.reduction]

    def run() -> torch.Tensor:
        results = []
        for number in range(image.shape[0]):
            block = gather(image[number].float(), anchor.window, anchor.pixels)
            block = block.reshape(anchor.pixels, anchor.positions, anchor.channels)
            results.append(function(block * weight.float() if weight is not None else block, 1))
        return results[0] if len(results) == 1 else torch.cat(results)

    return run
