"""When two formulations are said to have written the same, and when not."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton import agreement
from fxscope.targets.triton.agreement import LIMITS, SHARE, Results, left_out, poison

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def compare(want: torch.Tensor, got: torch.Tensor, allowed: float | None = None, partial: bool = False) -> str:
    """What is said of one output, ``out``."""
    allowed = LIMITS.get(want.dtype, SHARE) if allowed is None else allowed
    return Results("plain", {"out": want}, {"out"} if partial else set(), {"out": allowed}).unlike({"out": got})


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_order_of_a_sum_is_the_same(dtype: torch.dtype) -> None:
    """Sums in float32 (float64), of whole rows and of eight parts, of rows that are scaled by them and rounded."""
    wide = torch.promote_types(dtype, torch.float32)
    x = numbers(300, 1000).to(wide) / 3
    one, other = x.sum(1, keepdim=True), x.view(300, 8, 125).transpose(1, 2).contiguous().sum(1).sum(1, keepdim=True)
    assert not torch.equal(one, other)
    assert compare((x * one).to(dtype), (x * other).to(dtype)) == ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_row_and_a_wrong_element_are_seen(dtype: torch.dtype) -> None:
    want = numbers(2000, 1000).to(dtype)
    row = want.clone()
    row[7] = want[8]
    assert compare(want, row).startswith("out differs by ")
    element = want.clone()
    element[1234, 56] += 2  # of two million: the norm shows nothing in half precision
    said = compare(want, element)
    assert said == "out has 1 elements that are far from plain" or said.startswith("out differs by ")
    assert compare(want, want.clone()) == ""


def test_what_is_no_number_sits_where_it_sat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "SLICE", 100)  # several pieces
    want = numbers(30, 40)
    want[3, 3], want[4, 4], want[5, 5] = float("nan"), float("inf"), -float("inf")
    assert compare(want, want.clone()) == ""
    for value in (float("nan"), float("inf"), 1.0):
        other = want.clone()
        other[5, 5] = value
        assert compare(want, other) == "out has 1 elements that are NaN, infinite or finite otherwise than plain"
    other = want.clone()
    other[29, 39] = float("nan")
    assert "1 elements that are NaN" in compare(want, other)


def test_the_order_in_memory_does_not_matter() -> None:
    want = numbers(5, 7, 9).float()
    got = torch.empty(9, 5, 7).permute(1, 2, 0)  # dense, in another order
    got.copy_(want)
    assert compare(want, got) == ""
    spread = torch.empty(5, 14, 9)[:, ::2]
    spread.copy_(want)
    assert compare(spread, got) == ""
    got[4, 6, 8] += 1
    assert compare(spread, got) != ""


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool])
def test_whole_numbers_may_differ_at_a_rounding_and_not_be_left_out(dtype: torch.dtype) -> None:
    want = (numbers(100, 100) > 0).to(dtype)
    got = torch.empty_like(want)
    poison(got)
    got[:50] = want[:50]
    assert compare(want, got) == "out has 5000 elements that were not written, unlike plain"
    got.copy_(want)
    assert compare(want, got) == ""
    got[0, :10] = want[0, :10] == 0  # one in a thousand
    assert compare(want, got) == ""
    got[1, 0] = want[1, 0] == 0
    assert compare(want, got) == "out has 11 other elements than plain"
    got.copy_(want)
    got[99, 99] = want[99, 99] == 0
    assert compare(want, got, 0.0) == "out has 1 other elements than plain"


def test_poison_is_seen_in_every_element(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in (*DTYPES, torch.int64, torch.bool, torch.uint8):
        got = torch.zeros(3, 5, dtype=dtype)
        poison(got)
        assert "15 elements" in compare(torch.zeros(3, 5, dtype=dtype), got)
        if dtype in DTYPES:
            assert left_out({"whole": torch.zeros(3), "out": got}) == "out has 15 elements that were not written"
            assert bool(got.isnan().all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_told_from_what_is_computed(dtype: torch.dtype) -> None:
    """Where the result is no number everywhere, a kernel that writes nothing would agree with it."""
    nan = torch.full((20, 30), float("nan"), dtype=dtype)
    made = [
        nan,
        -nan,
        nan * 0,
        (nan - nan).sqrt(),
        (torch.zeros(20, 30, dtype=dtype) - 1).log(),
        nan.double().to(dtype),
    ]
    assert all(one.isnan().all() for one in made)
    assert left_out({str(at): one for at, one in enumerate(made)}) == ""
    poison(nan[3, 4:6])
    assert left_out({"nan": nan.t()}) == "nan has 2 elements that were not written"


@pytest.mark.parametrize(("count", "vague"), [(0, True), (5, True), (6, False), (600, False)])
def test_results_with_next_to_no_numbers_say_so(count: int, vague: bool) -> None:
    want = torch.full((600,), float("inf"))
    want[:count] = 1
    assert Results("plain", {"out": want}, set(), {"out": 1e-5}).vague == vague
    assert not Results("plain", {"out": want.isfinite()}, set(), {"out": 0.0}).vague


def test_sums_per_program_are_compared_by_their_totals() -> None:
    """However many programs there are; by the size of the parts, for a total may cancel to rounding."""
    rows = numbers(64, 50).float()
    rows = torch.cat([rows, -rows + 1e-7])
    few, many = rows.reshape(4, 32, 50).sum(1), rows.reshape(16, 8, 50).sum(1)
    apart = (few.sum(0) - many.sum(0)).norm() / few.sum(0).norm()
    assert apart > 1e-3  # nothing but rounding is left of them
    assert compare(few, many, partial=True) == ""
    many[3] = 0
    assert compare(few, many, partial=True).startswith("out differs by ")
    many[3] = float("nan")  # not written
    assert "50 elements that are NaN" in compare(few, many, partial=True)


def test_what_is_kept_is_a_copy() -> None:
    want = torch.ones(10)
    kept = Results("plain", {"out": want}, set(), {"out": 1e-5})
    want.fill_(2)
    assert kept.unlike({"out": want}) == "out differs by 1.0e+00 from plain"
