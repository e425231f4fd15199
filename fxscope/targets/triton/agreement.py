"""Whether two formulations of a kernel wrote the same: memory is poisoned before each, and what they wrote is compared piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set

import torch

from fxscope.targets.triton.builder import HALF
from fxscope.targets.triton.matmul import MatmulNest
from fxscope.targets.triton.nest import Nest

# Relative norm of the difference. Of half types it is that of one rounding: formulations round the same, and differ where their float32
# sums, in another order, fall on two sides of a rounding; of float32 ten times what separates one from float64.
LIMITS = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2.4e-3, torch.float16: 4e-4}
ELEMENT = 0.25  # of an element and the mean of all: what one may be off by, where the norm of all would not show it
SHARE = 1e-3  # of whole numbers and truth values that may differ: ties, and roundings at a comparison
FINITE = 0.01  # of an output's elements: with fewer that are finite it says too little of who is right
SLICE = 2**24  # elements that are held in float64 at a time
PATTERN = 0x5A
NANS = {torch.float64: 0x7FF85A5A5A5A5A5A, torch.float32: 0x7FDA5A5A, torch.bfloat16: 0x7FDA, torch.float16: 0x7F5A}


def poison(tensor: torch.Tensor) -> None:
    """Fill with bits that no kernel computes: a NaN that is none of the arithmetic's own; whole numbers and truth values with an odd pattern."""
    _bits(tensor).fill_(unwritten(tensor.dtype))


def left_out(outputs: Mapping[str, torch.Tensor]) -> str:
    """The first output of floats of which poison is left, and how much; empty where none is."""
    for name, item in outputs.items():
        if item.is_floating_point():
            left = sum(int((piece == unwritten(item.dtype)).sum()) for (piece,) in _pieces(4 * SLICE, _bits(item)))
            if left:
                return f"{name} has {left} elements that were not written"
    return ""


def unwritten(dtype: torch.dtype) -> int:
    """The bits, as a whole number, of an element of poison."""
    return NANS.get(dtype) or int.from_bytes(bytes([PATTERN] * dtype.itemsize), "little")


def limits(nest: Nest) -> dict[str, float]:
    """How far two formulations of a kernel may be apart, for each of its outputs by the name of the memory.

    Of floats the relative norm of the difference, by the coarsest dtype that the output or anything it is computed from has; of whole
    numbers and truth values the share that may differ, which is none where no float is among what they are computed from.
    A matrix product the library sums in an order, and rounds at a place, of its own.
    """
    product = set(nest.product) if isinstance(nest, MatmulNest) else set()
    exact = torch.get_float32_matmul_precision() == "highest"
    allowed = {}
    for value, memory, _ in nest.kernel.stores:
        among = value.with_sources()
        dtypes = {one.dtype for one in among if one.op != "load" or one in product}
        if not memory.dtype.is_floating_point:
            allowed[memory.name] = SHARE if any(one.dtype.is_floating_point for one in among) else 0.0
        elif among & product:
            coarse = not exact or any(dtype in HALF for dtype in {memory.dtype, *dtypes})
            allowed[memory.name] = 1e-2 if coarse else 1e-4
        else:
            allowed[memory.name] = max(LIMITS[dtype] for dtype in {memory.dtype, *dtypes & {*HALF}})
    return allowed


class Results:
    """What a kernel wrote on poisoned memory in one formulation, kept to compare others with.

    Args:
        by: The formulation, in words.
        outputs: What it wrote, by name of the memory; copied.
        partial: Names of those that hold one sum per program, however many programs there are; their totals are compared.
        allowed: How far each may be off; see :func:`limits`.

    Attributes:
        vague: Some output of floats holds next to none that are finite: too few to tell right from wrong.
    """

    def __init__(
        self, by: str, outputs: Mapping[str, torch.Tensor], partial: Set[str], allowed: Mapping[str, float]
    ) -> None:
        self.by, self.partial, self.allowed = by, partial, allowed
        self.vague = False
        self.kept: dict[str, torch.Tensor] = {}
        self.sizes: dict[str, tuple[float, float]] = {}  # of numbers: their norm, and the root of the mean square
        for name, item in outputs.items():
            total, parts = _total(item) if name in partial else (item.clone(), item)
            self.kept[name] = total
            if total.is_floating_point():
                *size, finite = _size(parts)
                self.sizes[name] = size[0], size[1]
                self.vague |= finite < FINITE

    def unlike(self, outputs: Mapping[str, torch.Tensor]) -> str:
        """How another formulation's outputs differ from these beyond rounding, the first that does; empty where none does."""
        for name, want in self.kept.items():
            got, allowed = outputs[name], self.allowed[name]
            if name in self.partial:
                got = _total(got)[0]
            why = _floats(got, want, self.sizes[name], allowed) if name in self.sizes else _others(got, want, allowed)
            if why:
                return f"{name} {why} {self.by}"
        return ""


