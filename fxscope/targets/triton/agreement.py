"""Whether two formulations of a kernel wrote the same: memory is poisoned before each, and what they wrote is compared piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set

import torch

from fxscope.targets.triton.builder import HALF
from fxscope.targets.triton.nest import Nest

# Relative norm of the difference. Of half types it is that of one rounding: formulations round the same, and differ where their float32
# sums, in another order, fall on two sides of a rounding; of float32 ten times what separates one from float64.
LIMITS = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2.4e-3, torch.float16: 4e-4}
ELEMENT = 0.25  # of an element and the mean of all: what one may be off by, where the norm of all would not show it
SHARE = 1e-3  # of whole numbers and truth values that may differ: ties, and roundings at a comparison
SLICE = 2**24  # elements that are held in float64 at a time
PATTERN = 0x5A


def poison(tensor: torch.Tensor) -> None:
    """Fill with what no kernel is likely to write: NaN; whole numbers and truth values with a pattern of bits."""
    if tensor.is_floating_point():
        tensor.fill_(math.nan)
    elif tensor.dtype == torch.bool:
        tensor.view(torch.uint8).fill_(PATTERN)
    else:
        tensor.fill_(_unwritten(tensor.dtype))


def limit(nest: Nest, product: bool) -> float:
    """How far two formulations of a kernel may be apart: by the coarsest dtype that it computes or writes.

    Args:
        nest: The kernel.
        product: It holds a matrix product, which the library sums in an order and rounds at a place of its own.
    """
    dtypes = {memory.dtype for _, memory, _ in nest.kernel.stores}
    dtypes |= {value.dtype for value in nest.kernel.values if value.op != "load" and value.dtype in HALF}
    if product:
        exact = torch.get_float32_matmul_precision() == "highest"
        return 1e-2 if not exact or any(dtype.itemsize == 2 for dtype in dtypes) else 1e-4
    return max(LIMITS.get(dtype, 0.0) for dtype in dtypes)


class Results:
    """What a kernel wrote on poisoned memory in one formulation, kept to compare others with.

    Args:
        by: The formulation, in words.
        outputs: What it wrote, by name of the memory; copied.
        partial: Names of those that hold one sum per program, however many programs there are; their totals are compared.
        allowed: Relative norm of the difference that may be.
    """

    def __init__(self, by: str, outputs: Mapping[str, torch.Tensor], partial: Set[str], allowed: float) -> None:
        self.by, self.partial, self.allowed = by, partial, allowed
        self.kept: dict[str, torch.Tensor] = {}
        self.sizes: dict[str, tuple[float, float]] = {}  # of numbers: their norm, and the root of the mean square
        for name, item in outputs.items():
            total, parts = _total(item) if name in partial else (item.clone(), item)
            self.kept[name] = total
            if total.is_floating_point():
                self.sizes[name] = _size(parts)

    def unlike(self, outputs: Mapping[str, torch.Tensor]) -> str:
        """How another formulation's outputs differ from these beyond rounding, the first that does; empty where none does."""
        for name, want in self.kept.items():
            got = _total(outputs[name])[0] if name in self.partial else outputs[name]
            why = _floats(got, want, self.sizes[name], self.allowed) if name in self.sizes else _others(got, want)
            if why:
                return f"{name} {why} {self.by}"
        return ""


def _total(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of all programs, and how large it would be if they did not cancel: what its error is to be measured by."""
    wide = parts.double()
    return wide.sum(0), wide.square().sum(0).sqrt()


def _size(tensor: torch.Tensor) -> tuple[float, float]:
    squares, count = 0.0, 0
    for (piece,) in _pieces(SLICE, tensor):
        finite = piece.isfinite()
        squares += float(torch.where(finite, piece.double(), 0).square().sum())
        count += int(finite.sum())
    return math.sqrt(squares), math.sqrt(squares / max(count, 1))


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


def _others(got: torch.Tensor, want: torch.Tensor) -> str:
    if got.dtype == torch.bool:
        got, want = got.view(torch.uint8), want.view(torch.uint8)
        unwritten = PATTERN
    else:
        unwritten = _unwritten(got.dtype)
    left, differ = 0, 0
    for a, b in _pieces(SLICE, got, want):
        left += int(((a == unwritten) & (b != unwritten)).sum())
        differ += int((a != b).sum())
    if left:
        return f"has {left} elements that were not written, unlike"
    return f"has {differ} other elements than" if differ > SHARE * want.numel() else ""


def _pieces(count: int, *tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Slices of so many elements of tensors of one shape, in the order of the first one's memory."""
    order = sorted(range(tensors[0].dim()), key=tensors[0].stride, reverse=True)
    flat = [tensor.permute(order).reshape(-1) for tensor in tensors]
    for at in range(0, flat[0].numel(), count):
        yield tuple(piece[at : at + count] for piece in flat)


def _unwritten(dtype: torch.dtype) -> int:
    return int.from_bytes(bytes([PATTERN] * dtype.itemsize), "little")
