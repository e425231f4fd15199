"""What the compiler works on between FX nodes and instructions: groups, one tile loop nest each, and values in them.

A group covers an iteration space of ``rows`` x ``cols``. Its values live in the accumulator, one tile at a time, as
``full`` [rows, cols], ``row`` [1, cols], ``col`` [rows, 1] or ``one`` [1, 1]. What another group or the caller needs is
stored to a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fxscope.targets.npu.access import Rows, View

KINDS = ("one", "row", "col", "full")


@dataclass(frozen=True)
class Const:
    """A number known when the island is compiled."""

    value: float


@dataclass(eq=False)
class Reg:
    """A value of a group.

    Attributes:
        number: Its id in the group.
        shape: Logical shape, as torch sees it.
        dtype: What it is stored as.
        view: Where it lies once it is stored.
        base: The value that this one is another shape of.
    """

    group: Group
    number: int
    shape: tuple[int, ...]
    kind: str
    dtype: str
    view: View | None = None
    base: Reg | None = None


Value = Const | Reg | View


@dataclass
class Operand:
    """A value of a group that lies in memory: one that it loads, or one that it stores.

    Attributes:
        rows: Strides over the row dimensions; ``cstride`` over the columns.
    """

    number: int
    view: View
    rows: Rows
    cstride: int
    kind: str
    node: str


@dataclass
class Micro:
    """One vector operation on values of a group.

    Attributes:
        op: ``ewu``, ``ewb``, ``ewi`` or ``red``.
        sources: Value ids; for ``sel``: condition, value, otherwise.
    """

    op: str
    fn: str
    result: int
    sources: tuple[int, ...]
    imm: float
    node: str


@dataclass
class Matrix:
    """Products of a gemm group: ``images`` x ``parts`` of [m, k] @ [k, n]; part p makes columns p * n.. of the result.

    Attributes:
        left: View [images..., m, k]; for a convolution [images..., h, w, parts * channels], with ``window``.
        right: View [images..., k..., n], or [parts, k..., n] for a convolution; k may go over several dimensions.
        window: Registers of ldx for a convolution.
    """

    m: int
    n: int
    k: int
    images: int
    parts: int
    left: View
    right: View
    dtype: str
    window: dict[str, int] | None = None

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.m * self.n * self.k * self.images * self.parts


@dataclass
class Windowed:
    """Pooling or depthwise convolution: per image, pixels x (window, channels), reduced over the window.

    Attributes:
        image: View [images, h, w, channels] with channels contiguous.
        weight: View [window, channels] that multiplies the gathered block, or None.
    """

    image: View
    window: dict[str, int]
    positions: int
    channels: int
    pixels: int
    reduction: str
    weight: View | None = None


@dataclass
class Copy:
    """Elements moved from one view to another of the same shape."""

    source: View
    target: View


@dataclass
class Reduce:
    """A reduction that does not fit one row of the accumulator, or whose rows are not contiguous.

    Attributes:
        source: View [kept..., reduced...].
        kept: Number of kept dimensions.
    """

    source: View
    kept: int
    fn: str
    scale: float


@dataclass(eq=False)
class Group:
    """One tile loop nest.

    Attributes:
        rows, cols: Iteration space.
        shape: Logical shape of full values when the space was made; ``order`` the dimensions from slow to fast.
        columns: How many trailing dimensions (of ``order``) make up the columns.
        anchor: What produces value 0; None for a purely element-wise group.
    """

    index: int
    rows: int
    cols: int
    shape: tuple[int, ...]
    order: tuple[int, ...] | None = None
    anchor: Matrix | Windowed | Copy | Reduce | None = None
    micros: list[Micro] = field(default_factory=list)
    loads: list[Operand] = field(default_factory=list)
    stores: list[Operand] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    raw: set[int] = field(default_factory=set)  # values that hold i32 words
    nodes: list[str] = field(default_factory=list)
    before: int = 0  # bit set of the groups it depends on, directly or not
    note: dict[str, Any] = field(default_factory=dict)  # what the emitter chose: tile factors, traffic

    @property
    def kind(self) -> str:
        """``matrix``, ``window``, ``copy``, ``reduce`` or ``vector``."""
        names = {Matrix: "matrix", Windowed: "window", Copy: "copy", Reduce: "reduce"}
        return names[type(self.anchor)] if self.anchor is not None else "vector"

    @property
    def reduces(self) -> bool:
        """Some value needs whole rows."""
        return any(micro.op == "red" for micro in self.micros)

    def new_value(self, kind: str) -> int:
        """A fresh value id."""
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def is_full(self, shape: Sequence[int]) -> bool:
        """Whether a logical shape covers the whole space in the same order."""
        if math.prod(shape) != self.rows * self.cols:
            return False
        if self.order is not None:
            return tuple(shape) == self.shape
        return split_at(shape, self.cols) is not None

    def is_column(self, shape: Sequence[int]) -> bool:
        """Whether a logical shape has one element per row."""
        return self.order is None and self.cols > 1 and math.prod(shape) == self.rows

    def operand(self, view: View, shape: Sequence[int]) -> tuple[Rows, int, str] | None:
        """How a view, broadcast to ``shape``, is addressed in this space; None where it needs a copy first."""
        view = view.expand(shape)
        if self.is_column(shape) and not self.is_full(shape):
            rows = Rows.of(view.shape, view.strides)
            return rows, 1, "one" if rows.constant() else "col"
        if self.order is not None:
            view = view.permute(self.order)
        at = split_at(view.shape, self.cols)
        if at is None:
            return None
        columns = Rows.of(view.shape[at:], view.strides[at:])
        if len(columns.sizes) > 1:
            return None
        rows = Rows.of(view.shape[:at], view.strides[:at])
        cstride = columns.strides[0] if self.cols > 1 else 1
        if self.rows == 1 or rows.constant():
            kind = "one" if cstride == 0 or self.cols == 1 else "row"
            if (self.rows == 1 and kind == "one" and self.cols == 1) or (self.rows == 1 and kind == "row"):
                kind = "full"
        else:
            kind = "col" if cstride == 0 else "full"
        return rows, cstride, kind


def split_at(shape: Sequence[int], cols: int) -> int | None:
    """Index from which the trailing dimensions multiply to ``cols``; None where none does."""
    size, at = 1, len(shape)
    while size < cols and at:
        at -= 1
        size *= shape[at]
    return at if size == cols else None


def join_kinds(kinds: Sequence[str]) -> str:
    """Kind of an element-wise result."""
    if "full" in kinds or ("row" in kinds and "col" in kinds):
        return "full"
    return "row" if "row" in kinds else "col" if "col" in kinds else "one"
