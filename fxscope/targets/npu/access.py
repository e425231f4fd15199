"""Where a tensor's elements lie: a buffer, an offset and strides; the algebra of views on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fxscope.targets.npu.isa import DTYPE_BYTES

ALIGNMENT = 64  # of every buffer, in bytes


@dataclass(eq=False)
class Buffer:
    """One allocation.

    Attributes:
        kind: ``input``, ``weight``, ``output`` or ``scratch``.
        elements: Number of elements.
        region: Set by the memory plan, with ``offset`` in bytes.
        makers: Groups that write it; none where the caller does.
        first: Place in the schedule of the first group that writes it (-1: before the program); ``last``: of the last reader.
        spilled: Why it is not on chip.
    """

    name: str
    dtype: str
    elements: int
    kind: str
    makers: set[int] = field(default_factory=set)
    first: int = -1
    last: int = -1
    region: str = ""
    offset: int = -1
    spilled: str = ""
    constant: float | None = None

    @property
    def bytes(self) -> int:
        """Size, rounded up to the alignment."""
        return max(-(-self.elements * DTYPE_BYTES[self.dtype] // ALIGNMENT) * ALIGNMENT, ALIGNMENT)


@dataclass(frozen=True)
class View:
    """A strided view of a buffer; offset and strides in elements."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.buffer.dtype

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def permute(self, order: Sequence[int]) -> View:
        """Dimensions in another order."""
        return View(
            self.buffer, tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order), self.offset
        )

    def expand(self, shape: Sequence[int]) -> View:
        """Broadcast to a shape, as torch does."""
        missing = len(shape) - len(self.shape)
        strides = [0] * missing + [
            0 if own == 1 and wanted != 1 else stride
            for own, wanted, stride in zip(self.shape, shape[missing:], self.strides, strict=True)
        ]
        return View(self.buffer, tuple(shape), tuple(strides), self.offset)

    def slice(self, dim: int, start: int, stop: int, step: int = 1) -> View:
        """Part of one dimension."""
        length = max(0, -(-(stop - start) // step))
        shape = (*self.shape[:dim], length, *self.shape[dim + 1 :])
        strides = (*self.strides[:dim], self.strides[dim] * step, *self.strides[dim + 1 :])
        return View(self.buffer, shape, strides, self.offset + start * self.strides[dim])

    def select(self, dim: int, index: int) -> View:
        """One index of a dimension, which disappears."""
        return View(
            self.buffer,
            (*self.shape[:dim], *self.shape[dim + 1 :]),
            (*self.strides[:dim], *self.strides[dim + 1 :]),
            self.offset + index * self.strides[dim],
        )

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements under another shape; None where that needs a copy."""
        strides = view_strides(self.shape, self.strides, tuple(shape))
        return None if strides is None else View(self.buffer, tuple(shape), strides, self.offset)


def contiguous(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Dense strides; ``order`` lists the dimensions from slowest to fastest (default: as they are)."""
    strides = [0] * len(shape)
    size = 1
    for dim in reversed(tuple(order) if order is not None else range(len(shape))):
        strides[dim] = size
        size *= max(shape[dim], 1)
    return tuple(strides)


def view_strides(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a reshape without a copy, None where there are none (torch's computeStride)."""
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    blocks: list[list[int]] = []  # [size, stride] of runs that are contiguous with each other
    for size, stride in old:
        if blocks and blocks[-1][1] == stride * size:
            blocks[-1] = [blocks[-1][0] * size, stride]
        else:
            blocks.append([size, stride])
    out: list[int] = []
    at = len(blocks) - 1
    left, step = (blocks[at][0], blocks[at][1]) if blocks else (1, 1)
    for size in reversed(new):
        if size == 1:
            out.append(step)
            continue
        if left == 1 and at > 0:
            at -= 1
            left, step = blocks[at]
        if left % size:
            return None
        out.append(step)
        left //= size
        step *= size
    return tuple(reversed(out))


def collapse(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Merge neighbouring dimensions wherever every operand's strides allow; sizes of 1 vanish.

    Returns:
        The merged shape and each operand's strides; at least one dimension remains.
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in operands]
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(own[-1] == strides[dim] * size for own, strides in zip(merged, operands, strict=True)):
            sizes[-1] *= size
            for own, strides in zip(merged, operands, strict=True):
                own[-1] = strides[dim]
        else:
            sizes.append(size)
            for own, strides in zip(merged, operands, strict=True):
                own.append(strides[dim])
    if not sizes:
        return [1], [[1] for _ in operands]
    return sizes, merged


@dataclass(frozen=True)
class Run:
    """Rows of a tile that lie at one stride: ``rows`` from row ``first`` of the tile, at element ``offset``."""

    first: int
    rows: int
    offset: int
    stride: int


@dataclass
class Rows:
    """Row-major rows over several outer dimensions, for one operand.

    Attributes:
        sizes: Outer dimensions, collapsed for this operand; ``strides`` per dimension.
    """

    sizes: list[int]
    strides: list[int]
    _cache: dict[tuple[int, int], list[Run]] = field(default_factory=dict)

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int]) -> Rows:
        """Collapse what collapses."""
        sizes, merged = collapse(shape, [strides])
        return cls(sizes, merged[0])

    def constant(self) -> bool:
        """Every row is the same one."""
        return all(stride == 0 or size == 1 for size, stride in zip(self.sizes, self.strides, strict=True))

    def runs(self, begin: int, end: int) -> list[Run]:
        """The rows begin..end as runs of one stride each."""
        key = (begin, end)
        found = self._cache.get(key)
        if found is not None:
            return found
        inner, stride = self.sizes[-1], self.strides[-1]
        out = []
        at = begin
        while at < end:
            outer, place = divmod(at, inner)
            rows = min(inner - place, end - at)
            offset = place * stride
            for size, outer_stride in zip(reversed(self.sizes[:-1]), reversed(self.strides[:-1]), strict=True):
                outer, index = divmod(outer, size)
                offset += index * outer_stride
            out.append(Run(at - begin, rows, offset, stride))
            at += rows
        self._cache[key] = out
        return out
