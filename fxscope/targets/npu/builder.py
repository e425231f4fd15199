"""Builds groups: element-wise work joins a group that makes one of its operands, everything else opens a new one.

A node may join group g only where none of its other operands comes from a group that runs after g, so fusing never
makes a cycle; the schedule is a topological order of the groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fxscope.errors import UsageError
from fxscope.targets.npu.access import Buffer, View, contiguous
from fxscope.targets.npu.groups import (
    Const,
    Copy,
    Group,
    Matrix,
    Micro,
    Operand,
    Reduce,
    Reg,
    Value,
    Windowed,
    join_kinds,
    split_at,
)
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.slots import fits


class Builder:
    """Groups of one island, in the making. ``node`` is the FX node that new work belongs to.

    Attributes:
        fuse: False makes one group per node, the plain schedule that fusion is compared with.
    """

    def __init__(self, machine: Machine, *, fuse: bool = True) -> None:
        self.machine = machine
        self.fuse = fuse
        self.groups: list[Group] = []
        self.buffers: list[Buffer] = []
        self.node = ""
        self._constants: dict[str, Buffer] = {}

    # Buffers and groups

    def buffer(self, name: str, dtype: str, elements: int, kind: str) -> Buffer:
        """A new buffer, placed later."""
        buffer = Buffer(name, dtype, elements, kind)
        self.buffers.append(buffer)
        return buffer

    def dense(self, name: str, dtype: str, shape: Sequence[int], kind: str, order: Sequence[int] | None = None) -> View:
        """A dense view of a new buffer, dimensions laid out in ``order``."""
        buffer = self.buffer(name, dtype, math.prod(shape), kind)
        return View(buffer, tuple(shape), contiguous(shape, order))

    def group(
        self,
        rows: int,
        cols: int,
        shape: Sequence[int],
        order: Sequence[int] | None = None,
        anchor: Matrix | Windowed | Copy | Reduce | None = None,
    ) -> Group:
        """Open a group; value 0 is its anchor's result where it has one."""
        group = Group(len(self.groups), rows, cols, tuple(shape), tuple(order) if order is not None else None, anchor)
        self.groups.append(group)
        if isinstance(anchor, Matrix | Windowed):
            group.new_value("full")
        self.belongs(group)
        return group

    def belongs(self, group: Group) -> None:
        """Note that the present node has a part in a group."""
        if self.node not in group.nodes:
            group.nodes.append(self.node)

    def makers(self, value: Value) -> set[int]:
        """Numbers of the groups that a value comes from; empty for inputs and numbers."""
        if isinstance(value, Const):
            return set()
        if isinstance(value, Reg):
            return {value.group.index}
        return value.buffer.makers

    def depend(self, group: Group, makers: set[int]) -> None:
        """Group must run after these."""
        new = 0
        for maker in makers:
            if maker != group.index:
                new |= self.groups[maker].before | 1 << maker
        if new & ~group.before:
            group.before |= new
            bit = 1 << group.index
            for other in self.groups:
                if other.before & bit:
                    other.before |= new

    def follows(self, makers: set[int], group: Group) -> bool:
        """Whether any of these groups runs after ``group``."""
        return any(self.groups[maker].before >> group.index & 1 for maker in makers)

    def materialise(self, value: Value, dtype: str | None = None) -> View:
        """Where a value lies in memory; stores it where it does not lie anywhere yet."""
        if isinstance(value, View):
            return value
        if isinstance(value, Const):
            found = self._constants.get(repr(value.value))
            if found is None:
                found = self._constants[repr(value.value)] = self.buffer(
                    f"constant {value.value:g}", "f32", 1, "weight"
                )
                found.constant = value.value
            return View(found, (), ())
        if value.view is None and value.base is not None:
            value.view = self.materialise(value.base).reshape(value.shape)
        if value.view is None:
            value.view = self._store(value, dtype or value.dtype)
        return value.view

    def store_into(self, reg: Reg, view: View) -> bool:
        """Store a value straight into part of a buffer; False where its layout does not allow it."""
        found = reg.group.operand(view, reg.shape) if reg.kind == "full" else None
        if found is None:
            return False
        reg.group.stores.append(Operand(reg.number, view, found[0], found[1], reg.kind, self.node_of(reg)))
        view.buffer.makers.add(reg.group.index)
        return True

    def _store(self, reg: Reg, dtype: str) -> View:
        group, shape = reg.group, reg.shape
        if group.is_full(shape):
            dims = group.order if group.order is not None else tuple(range(len(shape)))
            at = split_at([shape[d] for d in dims], group.cols)
            assert at is not None  # is_full says so
            kept = {"full": dims, "row": dims[at:], "col": dims[:at], "one": ()}[reg.kind]
        else:
            kept = tuple(range(len(shape))) if reg.kind in ("col", "full") else ()
        sizes = [shape[d] for d in kept]
        dense = dict(zip(kept, contiguous(sizes), strict=True))
        strides = tuple(dense.get(d, 0) for d in range(len(shape)))
        number = reg.number
        if dtype == "i32" and number not in group.raw:
            number = group.new_value(reg.kind)
            group.micros.append(Micro("ewu", "f2i", number, (reg.number,), 0.0, self.node_of(reg)))
            group.raw.add(number)
        buffer = self.buffer(self.node_of(reg), dtype, math.prod(sizes), "scratch")
        buffer.makers.add(group.index)
        view = View(buffer, shape, strides)
        found = group.operand(view, shape)
        assert found is not None  # the layout was made for this space
        rows, cstride, _ = found
        group.stores.append(Operand(number, view, rows, cstride, reg.kind, self.node_of(reg)))
        return view

    def node_of(self, reg: Reg) -> str:
        """The FX node that made a value."""
        made = [micro.node for micro in reg.group.micros if micro.result == reg.number]
        return made[0] if made else reg.group.nodes[0]

    # Element-wise work

    def _order_of(self, operands: Sequence[Value], shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Dimension order of a new space: that of the first operand that covers it; None for row-major."""
        for operand in operands:
            if isinstance(operand, Reg):
                if operand.group.order is not None and operand.shape == shape:
                    return operand.group.order
                if operand.shape == shape:
                    return None
            elif isinstance(operand, View) and operand.shape == shape and 0 not in operand.strides:
                real = [d for d in range(len(shape)) if shape[d] != 1]
                order = sorted(real, key=lambda d: -operand.strides[d])
                if order == real:
                    return None
                ones = [d for d in range(len(shape)) if shape[d] == 1]
                return tuple(ones + order)
        return None

    def _host(self, operands: Sequence[Value], shape: tuple[int, ...]) -> Group | None:
        """The group that element-wise work on these operands may join."""
        if not self.fuse:
            return None
        hosts = sorted({operand.group.index for operand in operands if isinstance(operand, Reg)}, reverse=True)
        return next((self.groups[host] for host in hosts if self._joins(self.groups[host], operands, shape)), None)

    def _joins(self, group: Group, operands: Sequence[Value], shape: tuple[int, ...]) -> bool:
        if isinstance(group.anchor, Copy | Reduce) or not (group.is_full(shape) or group.is_column(shape)):
            return False
        for operand in operands:
            if isinstance(operand, Reg) and operand.group is group:
                if not self._lines_up(operand, group, shape):
                    return False
            elif not isinstance(operand, Const):
                makers = self.makers(operand)
                if group.index in makers or self.follows(makers, group):
                    return False
                if group.operand(self.materialise(operand), shape) is None:
                    return False
        return True

    @staticmethod
    def _lines_up(reg: Reg, group: Group, shape: tuple[int, ...]) -> bool:
        """Whether a value of the group can be an operand of a result of this shape without moving."""
        if group.is_full(shape):
            if group.is_full(reg.shape) and (reg.shape == shape or math.prod(reg.shape) == math.prod(shape)):
                return True
            padded = (1,) * (len(shape) - len(reg.shape)) + reg.shape
            at = split_at(shape, group.cols)
            return (
                group.order is None
                and reg.kind in ("col", "one")
                and at is not None
                and padded[:at] == shape[:at]
                and all(size == 1 for size in padded[at:])
            )
        return math.prod(reg.shape) == math.prod(shape) and reg.kind in ("col", "one")

    def elementwise(
        self, op: str, fn: str, operands: Sequence[Value], shape: Sequence[int], dtype: str, imm: float = 0.0
    ) -> Reg:
        """``ewu``, ``ewb`` or ``ewi`` on operands that broadcast to ``shape``.

        Raises:
            UsageError: No order of rows and columns addresses all operands.
        """
        shape = tuple(shape)
        group = self._host(operands, shape)
        if group is not None:
            mark = (len(group.micros), len(group.loads), len(group.kinds))
            reg = self._append(group, op, fn, operands, shape, dtype, imm)
            if reg is not None and fits(group, self.machine):
                return reg
            # Too many values at once for the accumulator: undo, and give the node a group of its own.
            del group.micros[mark[0] :], group.loads[mark[1] :], group.kinds[mark[2] :]
            group.raw = {number for number in group.raw if number < mark[2]}
        order = self._order_of(operands, shape)
        dims = [shape[d] for d in order] if order is not None else list(shape)
        cols = dims[-1] if dims else 1
        group = self.group(math.prod(dims) // max(cols, 1), cols, shape, order)
        reg = self._append(group, op, fn, operands, shape, dtype, imm)
        if reg is None:
            raise UsageError(f"{self.node}: its operands cannot be addressed together")
        return reg

    def _append(
        self, group: Group, op: str, fn: str, operands: Sequence[Value], shape: tuple[int, ...], dtype: str, imm: float
    ) -> Reg | None:
        self.belongs(group)
        numbers = []
        for operand in operands:
            number = self.number(group, operand, shape)
            if number is None:
                return None
            numbers.append(number)
        kind = join_kinds([group.kinds[number] for number in numbers])
        result = group.new_value(kind)
        group.micros.append(Micro(op, fn, result, tuple(numbers), float(imm), self.node))
        return Reg(group, result, shape, kind, dtype)

    def number(self, group: Group, operand: Value, shape: tuple[int, ...]) -> int | None:
        """The id of an operand in a group, loading it where it lies in memory."""
        if isinstance(operand, Reg) and operand.group is group:
            return self.as_float(group, operand.number)
        view = self.materialise(operand)
        found = group.operand(view, shape)
        if found is None:
            view = self.copy(view.expand(shape))
            if self.follows(view.buffer.makers, group):
                return None  # the copy must run after this group: a new group has to read it
            found = group.operand(view, shape)
            assert found is not None
        rows, cstride, kind = found
        for load in group.loads:
            if load.view == view and load.rows == rows and load.cstride == cstride:
                return self.as_float(group, load.number)
        self.depend(group, view.buffer.makers)
        number = group.new_value(kind)
        group.loads.append(Operand(number, view, rows, cstride, kind, self.node))
        if view.dtype in ("i8", "i32"):
            group.raw.add(number)
        return self.as_float(group, number)

    def as_float(self, group: Group, number: int) -> int:
        """Vector functions work on f32; integers from memory or an integer product are converted once."""
        if number not in group.raw:
            return number
        for micro in group.micros:
            if micro.fn == "i2f" and micro.sources == (number,):
                return micro.result
        result = group.new_value(group.kinds[number])
        group.micros.append(Micro("ewu", "i2f", result, (number,), 0.0, self.node))
        return result

    # Moves

    def copy(self, source: View, order: Sequence[int] | None = None, target: View | None = None) -> View:
        """A dense copy of a view, or a copy into ``target``."""
        if target is None:
            target = self.dense(f"{self.node}_copy", source.dtype, source.shape, "scratch", order)
        group = self.group(source.numel, 1, source.shape, None, Copy(source, target))
        if target.buffer.first < 0:
            self.depend(group, source.buffer.makers)
        target.buffer.makers.add(group.index)
        return target
