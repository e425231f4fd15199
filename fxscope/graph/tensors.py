"""One tensor made from its description: shape, strides, dtype, and the range its use needs; seeded."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fxscope.errors import UsageError
from fxscope.graph.dtypes import DTYPES
from fxscope.graph.ranges import Range, sizes
from fxscope.graph.records import TensorMeta
from fxscope.graph.symbols import Number

_LARGEST = 2**36  # bytes of one made-up tensor; a description from a stranger must not fill the machine


def torch_dtype(short: str) -> torch.dtype:
    """The torch dtype of a short name.

    Raises:
        UsageError: This torch has none of that name.
    """
    dtype = getattr(torch, DTYPES[short][0], None) if short in DTYPES else None
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"cannot make a tensor of dtype {short}: this torch has none of that name")
    return dtype


def make_tensor(
    meta: TensorMeta,
    values: Mapping[str, Number],
    device: torch.device,
    generator: torch.Generator,
    within: Range | None = None,
) -> torch.Tensor:
    """A tensor of the described shape, strides and dtype.

    Args:
        meta: The description.
        values: Values of symbols in it.
        device: Where to put it. Values are drawn on the CPU, so they are the same everywhere.
        generator: A CPU generator.
        within: Which values; by default standard normal, integers 0 or 1.

    Raises:
        UsageError: Negative or enormous sizes, or a dtype that this torch lacks.
    """
    bounds = within or Range()
    dtype = torch_dtype(meta.dtype)
    shape = sizes(meta.shape, values)
    count = 1
    for size in shape:
        count *= size
        if size < 0 or count * dtype.itemsize > _LARGEST:
            raise UsageError(f"cannot make a tensor of shape {shape} ({meta.dtype}): its size is out of range")
    data = _values(shape, dtype, generator, bounds).to(dtype)
    if meta.stride is not None:
        strides = sizes(meta.stride, values)
        extent = 1 + sum((size - 1) * abs(step) for size, step in zip(shape, strides, strict=False) if size > 0)
        if len(strides) != len(shape) or min(strides, default=0) < 0 or extent * dtype.itemsize > _LARGEST:
            raise UsageError(f"cannot make a tensor of shape {shape} with strides {strides}")
        data = _laid_out(data, shape, strides)
    return data.to(device)


def _values(shape: list[int], dtype: torch.dtype, generator: torch.Generator, bounds: Range) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < (1.0 if bounds.low else 0.5)
    if dtype.is_complex:
        real, imaginary = (torch.randn(shape, generator=generator) * bounds.scale for _ in range(2))
        return torch.complex(real, imaginary)
    if dtype.is_floating_point:
        if bounds.positive:
            return torch.rand(shape, generator=generator) + 0.5
        return torch.randn(shape, generator=generator) * bounds.scale + bounds.center
    high = max(bounds.low + 1, min(bounds.high, torch.iinfo(dtype).max))
    return torch.randint(bounds.low, high, shape, generator=generator)


def _laid_out(data: torch.Tensor, shape: list[int], strides: list[int]) -> torch.Tensor:
    """The same values with other strides; where elements overlap (stride 0), one of them wins."""
    if list(data.stride()) == strides or not data.numel():
        return data if data.numel() else torch.empty_strided(shape, strides, dtype=data.dtype)
    result = torch.empty_strided(shape, strides, dtype=data.dtype)
    overlapping = any(step == 0 and size > 1 for size, step in zip(shape, strides, strict=True))
    if overlapping:
        # An expanded dimension: write its first slice, which all others share.
        index = tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)
        result[index].copy_(data[index])
    else:
        result.copy_(data)
    return result
