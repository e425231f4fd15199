"""What an island is between FX and Triton: values over named axes.

Every value knows, for each of its dimensions, which *axes* it runs over. A view that only regroups, reorders, adds or drops
dimensions renames nothing and moves nothing: it is another grouping of the same axes. A dimension that two views cut
differently is split into smaller axes, so that a chain through ``view`` and ``permute`` still is one loop nest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

Dims = tuple[tuple[int, ...], ...]  # per dimension its axes, outer to inner; () where its size is 1


class Incompatible(Exception):
    """Two values cannot share one loop nest; the caller puts a kernel boundary between them."""


class Axes:
    """The axes of an island: sizes, and what has become of those that were split or found equal to another."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.became: dict[int, tuple[int, ...]] = {}

    def copy(self) -> Axes:
        """A copy to try something on."""
        other = Axes()
        other.sizes, other.became = dict(self.sizes), dict(self.became)
        return other

    def new(self, size: int) -> int:
        """A new axis."""
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1

    def fresh(self, shape: tuple[int, ...]) -> Dims:
        """New axes for a shape."""
        return tuple(() if size == 1 else (self.new(size),) for size in shape)

    def flat(self, axes: Any) -> tuple[int, ...]:
        """The axes as they are now, outer to inner."""
        out: list[int] = []
        for axis in axes:
            out.extend(self.flat(self.became[axis]) if axis in self.became else (axis,))
        return tuple(out)

    def dims(self, dims: Dims) -> Dims:
        """``flat`` of every dimension."""
        return tuple(self.flat(axes) for axes in dims)

    def all(self, dims: Dims) -> tuple[int, ...]:
        """Every axis of a value, in order of its dimensions."""
        return self.flat([axis for axes in dims for axis in axes])

    def shape(self, dims: Dims) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return tuple(math.prod(self.sizes[axis] for axis in self.flat(axes)) for axes in dims)

    def unify(self, one: tuple[int, ...], other: tuple[int, ...]) -> None:
        """Make two runs of axes the same, splitting where one is cut finer.

        Raises:
            Incompatible: The cuts do not nest, as in (4, 3) against (3, 4).
        """
        left, right = self.flat(one), self.flat(other)
        while left or right:
            if not left or not right:
                raise Incompatible("sizes differ")
            a, b = left[0], right[0]
            if a != b:
                size_a, size_b = self.sizes[a], self.sizes[b]
                if size_a == size_b:
                    self.became[b] = (a,)
                elif size_a > size_b:
                    self._split(a, b, size_a, size_b)
                else:
                    self._split(b, a, size_b, size_a)
            left, right = self.flat(left)[1:], self.flat(right)[1:]

    def _split(self, big: int, small: int, size_big: int, size_small: int) -> None:
        if size_big % size_small:
            raise Incompatible(f"{size_big} is no multiple of {size_small}")
        self.became[big] = (small, self.new(size_big // size_small))

    def strides(self, strides: dict[int, int]) -> dict[int, int]:
        """Strides of the axes as they are now, given those of the axes as they were."""
        out: dict[int, int] = {}
        for axis, stride in strides.items():
            for leaf in reversed(self.flat((axis,))):
                out[leaf] = out.get(leaf, 0) + stride
                stride *= self.sizes[leaf]
        return out


@dataclass(eq=False)
class Memory:
    """Something in device memory: an input of the island, an output, or a value between two kernels.

    Attributes:
        name: Name of the Python variable and, with ``_ptr``, of the kernel argument.
        dtype: torch dtype.
        shape: Sizes; empty for partial sums until the schedule fixes their number.
        strides: In elements.
        source: The island's input it is, else None.
    """

    name: str
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    source: str | None = None
    misaligned: int = 0  # bytes that the address is past a multiple of 16


@dataclass(eq=False)
class Value:
    """One value of a kernel.

    Attributes:
        op: ``load`` from memory, ``const``, ``index`` (a coordinate), ``map`` (pointwise) or ``reduce``.
        dtype: torch dtype as PyTorch sees it. Half types are held as float32.
        dims: Axes of its dimensions.
        args: Values it is computed from.
        expr: map: Triton expression over {0}, {1}...; const: a literal; reduce: sum, max, min, argmax, argmin, or pick (of the value at the
            index that equals the third argument).
        fast: map: the expression for half-precision outputs, None where there is no other.
        approx: map: the expression where only the absolute error counts.
        strides: load and index: distance of neighbours along each axis.
        offset: load: elements from the start of ``memory``; index: the first value.
        reduced: reduce: the axes that go.
        partial: reduce: a sum over the rows of a kernel; the kernel stores one partial sum per program.
        node: Name of the FX node it came from.
    """

    name: str
    op: Literal["load", "const", "index", "map", "reduce"]
    dtype: Any
    dims: Dims
    args: tuple[Value, ...] = ()
    expr: str = ""
    fast: str | None = None
    approx: str | None = None
    memory: Memory | None = None
    strides: dict[int, int] = field(default_factory=dict)
    offset: int = 0
    reduced: tuple[int, ...] = ()
    partial: bool = False
    node: str = ""

    def with_sources(self) -> set[Value]:
        """This value and all that it is computed from."""
        found: set[Value] = set()
        waiting = [self]
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting += value.args
        return found


@dataclass(eq=False)
class Kernel:
    """Values that one kernel computes.

    Attributes:
        values: In order of computation.
        stores: What it writes: value, its memory, and the dimensions it has there.
        extern: A library call instead (``torch.mm`` and the like): its target and arguments (Memory or numbers).
    """

    index: int
    values: list[Value] = field(default_factory=list)
    stores: list[tuple[Value, Memory, Dims]] = field(default_factory=list)
    extern: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None
    needs: set[int] = field(default_factory=set)  # kernels whose results it reads
    nodes: list[str] = field(default_factory=list)
