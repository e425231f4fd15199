"""Tile loops of products and convolutions: operands into the scratchpad, gemm into the accumulator, epilogue, store."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fxscope.targets.npu.access import Rows, View
from fxscope.targets.npu.emit import Emitter, Place
from fxscope.targets.npu.groups import Group, Matrix
from fxscope.targets.npu.isa import DTYPE_BYTES
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.program import Debug
from fxscope.targets.npu.tiles import Tiles
from fxscope.targets.npu.tiling import Shape, Tile, k_slices, search, shape_of


class Plan(NamedTuple):
    """A product as the loops run it.

    Attributes:
        plain: The left operand is a matrix (also a convolution with a 1x1 kernel and step 1).
        left_images, right_images: Where each image's matrix begins; parts on the right of a convolution.
        ta, tb: Operands lie transposed in the scratchpad.
    """

    product: Matrix
    plain: bool
    left_images: Rows
    right_images: Rows
    left_strides: tuple[int, int]
    right_rows: Rows
    right_cstride: int
    ta: bool
    tb: bool


def plan(product: Matrix) -> Plan:
    """How the operands are addressed."""
    left, right, window = product.left, product.right, product.window
    plain = window is None
    strides = left.strides[-2:]
    if window is not None:
        simple = all(window[name] == 0x10001 for name in ("x.kernel", "x.step", "x.up")) and window["x.pad"] == 0
        joined = left.shape[-3] == 1 or left.strides[-3] == left.strides[-2] * left.shape[-2]
        if simple and joined:
            plain = True
            strides = (left.strides[-2] if left.shape[-2] > 1 else left.strides[-3], left.strides[-1])
    outer = len(left.shape) - (2 if window is None else 3)
    left_images = Rows.of(left.shape[:outer], left.strides[:outer])
    outer = outer if window is None else 1
    right_images = Rows.of(right.shape[:outer], right.strides[:outer])
    rows = Rows.of(right.shape[outer:-1], right.strides[outer:-1])
    cstride = right.strides[-1] if right.shape[-1] > 1 else 1
    k_stride = strides[1] if product.k > 1 else 1
    ta = plain and k_stride != 1 and (strides[0] == 1 or product.m == 1)
    tb = cstride != 1 and len(rows.sizes) == 1 and (rows.strides[0] == 1 or product.k == 1)
    return Plan(product, plain, left_images, right_images, (strides[0], k_stride), rows, cstride, ta, tb)


def start(rows: Rows, index: int) -> int:
    """Element offset of one image or part."""
    return rows.runs(index, index + 1)[0].offset


class _Pool:
    """Scratchpad slots of one operand; a tile that is still there is not loaded again."""

    def __init__(self, emitter: Emitter, base: int, lines: int, count: int) -> None:
        self.places = [emitter.claim("spad", base + number * lines, lines) for number in range(count)]
        self._held: dict[tuple[int, ...], int] = {}
        self._keys: list[tuple[int, ...] | None] = [None] * count
        self._next = 0

    def get(self, key: tuple[int, ...], load: Callable[[Place], None]) -> Place:
        """The slot that holds a tile, loading it into the oldest one where none does."""
        found = self._held.get(key)
        if found is not None:
            return self.places[found]
        slot = self._next
        self._next = (slot + 1) % len(self.places)
        old = self._keys[slot]
        if old is not None:
            del self._held[old]
        self._keys[slot] = key
        self._held[key] = slot
        load(self.places[slot])
        return self.places[slot]


def choose(group: Group, machine: Machine, cache: dict[Shape, list[Tile]], keep: int) -> tuple[Plan, list[Tile]]:
    """The plan of a group and its best tiles, from the cache where the same shape came before."""
    assert isinstance(group.anchor, Matrix)
    found = plan(group.anchor)
    shape = shape_of(group, group.anchor, found.ta, found.tb)
    if found.plain:
        shape = shape._replace(channels=0)
    if shape not in cache:
        cache[shape] = search(shape, machine, keep)
    return found, cache[shape]


def emit_product(
    emitter: Emitter,
    group: Group,
    sources: dict[str, str],
    order: int,
    found: Plan,
    tile: Tile,
    limit: int | None = None,
) -> None:
    """The loops of one gemm group, up to ``limit`` tiles (for trying tile factors in the event model)."""
    loops = _Loops(emitter, group, sources, order, found, tile)
    done = 0
    product = found.product
    for image in range(product.images):
        for part in range(product.parts):
            for row, col in _pairs(product, tile):
                if limit is not None and done == limit:
                    return
                loops.tile(image, part, row, col)
                done += 1


def _pairs(product: Matrix, tile: Tile) -> list[tuple[int, int]]:
    rows, cols = range(0, product.m, tile.m), range(0, product.n, tile.n)
    if tile.m_outer:
        return [(row, col) for row in rows for col in cols]
    return [(row, col) for col in cols for row in rows]


class _Loops:
    def __init__(
        self, emitter: Emitter, group: Group, sources: dict[str, str], order: int, found: Plan, tile: Tile
    ) -> None:
        self.emitter, self.group, self.plan, self.factors = emitter, group, found, tile
        self.node = group.nodes[0]
        self.source = sources.get(self.node, "")
        self.order = order
        machine, product = emitter.machine, found.product
        width = DTYPE_BYTES[product.dtype]
        a = tile.k * machine.lines(tile.m, width) if found.ta else tile.m * machine.lines(tile.k, width)
        b = tile.n * machine.lines(tile.k, width) if found.tb else tile.k * machine.lines(tile.n, width)
        self.left = _Pool(emitter, 0, a, tile.a_slots)
        self.right = _Pool(emitter, a * tile.a_slots, b, tile.b_slots)
        self.tiles = Tiles(emitter, group, sources, tile.m, tile.n, sets=tile.sets, order=order)
        self.machine: Machine = machine
        window = product.window if not found.plain else None
        self.slices = k_slices(product.k, window["x.channels"] if window else 0, tile.k)

    def _at(self, role: str) -> None:
        self.emitter.at(Debug(node=self.node, role=role, source=self.source, group=self.order))

    def tile(self, image: int, part: int, row: int, col: int) -> None:
        """One tile of the result."""
        product = self.plan.product
        rows, cols = min(self.factors.m, product.m - row), min(self.factors.n, product.n - col)
        self.tiles.begin(image * product.m + row, rows, part * product.n + col, cols)
        result = self.tiles.place(0)
        for number, (begin, length) in enumerate(self.slices):
            right = self.right.get(
                (image, part, col, begin), self._loader(self._load_right, image, part, col, cols, begin, length)
            )
            left = self.left.get(
                (image, part, row, begin), self._loader(self._load_left, image, part, row, rows, begin, length)
            )
            self._at("gemm")
            args: dict[str, int | float | str] = {
                "ta": int(self.plan.ta),
                "tb": int(self.plan.tb),
                "acc": int(number > 0),
                "dtype": product.dtype,
                "a": left.low,
                "t": rows,
                "b": right.low,
                "k": length,
                "c": result.low,
                "n": cols,
            }
            self.emitter.emit("gemm", args, "x", (left, right, result) if number else (left, right), (result,))
        self.tiles.finish()

    @staticmethod
    def _loader(function: Callable[..., None], *args: int) -> Callable[[Place], None]:
        return lambda place: function(place, *args)

    def _load_left(self, place: Place, image: int, part: int, row: int, rows: int, begin: int, length: int) -> None:
        product, found = self.plan.product, self.plan
        view = product.left
        self._at(f"load {view.buffer.name}")
        m_stride, k_stride = found.left_strides
        first = view.offset + start(found.left_images, image)
        if found.plain:
            channels = product.k if product.window else 0
            offset = first + part * channels * k_stride + row * m_stride + begin * k_stride
            if found.ta:
                self.emitter.transfer("ld", view, offset, length, rows, k_stride, 1, place, place.low, "s")
            else:
                self.emitter.transfer("ld", view, offset, rows, length, m_stride, k_stride, place, place.low, "s")
            return
        window = product.window
        assert window is not None
        for name, value in window.items():
            self.emitter.set_register(name, value)
        self.emitter.set_register("x.k0", begin)
        buffer = view.buffer
        offset = first + part * window["x.channels"] * view.strides[-1]
        args: dict[str, int | float | str] = {
            "region": buffer.region,
            "dtype": buffer.dtype,
            "addr": buffer.offset + offset * DTYPE_BYTES[buffer.dtype],
            "row": place.low,
            "rows": rows,
            "cols": length,
            "space": "s",
            "pixel": row,
        }
        self.emitter.emit("ldx", args, "l", (self.emitter.buffer(buffer),), (place,))

    def _load_right(self, place: Place, image: int, part: int, col: int, cols: int, begin: int, length: int) -> None:
        product, found = self.plan.product, self.plan
        view: View = product.right
        self._at(f"load {view.buffer.name}")
        outer = part if product.window else image
        base = view.offset + start(found.right_images, outer) + col * found.right_cstride
        width = DTYPE_BYTES[view.dtype]
        if found.tb:
            offset = base + begin * found.right_rows.strides[0]
            self.emitter.transfer("ld", view, offset, cols, length, found.right_cstride, 1, place, place.low, "s")
            return
        lines = self.machine.lines(cols, width)
        for run in found.right_rows.runs(begin, begin + length):
            at = place.low + run.first * lines
            if run.stride < 0:  # a kernel turned round: row by row
                for index in range(run.rows):
                    self.emitter.transfer(
                        "ld",
                        view,
                        base + run.offset + index * run.stride,
                        1,
                        cols,
                        0,
                        found.right_cstride,
                        place,
                        at + index * lines,
                        "s",
                    )
            else:
                self.emitter.transfer(
                    "ld", view, base + run.offset, run.rows, cols, run.stride, found.right_cstride, place, at, "s"
                )
