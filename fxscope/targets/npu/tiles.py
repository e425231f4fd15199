"""One tile of a group in the accumulator: operands loaded, vector operations run, results stored."""

from __future__ import annotations

from typing import Literal

from fxscope.targets.npu.emit import Emitter, Place
from fxscope.targets.npu.groups import Group, Micro, Operand
from fxscope.targets.npu.program import Debug
from fxscope.targets.npu.slots import allocate, slot_lines

_DIMS = {"full": (1, 1), "row": (0, 1), "col": (1, 0), "one": (0, 0)}


class Tiles:
    """Emits tiles of one group; consecutive tiles alternate between sets of slots, so that transfers overlap work.

    Attributes:
        lines: Accumulator lines in use, from ``base``.
    """

    def __init__(
        self,
        emitter: Emitter,
        group: Group,
        sources: dict[str, str],
        rows: int,
        cols: int,
        *,
        base: int = 0,
        sets: int = 2,
        order: int = 0,
    ) -> None:
        self.emitter, self.group, self.sources = emitter, group, sources
        self.machine = emitter.machine
        self.order = order
        self.slots = allocate(group)
        self.sets = sets
        size = self.slots.lines(rows, cols, self.machine)
        self.lines = size * sets
        self._places: list[list[Place]] = []
        for number in range(sets):
            at = base + number * size
            row = []
            for kind in self.slots.kinds:
                need = slot_lines(kind, rows, cols, self.machine)
                row.append(emitter.claim("acc", at, need))
                at += need
            self._places.append(row)
        self._set = -1
        self._loaded: list[dict[int, tuple[object, ...]]] = [{} for _ in range(sets)]
        self.extent = (0, 0, 0, 0)

    def debug(self, node: str, role: str) -> None:
        """Instructions from now on do this for that node."""
        self.emitter.at(Debug(node=node, role=role, source=self.sources.get(node, ""), group=self.order))

    def begin(self, row0: int, rows: int, col0: int, cols: int) -> None:
        """Start a tile in the next set: load its operands."""
        self._set = (self._set + 1) % self.sets
        self.extent = (row0, rows, col0, cols)
        loaded = self._loaded[self._set]
        for load in self.group.loads:
            key: tuple[object, ...] | None = None
            if load.kind == "row":
                key = (col0, cols)
            elif load.kind == "one":
                key = ()
            if key is not None and loaded.get(load.number) == key:
                continue
            if key is not None:
                loaded[load.number] = key
            self._load(load)

    def place(self, number: int) -> Place:
        """Where a value lies in the current set."""
        return self._places[self._set][self.slots.of[number]]

    def _load(self, load: Operand) -> None:
        row0 = self.extent[0]
        self.debug(load.node, f"load {load.view.buffer.name}")
        first = load.rows.runs(row0, row0 + 1)[0] if load.rows.constant() else None
        self._transfer("ld", load, first.offset if first else 0)

    def _transfer(self, opcode: Literal["ld", "st"], operand: Operand, offset: int = 0) -> None:
        """Move the tile's part of an operand; ``offset`` is where its only row begins, where it has no others."""
        row0, rows, col0, cols = self.extent
        place = self.place(operand.number)
        has_rows, has_cols = _DIMS[operand.kind]
        width = cols if has_cols else 1
        base = operand.view.offset + (col0 * operand.cstride if has_cols else 0)
        step = operand.cstride
        if not has_rows:
            self.emitter.transfer(opcode, operand.view, base + offset, 1, width, 0, step, place, place.low, "a")
            return
        lines = self.machine.lines(width, 4)
        for run in operand.rows.runs(row0, row0 + rows):
            low = place.low + run.first * lines
            self.emitter.transfer(
                opcode, operand.view, base + run.offset, run.rows, width, run.stride, step, place, low, "a"
            )

    def finish(self) -> None:
        """Run the vector operations of the tile and store its results."""
        for micro in self.group.micros:
            self._micro(micro)
        for store in self.group.stores:
            self._store(store)

    def _size(self, kind: str) -> tuple[int, int]:
        _, rows, _, cols = self.extent
        has_rows, has_cols = _DIMS[kind]
        return (rows if has_rows else 1), (cols if has_cols else 1)

    def _micro(self, micro: Micro) -> None:
        kinds = self.group.kinds
        kind = kinds[micro.result]
        rows, cols = self._size(kind)
        target = self.place(micro.result)
        sources = [self.place(number) for number in micro.sources]
        self.debug(micro.node, micro.fn)
        emit = self.emitter.emit

        def broadcast(number: int) -> str:
            return "full" if kinds[number] == kind else kinds[number]

        if micro.op == "red":
            rows, cols = self._size("full")
            args: dict[str, int | float | str] = {
                "fn": micro.fn, "dst": target.low, "rows": rows, "src": sources[0].low, "cols": cols, "axis": "cols", "acc": 0,
            }  # fmt: skip
            emit("red", args, "x", sources, [target])
        elif micro.op == "ewb":
            if micro.fn == "sel":
                self._begin_select(micro, target, sources[2], rows, cols)
            args = {
                "fn": micro.fn,
                "dst": target.low,
                "rows": rows,
                "src": sources[0].low,
                "cols": cols,
                "src2": sources[1].low,
                "bcast": broadcast(micro.sources[0]),
                "bcast2": broadcast(micro.sources[1]),
            }
            emit("ewb", args, "x", [*sources[:2], target] if micro.fn == "sel" else sources, [target])
        else:
            args = {"fn": micro.fn, "dst": target.low, "rows": rows, "src": sources[0].low, "cols": cols}
            if micro.op == "ewi":
                args["imm"] = micro.imm
            emit(micro.op, args, "x", sources, [target])

    def _begin_select(self, micro: Micro, target: Place, otherwise: Place, rows: int, cols: int) -> None:
        """``sel`` keeps what dst holds: put its third operand there unless it lies there already."""
        if target is otherwise:
            return
        kinds = self.group.kinds
        same = kinds[micro.sources[2]] == kinds[micro.result]
        args: dict[str, int | float | str] = {"dst": target.low, "rows": rows, "src": otherwise.low, "cols": cols}
        if same:
            self.emitter.emit("ewu", {"fn": "copy", **args}, "x", [otherwise], [target])
        else:
            shape = kinds[micro.sources[2]]
            more = {"fn": "max", **args, "src2": otherwise.low, "bcast": shape, "bcast2": shape}
            self.emitter.emit("ewb", more, "x", [otherwise], [target])

    def _store(self, store: Operand) -> None:
        row0, _, col0, _ = self.extent
        has_rows, has_cols = _DIMS[store.kind]
        if (not has_rows and row0) or (not has_cols and col0):
            return  # the first tile stored it
        self.debug(store.node, f"store {store.view.buffer.name}")
        self._transfer("st", store)
