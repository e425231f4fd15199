"""A kernel's loop nest: which axes are rows and which are columns, merged as far as every access allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fxscope.targets.triton.ir import Axes, Dims, Kernel, Memory, Value

INT32 = 2**31 - 1
BEHIND = 2**16  # columns behind the last, at most, that a program holds masked


@dataclass(eq=False)
class Access:
    """A linear function of the coordinates: an address in a memory, or an index value.

    Attributes:
        rows: Stride along each row dimension.
        cols: Stride along each column dimension.
    """

    memory: Memory | None
    offset: int
    rows: tuple[int, ...]
    cols: tuple[int, ...]


class Nest:
    """How a kernel runs over its space.

    Attributes:
        rows: Sizes of the row dimensions, outer to inner. Programs run over them.
        cols: Sizes of the column dimensions. One program holds all of them, or blocks of them.
        level: Per value the number of row reductions that must be finished before it.
        picks: Elements of a row at a column that the row names, read as such; not among ``reductions``.
        kinds: Per value ``full``, ``row``, ``col`` or ``scalar``: what it varies over.
    """

    def __init__(self, kernel: Kernel, axes: Axes, columns: set[int] | None = None) -> None:
        """``columns``: the axes that are columns; by default what is reduced, or everything."""
        self.kernel = kernel
        self.axes = axes
        reduces = [v for v in kernel.values if v.op == "reduce" and not v.partial]
        # What picks one element of a row needs no pass over the row, where there are passes anyway.
        self.picks = [v for v in reduces if v.expr == "pick"] if any(v.expr != "pick" for v in reduces) else []
        self.reductions = [v for v in reduces if v not in self.picks]
        self.partials = [v for v in kernel.values if v.op == "reduce" and v.partial]
        full: set[int] = set()
        for value in kernel.values:
            full.update(axes.all(value.dims))
        if columns is not None:
            col_axes = columns
        elif self.reductions:
            col_axes = set(axes.flat(self.reductions[0].reduced))
        elif self.partials:
            col_axes = full - set(axes.flat(self.partials[0].reduced))
        else:
            col_axes = full
        self._strides = {v: axes.strides(v.strides) for v in kernel.values if v.op in ("load", "index")}
        self._stored = [
            (memory, axes.dims(dims), self._place(memory, dims, value)) for value, memory, dims in kernel.stores
        ]
        weight = {axis: self._weight(axis) for axis in full}
        order = sorted(full, key=lambda axis: weight[axis], reverse=True)
        row_order = [a for a in order if a not in col_axes]
        col_order = [a for a in order if a in col_axes]
        tables = [*self._strides.values(), *(table for _, _, table in self._stored)]
        self._row_groups = self._merge(row_order, tables)
        self._col_groups = self._merge(col_order, tables)
        self.rows = tuple(math.prod(axes.sizes[a] for a in group) for group in self._row_groups)
        self.cols = tuple(math.prod(axes.sizes[a] for a in group) for group in self._col_groups)
        self._row_axes, self._col_axes = set(row_order), set(col_order)
        self.kinds: dict[Value, str] = {}
        self.level: dict[Value, int] = {}
        self._classify()

    @property
    def row_count(self) -> int:
        """Rows in all."""
        return math.prod(self.rows)

    @property
    def col_count(self) -> int:
        """Columns in all."""
        return math.prod(self.cols)

    def column_axes(self, dimension: int) -> list[int]:
        """The axes that were merged into a column dimension."""
        return self._col_groups[dimension]

    def access(self, value: Value) -> Access:
        """Where a load reads, or what an index counts."""
        return self._linear(value.memory, value.offset, self._strides[value])

    def linear(self, access: Access) -> bool:
        """Whether neighbouring columns are neighbours in memory throughout."""
        step = 1
        for stride, size in zip(reversed(access.cols), reversed(self.cols), strict=True):
            if stride != step:
                return False
            step *= size
        return True

    def target(self, position: int) -> tuple[Value, Access, str]:
        """Store number ``position``: the value, where it goes, and what the place varies over."""
        value = self.kernel.stores[position][0]
        memory, dims, table = self._stored[position]
        axes = {axis for group in dims for axis in group}
        return value, self._linear(memory, 0, table), self._kind(axes, stored=True)

    def int64(self) -> bool:
        """Whether some address does not fit in 32 bits."""
        tables = [*self._strides.values(), *(table for _, _, table in self._stored)]
        return any(sum(abs(s) * (self.axes.sizes[a] - 1) for a, s in table.items()) > INT32 for table in tables) or (
            self.row_count * self.col_count > INT32
        )

    def wide_columns(self) -> bool:
        """Whether what a column adds to some address does not fit in 32 bits, or the number of one behind the last."""
        tables = [*self._strides.values(), *(table for _, _, table in self._stored)]
        spans = (sum(abs(s) * (self.axes.sizes[a] - 1) for a, s in t.items() if a in self._col_axes) for t in tables)
        return max(spans, default=0) > INT32 or self.col_count > INT32 - BEHIND

    def big(self, memory: Memory) -> int:
        """Bytes of a memory."""
        return math.prod(memory.shape) * int(memory.dtype.itemsize)

    # -- private

    def _place(self, memory: Memory, dims: Dims, value: Value) -> dict[int, int]:
        """Stride of each axis in the memory that a value is stored to."""
        table: dict[int, int] = {}
        strides = memory.strides
        if value.partial:  # one row of the partial sums; the writer adds the program's own
            step = 1
            for group in reversed(self.axes.dims(dims)):
                for axis in reversed(group):
                    table[axis] = step
                    step *= self.axes.sizes[axis]
            return table
        for stride, group in zip(strides, self.axes.dims(dims), strict=True):
            for axis in reversed(group):
                table[axis] = stride
                stride *= self.axes.sizes[axis]
        return table

    def _weight(self, axis: int) -> tuple[int, int]:
        """Loop order: by the stride in the largest memory that has the axis, of equal ones one that is written.

        What is read across is read again from the cache by the same program; what is written across goes out in pieces.
        """
        best = (0, 0, 0)
        tables = [(0, table) for value, table in self._strides.items() if value.memory is not None]
        for written, table in [*tables, *((1, table) for _, _, table in self._stored)]:
            if table.get(axis):
                size = math.prod(self.axes.sizes[a] for a in table)
                best = max(best, (size, written, table[axis]))
        return best[2], axis * -1

    def _merge(self, order: list[int], tables: list[dict[int, int]]) -> list[list[int]]:
        groups: list[list[int]] = []
        for axis in order:
            if groups and all(
                table.get(groups[-1][-1], 0) == table.get(axis, 0) * self.axes.sizes[axis] for table in tables
            ):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        return groups

    def _linear(self, memory: Memory | None, offset: int, table: dict[int, int]) -> Access:
        rows = tuple(table.get(group[-1], 0) for group in self._row_groups)
        cols = tuple(table.get(group[-1], 0) for group in self._col_groups)
        return Access(memory, offset, rows, cols)

    def _kind(self, axes: set[int], stored: bool = False) -> str:
        rows, cols = bool(axes & self._row_axes), bool(axes & self._col_axes)
        if stored:  # a place that lacks an axis of the nest is written once, not by everyone
            if axes >= self._row_axes | self._col_axes:
                return "full" if self._col_axes else "row"
            if axes >= self._row_axes and not cols and (self.reductions or not self._col_axes):
                return "row"
            if self.partials and axes == self._col_axes:
                return "col"
            return "lesser"
        if not self._row_axes and cols:
            whole = bool(self.reductions) or axes >= self._col_axes
            return "full" if whole else "col"
        return "full" if rows and cols else "row" if rows else "col" if cols else "scalar"

    def _classify(self) -> None:
        depends: dict[Value, set[int]] = {}
        for value in self.kernel.values:
            if value.op in ("load", "index"):
                own = {axis for axis, stride in self._strides[value].items() if stride}
            else:
                own = set().union(*(depends[arg] for arg in value.args)) if value.args else set()
            level = max((self.level[arg] for arg in value.args), default=0)
            if value.op == "reduce":
                own = own - set(self.axes.flat(value.reduced))
                level += not value.partial and value not in self.picks
            depends[value] = own
            self.level[value] = level
            self.kinds[value] = self._kind(own)
