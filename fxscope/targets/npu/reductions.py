"""Reductions: inside the group that makes their operand where a row fits the accumulator, streamed otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fxscope.targets.npu.access import Rows, View
from fxscope.targets.npu.builder import Builder
from fxscope.targets.npu.fields import MAX_SIZE
from fxscope.targets.npu.groups import Micro, Operand, Reduce, Reg, Value
from fxscope.targets.npu.slots import fits


def reduce(builder: Builder, fn: str, value: Value, shape: Sequence[int], dims: Sequence[int], dtype: str) -> Value:
    """Reduce ``dims`` (kept as size 1)."""
    shape = tuple(shape)
    kept_shape = tuple(1 if d in dims else size for d, size in enumerate(shape))
    trailing = sorted(dims) == list(range(len(shape) - len(dims), len(shape)))
    cols = math.prod(shape[d] for d in dims)
    if trailing and cols <= MAX_SIZE and cols > 1:
        reg = _row_reduce(builder, fn, value, shape, cols, kept_shape, dtype)
        if reg is not None:
            return reg
    return _streamed_reduce(builder, fn, builder.materialise(value).expand(shape), dims, kept_shape, dtype)


def _row_reduce(
    builder: Builder, fn: str, value: Value, shape: tuple[int, ...], cols: int, kept: tuple[int, ...], dtype: str
) -> Reg | None:
    group = value.group if isinstance(value, Reg) else None
    joins = (
        builder.fuse
        and isinstance(value, Reg)
        and group is not None
        and group.anchor is None
        and group.order is None
        and group.cols == cols
        and value.kind == "full"
        and group.is_full(value.shape)
    )
    if not joins or group is None:
        if builder.machine.lines(cols, 4) * 4 > builder.machine.acc_lines:
            return None
        view = builder.materialise(value)
        group = builder.group(math.prod(shape) // cols, cols, shape)
        if group.operand(view, shape) is None or (group.operand(view, shape) or ("", 0, ""))[2] != "full":
            builder.groups.pop()
            return None
        source = builder.number(group, view, shape)
    else:
        assert isinstance(value, Reg)
        builder.belongs(group)
        source = builder.as_float(group, value.number)
    assert source is not None
    mark = (len(group.micros), len(group.kinds))
    result = group.new_value("col" if group.rows > 1 or cols > 1 else "full")
    group.micros.append(Micro("red", fn, result, (source,), 0.0, builder.node))
    if not fits(group, builder.machine):
        del group.micros[mark[0] :], group.kinds[mark[1] :]
        return None
    return Reg(group, result, kept, "col", dtype)


def _streamed_reduce(
    builder: Builder, fn: str, view: View, dims: Sequence[int], kept_shape: tuple[int, ...], dtype: str
) -> View:
    kept = [d for d in range(len(view.shape)) if d not in dims]
    # Fastest kept dimension last, so that a contiguous one becomes the columns.
    kept.sort(key=lambda d: -view.strides[d] if view.shape[d] > 1 else -(1 << 60))
    reduced = sorted(dims, key=lambda d: -view.strides[d])
    source = view.permute([*kept, *reduced])
    count = math.prod(view.shape[d] for d in dims)
    target = builder.dense(builder.node, dtype, kept_shape, "scratch", [*reduced, *kept])
    anchor = Reduce(source, len(kept), "sum" if fn == "mean" else fn, 1.0 / count if fn == "mean" else 1.0)
    rows = math.prod(view.shape[d] for d in kept)
    group = builder.group(rows, 1, (rows, 1), None, anchor)
    number = group.new_value("full")
    out = target.permute([*kept, *reduced])
    columns = Rows.of(out.shape[: len(kept)], out.strides[: len(kept)])
    group.stores.append(Operand(number, target, columns, 1, "full", builder.node))
    builder.depend(group, source.buffer.makers)
    target.buffer.makers.add(group.index)
    return target
