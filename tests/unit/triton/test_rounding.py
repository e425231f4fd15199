"""Division with rounding, remainders and signs follow eager to the sign of a zero, and so do the device's own texts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from fxscope.targets.triton import device, interpreted, module
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from tests.unit.triton.traced import graph

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.3, 2.5, -2.5, 0.5, 1.5, 7.0, -7.0, INF, -INF, NAN]
INTEGERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 100, 127, -128]
OPS: dict[str, Op] = {
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor by a number": lambda a, b: a // -3,
    "floor by a fraction": lambda a, b: a // 0.1,
    "floor of a number": lambda a, b: 1.0 // b,
    "remainder": torch.remainder,
    "remainder by a number": lambda a, b: a % -3,
    "sign": lambda a, b: torch.sign(a),
}


def pairs(numbers: list[Any], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every number over every other; of integers none over 0."""
    x = torch.tensor(numbers).to(dtype)
    y = x if dtype.is_floating_point else x[x != 0]
    return x.repeat_interleave(len(y)), y.repeat(len(x))


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype
    wrong = (got != want) | (torch.signbit(got) != torch.signbit(want))
    wrong &= ~(got.isnan() & want.isnan())
    assert not wrong.any(), (wrong.nonzero()[:5], got[wrong][:5], want[wrong][:5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8, torch.uint8, torch.int64], ids=str)
def test_rounding_and_signs_follow_eager(dtype: torch.dtype) -> None:
    a, b = pairs(FLOATS if dtype.is_floating_point else INTEGERS, dtype)
    names = [name for name in OPS if dtype != torch.uint8 or "number" not in name]

    def every(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(OPS[name](a, b) for name in names)

    want = every(a, b)
    if dtype == torch.float32:
        assert OPS["floor by a fraction"](torch.ones(1), b) == 9  # what floor(1 / 0.1), 10, is not
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, about what the interpreter meets
        got = TritonExecutable(graph(every, a, b), (a, b), first_candidate, torch.device("cpu"), True)(a, b)
    for name, one, other in zip(names, got, want, strict=True):
        try:
            assert_same(one, other)
        except AssertionError as error:
            raise AssertionError(name) from error


def test_numbers_take_the_dtype_of_their_tensor() -> None:
    x = torch.tensor([1, 2, 3, -4])

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + torch.full((4,), 2.7, dtype=torch.int64), torch.sub(x, 3, alpha=2), torch.rsub(x, 3, alpha=2)

    got = TritonExecutable(graph(every, x), (x,), first_candidate, torch.device("cpu"), True)(x)
    for one, other in zip(got, every(x), strict=True):
        assert torch.equal(one, other)


def both(a_ptr, b_ptr, down_ptr, rest_ptr, BLOCK: tl.constexpr):
    """A kernel that divides with the device's functions."""
    at = tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(down_ptr + at, device.floor_div(a, b))
    tl.store(rest_ptr + at, device.remainder(a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32], ids=str)
def test_the_text_of_the_device_functions_follows_eager(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted as it stands: elsewhere the interpreter is given numpy's functions in its place."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    module._interpret()
    monkeypatch.setattr(device, "libdevice", interpreted.libdevice)
    for name in ("divide", "floor_div", "remainder"):
        monkeypatch.setattr(device, name, InterpretedFunction(getattr(device, name).fn))
    a, b = pairs(FLOATS if dtype.is_floating_point else INTEGERS, dtype)
    block = 1 << (len(a) - 1).bit_length()
    a, b = (torch.cat([x, torch.ones(block - len(x), dtype=dtype)]) for x in (a, b))
    down, rest = torch.empty_like(a), torch.empty_like(a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        InterpretedFunction(both)[(1,)](a, b, down, rest, BLOCK=block)
    assert_same(down, OPS["floor"](a, b))
    assert_same(rest, OPS["remainder"](a, b))


@pytest.mark.parametrize("own", [None, "", "/elsewhere"])
def test_the_cache_never_lies_in_the_working_directory(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FXSCOPE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", own or "")
    if own is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    home = Path(own) if own else Path.home() / ".cache"
    assert module.cache_dir() == home / "fxscope" / "triton"
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", "/first")
    assert module.cache_dir() == Path("/first/triton")