def _total(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of all programs, and how large it would be if they did not cancel: what its error is to be measured by."""
    wide = parts.double()
    return wide.sum(0), wide.square().sum(0).sqrt()


def _size(tensor: torch.Tensor) -> tuple[float, float, float]:
    """The norm of what is finite, the root of its mean square, and its share of all."""
    squares, count = 0.0, 0
    for (piece,) in _pieces(SLICE, tensor):
        finite = piece.isfinite()
        squares += float(torch.where(finite, piece.double(), 0).square().sum())
        count += int(finite.sum())
    return math.sqrt(squares), math.sqrt(squares / max(count, 1)), count / tensor.numel()


def _floats(got: torch.Tensor, want: torch.Tensor, size: tuple[float, float], allowed: float) -> str:
    norm, around = size
    squares, most = 0.0, 0.0
    for a, b in _pieces(4 * SLICE, got, want):  # as it is nearly always, in three passes: all finite, nothing far off
        off = a - b
        wide = torch.promote_types(off.dtype, torch.float32)
        ends = [float(torch.linalg.vector_norm(off, order, dtype=wide)) for order in (2, math.inf)]
        if not math.isfinite(sum(ends)):
            return _closely(got, want, size, allowed)
        squares, most = squares + ends[0] ** 2, max(most, ends[1])
    if math.sqrt(squares) <= allowed * norm and most <= ELEMENT * around:
        return ""
    return _closely(got, want, size, allowed)


def _closely(got: torch.Tensor, want: torch.Tensor, size: tuple[float, float], allowed: float) -> str:
    norm, around = size
    squares, stray, misplaced = 0.0, 0, 0
    for one, other in _pieces(SLICE, got, want):
        a, b = one.double(), other.double()
        finite = a.isfinite() & b.isfinite()
        misplaced += int((~finite & (a != b) & ~(a.isnan() & b.isnan())).sum())
        off = torch.where(finite, a - b, 0).abs()
        stray += int((off > ELEMENT * (torch.where(finite, b, 0).abs() + around)).sum())
        squares += float(off.square().sum())
    if misplaced:
        return f"has {misplaced} elements that are NaN, infinite or finite otherwise than"
    error = math.sqrt(squares) / max(norm, 1e-300)
    if not error <= allowed:
        return f"differs by {error:.1e} from"
    return f"has {stray} elements that are far from" if stray else ""


def _others(got: torch.Tensor, want: torch.Tensor, share: float) -> str:
    pattern = unwritten(got.dtype)
    left, differ = 0, 0
    for a, b in _pieces(SLICE, _bits(got), _bits(want)):
        left += int(((a == pattern) & (b != pattern)).sum())  # a whole number may be just that
        differ += int((a != b).sum())
    if left:
        return f"has {left} elements that were not written, unlike"
    return f"has {differ} other elements than" if differ > share * want.numel() else ""


def _pieces(count: int, *tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Slices of so many elements of tensors of one shape, in the order of the first one's memory."""
    order = sorted(range(tensors[0].dim()), key=tensors[0].stride, reverse=True)
    flat = [tensor.permute(order).reshape(-1) for tensor in tensors]
    for at in range(0, flat[0].numel(), count):
        yield tuple(piece[at : at + count] for piece in flat)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers."""
    same = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(same[tensor.dtype.itemsize])
