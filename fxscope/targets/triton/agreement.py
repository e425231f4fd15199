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
ELEMENT = 0.25  # of an element and the norm around it: what one element may be off by, where the norm of all would not show it
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
        self.kept = {name: _total(item)[0] if name in partial else item.clone() for name, item in outputs.items()}

    def unlike(self, outputs: Mapping[str, torch.Tensor]) -> str:
        """How another formulation's outputs differ from these beyond rounding, the first that does; empty where none does."""
        for name, want in self.kept.items():
            got, size = _total(outputs[name]) if name in self.partial else (outputs[name], None)
            why = _floats(got, want, size, self.allowed) if want.is_floating_point() else _others(got, want)
            if why:
                return f"{name} {why} {self.by}"
        return ""


def _total(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of all programs, and how large it would be if they did not cancel: what its error is to be measured by."""
    wide = parts.double()
    return wide.sum(0), wide.square().sum(0).sqrt()


def _floats(got: torch.Tensor, want: torch.Tensor, size: torch.Tensor | None, allowed: float) -> str:
    zero = torch.zeros((), dtype=torch.float64, device=want.device)
    apart, total, stray, misplaced = zero.clone(), zero.clone(), zero.clone(), zero.clone()
    for a, b, scale in _pieces(got, want, want if size is None else size):
        a, b, scale = a.double(), b.double(), scale.double()
        finite = a.isfinite() & b.isfinite()
        misplaced += (~finite & (a != b) & ~(a.isnan() & b.isnan())).sum()
        off = torch.where(finite, a - b, 0).abs()
        scale = torch.where(finite & scale.isfinite(), scale, 0).abs()
        squares = scale.square().sum()
        stray += (off > ELEMENT * (scale + (squares / finite.sum().clamp_min(1)).sqrt())).sum()
        apart += off.square().sum()
        total += squares
    if misplaced:
        return f"has {int(misplaced)} elements that are NaN, infinite or finite otherwise than"
    error = float((apart / total.clamp_min(1e-300)).sqrt())
    if not error <= allowed:
        return f"differs by {error:.1e} from"
    return f"has {int(stray)} elements that are far from" if stray else ""


def _others(got: torch.Tensor, want: torch.Tensor) -> str:
    if got.dtype == torch.bool:
        got, want = got.view(torch.uint8), want.view(torch.uint8)
        unwritten = PATTERN
    else:
        unwritten = _unwritten(got.dtype)
    left, differ = 0, 0
    for a, b in _pieces(got, want):
        left += int(((a == unwritten) & (b != unwritten)).sum())
        differ += int((a != b).sum())
    if left:
        return f"has {left} elements that were not written, unlike"
    return f"has {differ} other elements than" if differ > SHARE * want.numel() else ""


def _pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Slices of tensors of one shape, in the order of the first one's memory."""
    order = sorted(range(tensors[0].dim()), key=tensors[0].stride, reverse=True)
    flat = [tensor.permute(order).reshape(-1) for tensor in tensors]
    for at in range(0, flat[0].numel(), SLICE):
        yield tuple(piece[at : at + SLICE] for piece in flat)


def _unwritten(dtype: torch.dtype) -> int:
    return int.from_bytes(bytes([PATTERN] * dtype.itemsize), "little")
