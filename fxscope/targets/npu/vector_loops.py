"""Tile loops of everything that is no product: element-wise groups, windows and copies."""

from __future__ import annotations

import dataclasses

from fxscope.errors import UsageError
from fxscope.targets.npu.access import Rows, View, collapse
from fxscope.targets.npu.emit import Emitter, Place
from fxscope.targets.npu.fields import MAX_SIZE
from fxscope.targets.npu.groups import Copy, Group, Operand, Windowed
from fxscope.targets.npu.isa import DTYPE_BYTES
from fxscope.targets.npu.program import Debug
from fxscope.targets.npu.slots import allocate
from fxscope.targets.npu.tiles import Tiles


def emit_vector(emitter: Emitter, group: Group, sources: dict[str, str], order: int) -> None:
    """An element-wise group: rows x cols tiles; what lies flat in memory is cut into long rows first."""
    for piece in _flatten(group, 16 * emitter.machine.line_words):
        _vector_piece(emitter, piece, sources, order)
        group.note.update(piece.note)


def _vector_piece(emitter: Emitter, group: Group, sources: dict[str, str], order: int) -> None:
    machine, slots = emitter.machine, allocate(group)
    cols = min(group.cols, MAX_SIZE)
    words = machine.line_words
    while not group.reduces and cols > words and slots.lines(min(group.rows, 8), cols, machine) * 2 > machine.acc_lines:
        cols = -(-cols // (2 * words)) * words
    sets = 2 if slots.lines(1, cols, machine) * 2 <= machine.acc_lines else 1
    rows = min(group.rows, MAX_SIZE)
    while rows > 1 and slots.lines(rows, cols, machine) * sets > machine.acc_lines:
        rows = -(-rows // 2)
    if slots.lines(rows, cols, machine) * sets > machine.acc_lines:
        raise UsageError(
            f"{group.nodes[0]}: one row of {cols} columns with {len(slots.kinds)} values at once does not fit the "
            f"accumulator of {machine.name} ({machine.local.accumulator} bytes)"
        )
    group.note.update(tile=f"{rows}x{cols}", sets=sets)
    tiles = Tiles(emitter, group, sources, rows, cols, sets=sets, order=order)
    for row in range(0, group.rows, rows):
        for col in range(0, group.cols, cols):
            tiles.begin(row, min(rows, group.rows - row), col, min(cols, group.cols - col))
            tiles.finish()


def _flatten(group: Group, width: int) -> list[Group]:
    """A group whose operands all lie flat as rows of ``width`` and a rest; itself otherwise."""
    total = group.rows * group.cols
    flat = (
        not group.reduces
        and all(kind in ("full", "one") for kind in group.kinds)
        and all(_is_flat(operand, group) for operand in [*group.loads, *group.stores] if operand.kind == "full")
        and group.cols != width
        and total > width
    )
    if not flat:
        return [group]
    rows, rest = divmod(total, width)
    pieces = [_piece(group, 0, rows, width)]
    if rest:
        pieces.append(_piece(group, rows * width, 1, rest))
    return pieces


def _is_flat(operand: Operand, group: Group) -> bool:
    sizes, strides = operand.rows.sizes, operand.rows.strides
    return (operand.cstride == 1 or group.cols == 1) and (
        group.rows == 1 or (len(sizes) == 1 and strides[0] == group.cols)
    )


def _piece(group: Group, start: int, rows: int, cols: int) -> Group:
    def cut(operand: Operand) -> Operand:
        if operand.kind != "full":
            return operand
        view = dataclasses.replace(operand.view, offset=operand.view.offset + start)
        return dataclasses.replace(operand, view=view, rows=Rows([rows], [cols]), cstride=1)

    return dataclasses.replace(
        group,
        rows=rows,
        cols=cols,
        loads=[cut(load) for load in group.loads],
        stores=[cut(store) for store in group.stores],
        note={},
    )


def emit_window(emitter: Emitter, group: Group, sources: dict[str, str], order: int) -> None:
    """Pooling and depthwise convolution: gather a block of windows, weigh it, reduce it over the window."""
    anchor = group.anchor
    assert isinstance(anchor, Windowed)
    machine, slots, words = emitter.machine, allocate(group), emitter.machine.line_words
    weigh = anchor.weight is not None
    channels = min(anchor.channels, MAX_SIZE // anchor.positions)

    def lines(pixels: int, width: int) -> int:
        gathered = machine.lines(anchor.positions * width, 4)
        return 2 * (pixels * gathered + slots.lines(pixels, width, machine)) + (gathered if weigh else 0)

    while channels > words and lines(8, channels) > machine.acc_lines:
        channels = -(-channels // (2 * words)) * words
    pixels = min(anchor.pixels, MAX_SIZE)
    while pixels > 1 and lines(pixels, channels) > machine.acc_lines:
        pixels = -(-pixels // 2)
    if channels < 1 or lines(pixels, channels) > machine.acc_lines:
        raise UsageError(
            f"{group.nodes[0]}: a window of {anchor.positions} positions does not fit the accumulator of {machine.name}"
        )
    group.note.update(tile=f"{pixels}x{channels}", sets=2)
    tiles = Tiles(emitter, group, sources, pixels, channels, order=order)
    gathered = machine.lines(anchor.positions * channels, 4)
    base = tiles.lines
    blocks = [emitter.claim("acc", base + number * pixels * gathered, pixels * gathered) for number in (0, 1)]
    weights = emitter.claim("acc", base + 2 * pixels * gathered, gathered) if weigh else None
    view, buffer = anchor.image, anchor.image.buffer
    node = group.nodes[0]
    turn = 0
    for channel in range(0, anchor.channels, channels):
        width = min(channels, anchor.channels - channel)
        columns = anchor.positions * width
        if anchor.weight is not None and weights is not None:
            tiles.debug(node, f"load {anchor.weight.buffer.name}")
            _load_flat(emitter, anchor.weight, channel, width, weights)
        for image in range(view.shape[0]):
            for pixel in range(0, anchor.pixels, pixels):
                rows = min(pixels, anchor.pixels - pixel)
                block = blocks[turn]
                turn = 1 - turn
                tiles.begin(image * anchor.pixels + pixel, rows, channel, width)
                tiles.debug(node, f"load {buffer.name}")
                for name, value in {**anchor.window, "x.channels": width, "x.k0": 0}.items():
                    emitter.set_register(name, value)
                offset = view.offset + image * view.strides[0] + channel * view.strides[3]
                gather: dict[str, int | float | str] = {
                    "region": buffer.region,
                    "dtype": buffer.dtype,
                    "addr": buffer.offset + offset * DTYPE_BYTES[buffer.dtype],
                    "row": block.low,
                    "rows": rows,
                    "cols": columns,
                    "space": "a",
                    "pixel": pixel,
                }
                emitter.emit("ldx", gather, "l", (emitter.buffer(buffer),), (block,))
                if weights is not None:
                    tiles.debug(node, "weigh")
                    product: dict[str, int | float | str] = {
                        "fn": "mul", "dst": block.low, "rows": rows, "src": block.low, "cols": columns,
                        "src2": weights.low, "bcast": "full", "bcast2": "row" if rows > 1 else "full",
                    }  # fmt: skip
                    emitter.emit("ewb", product, "x", (block, weights), (block,))
                tiles.debug(node, anchor.reduction)
                target = tiles.place(0)
                reduction: dict[str, int | float | str] = {
                    "fn": anchor.reduction, "dst": target.low, "rows": rows, "src": block.low, "cols": width,
                    "window": anchor.positions,
                }  # fmt: skip
                emitter.emit("pool", reduction, "x", (block,), (target,))
                tiles.finish()


def _load_flat(emitter: Emitter, weight: View, channel: int, width: int, place: Place) -> None:
    """Weights [window, channels] as one row, in the element order of a gathered block.

    Some of the channels lie in one run per position: one window over an image of 1 x positions pixels gathers them.
    """
    positions = weight.shape[0]
    if weight.strides[0] == width or positions == 1:
        emitter.transfer("ld", weight, weight.offset + channel, 1, positions * width, 0, 1, place, place.low, "a")
        return
    window = {
        "x.height": 1,
        "x.width": positions,
        "x.hstride": 0,
        "x.wstride": weight.strides[0],
        "x.cstride": 1,
        "x.kernel": 1 | positions << 16,
        "x.step": 0x10001,
        "x.dilation": 0x10001,
        "x.pad": 0,
        "x.owidth": 1,
        "x.channels": width,
        "x.fill": 0,
        "x.up": 0x10001,
        "x.k0": 0,
    }
    for name, value in window.items():
        emitter.set_register(name, value)
    buffer = weight.buffer
    gather: dict[str, int | float | str] = {
        "region": buffer.region,
        "dtype": buffer.dtype,
        "addr": buffer.offset + (weight.offset + channel) * DTYPE_BYTES[buffer.dtype],
        "row": place.low,
        "rows": 1,
        "cols": positions * width,
        "space": "a",
        "pixel": 0,
    }
    emitter.emit("ldx", gather, "l", (emitter.buffer(buffer),), (place,))


def emit_copy(emitter: Emitter, group: Group, sources: dict[str, str], order: int) -> None:
    """Elements through local memory, in the target's order."""
    anchor = group.anchor
    assert isinstance(anchor, Copy)
    source, target, machine = anchor.source, anchor.target, emitter.machine
    dims = sorted(range(len(target.shape)), key=lambda d: -abs(target.strides[d]))
    shape, (read, write) = collapse(
        [target.shape[d] for d in dims], [[source.strides[d] for d in dims], [target.strides[d] for d in dims]]
    )
    space = "s" if source.dtype == target.dtype else "a"
    width = DTYPE_BYTES[source.dtype] if space == "s" else 4
    capacity = machine.spad_lines if space == "s" else machine.acc_lines
    total_cols = shape[-1]
    cols = min(total_cols, MAX_SIZE, capacity // 2 * machine.local.line_bytes // width)
    read_rows, write_rows = Rows.of(shape[:-1], read[:-1]), Rows.of(shape[:-1], write[:-1])
    count = 1
    for size in shape[:-1]:
        count *= size
    rows = min(count, MAX_SIZE, max(1, capacity // 2 // machine.lines(cols, width)))
    lines = machine.lines(cols, width)
    group.note.update(tile=f"{rows}x{cols}", sets=2)
    places = [emitter.claim("spad" if space == "s" else "acc", n * rows * lines, rows * lines) for n in (0, 1)]
    node = group.nodes[0]
    turn = 0
    for row in range(0, count, rows):
        for col in range(0, total_cols, cols):
            have = min(rows, count - row)
            wide = min(cols, total_cols - col)
            place = places[turn]
            turn = 1 - turn
            pitch = machine.lines(wide, width)
            emitter.at(Debug(node=node, role="copy in", source=sources.get(node, ""), group=order))
            for run in read_rows.runs(row, row + have):
                at = source.offset + run.offset + col * read[-1]
                line = place.low + run.first * pitch
                emitter.transfer("ld", source, at, run.rows, wide, run.stride, read[-1], place, line, space)
            emitter.at(Debug(node=node, role="copy out", source=sources.get(node, ""), group=order))
            for run in write_rows.runs(row, row + have):
                at = target.offset + run.offset + col * write[-1]
                line = place.low + run.first * pitch
                emitter.transfer("st", target, at, run.rows, wide, run.stride, write[-1], place, line, space)
