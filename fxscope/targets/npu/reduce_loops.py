"""Tile loops of reductions that stream their input: partial results stay in the accumulator."""

from __future__ import annotations

import math

from fxscope.targets.npu.access import Rows
from fxscope.targets.npu.emit import Emitter, Place
from fxscope.targets.npu.fields import MAX_SIZE
from fxscope.targets.npu.groups import Group, Reduce
from fxscope.targets.npu.program import Debug


def emit_reduce(emitter: Emitter, group: Group, sources: dict[str, str], order: int) -> None:
    """A reduction that streams its input: partial results stay in the accumulator."""
    anchor = group.anchor
    assert isinstance(anchor, Reduce)
    source, kept = anchor.source, anchor.kept
    by_rows = kept > 0 and source.shape[kept - 1] > 1 and source.strides[kept - 1] == 1
    _ReduceLoops(emitter, group, anchor, sources, order, by_rows).run()


class _ReduceLoops:
    """Loops of one streamed reduction; ``by_rows``: the fastest kept dimension makes the columns, else the reduced one."""

    def __init__(
        self, emitter: Emitter, group: Group, anchor: Reduce, sources: dict[str, str], order: int, by_rows: bool
    ) -> None:
        self.emitter, self.anchor, self.by_rows = emitter, anchor, by_rows
        source, kept, machine = anchor.source, anchor.kept, emitter.machine
        store = group.stores[0]
        shape, strides = source.shape, source.strides
        self.store = store
        self.node, self.source_line, self.order = group.nodes[0], sources.get(group.nodes[0], ""), order
        out = store.rows
        if by_rows:
            self.outer = Rows.of(shape[: kept - 1], strides[: kept - 1])
            self.cols = shape[kept - 1]
            self.inner = Rows.of(shape[kept:], strides[kept:])
            self.cstride = 1
        else:
            self.outer = Rows.of(shape[:kept], strides[:kept])
            self.cols = shape[-1]
            self.inner = Rows.of(shape[kept:-1], strides[kept:-1])
            self.cstride = strides[-1] if self.cols > 1 else 1
        self.outer_count = math.prod(self.outer.sizes)
        self.inner_count = math.prod(self.inner.sizes)
        self.out = out
        self.width = min(self.cols, MAX_SIZE, 16 * machine.line_words)
        lines = machine.lines(self.width, 4)
        self.rows = max(
            1,
            min(
                self.inner_count if by_rows else self.outer_count, MAX_SIZE, (machine.acc_lines - 8) // (2 * lines + 4)
            ),
        )
        block = self.rows * lines
        self.blocks = [emitter.claim("acc", n * block, block) for n in (0, 1)]
        result = lines if by_rows else self.rows
        self.results = [emitter.claim("acc", 2 * block + n * result, result) for n in (0, 1)]
        group.note.update(tile=f"{self.rows}x{self.width}", sets=2)
        self.turn = 0

    def _at(self, role: str) -> None:
        self.emitter.at(Debug(node=self.node, role=role, source=self.source_line, group=self.order))

    def run(self) -> None:
        """All tiles."""
        if self.by_rows:
            for outer in range(self.outer_count):
                for col in range(0, self.cols, self.width):
                    wide = min(self.width, self.cols - col)
                    self._tile(outer, 1, col, wide)
        else:
            for outer in range(0, self.outer_count, self.rows):
                self._tile(outer, min(self.rows, self.outer_count - outer), 0, 1)

    def _tile(self, outer: int, count: int, col: int, wide: int) -> None:
        result = self.results[self.turn]
        self.turn = 1 - self.turn
        first = True
        if self.by_rows:
            base = self.outer.runs(outer, outer + 1)[0].offset + col
            for row in range(0, self.inner_count, self.rows):
                have = min(self.rows, self.inner_count - row)
                block = self._block()
                self._load(block, base, self.inner, row, have, wide)
                self._reduce(block, result, have, wide, "rows", first)
                first = False
        else:
            for inner in range(self.inner_count):
                base = self.inner.runs(inner, inner + 1)[0].offset
                for at in range(0, self.cols, self.width):
                    width = min(self.width, self.cols - at)
                    block = self._block()
                    self._load(block, base + at * self.cstride, self.outer, outer, count, width)
                    self._reduce(block, result, count, width, "cols", first)
                    first = False
        self._finish(result, outer, count, col, wide)

    def _block(self) -> Place:
        self.blocks.reverse()
        return self.blocks[0]

    def _load(self, block: Place, base: int, rows: Rows, row: int, count: int, wide: int) -> None:
        view = self.anchor.source
        self._at(f"load {view.buffer.name}")
        lines = self.emitter.machine.lines(wide, 4)
        for run in rows.runs(row, row + count):
            self.emitter.transfer(
                "ld",
                view,
                view.offset + base + run.offset,
                run.rows,
                wide,
                run.stride,
                self.cstride,
                block,
                block.low + run.first * lines,
                "a",
            )
        if view.dtype in ("i8", "i32"):
            convert: dict[str, int | float | str] = {
                "fn": "i2f", "dst": block.low, "rows": count, "src": block.low, "cols": wide,
            }  # fmt: skip
            self.emitter.emit("ewu", convert, "x", (block,), (block,))

    def _reduce(self, block: Place, result: Place, rows: int, cols: int, axis: str, first: bool) -> None:
        self._at(self.anchor.fn)
        args: dict[str, int | float | str] = {
            "fn": self.anchor.fn, "dst": result.low, "rows": rows, "src": block.low, "cols": cols, "axis": axis,
            "acc": int(not first),
        }  # fmt: skip
        self.emitter.emit("red", args, "x", (block,) if first else (block, result), (result,))

    def _finish(self, result: Place, outer: int, count: int, col: int, wide: int) -> None:
        rows, cols = (1, wide) if self.by_rows else (count, 1)
        if self.anchor.scale != 1.0:
            self._at("scale")
            scale: dict[str, int | float | str] = {
                "fn": "mul", "dst": result.low, "rows": rows, "src": result.low, "cols": cols, "imm": self.anchor.scale,
            }  # fmt: skip
            self.emitter.emit("ewi", scale, "x", (result,), (result,))
        self._at(f"store {self.store.view.buffer.name}")
        view = self.store.view
        first = outer * self.cols + col if self.by_rows else outer
        number = wide if self.by_rows else count
        for run in self.out.runs(first, first + number):
            at = view.offset + run.offset
            if self.by_rows:
                self.emitter.transfer("st", view, at, 1, run.rows, 0, run.stride, result, result.low, "a")
            else:
                self.emitter.transfer("st", view, at, run.rows, 1, run.stride, 1, result, result.low + run.first, "a")
