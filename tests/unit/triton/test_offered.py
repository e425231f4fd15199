"""What is offered and what it rests on, for an H200's number of multiprocessors; nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton import row_forms
from fxscope.targets.triton.schedule import SMS, vector
from tests.unit.triton.every import layernorm, rmsnorm_backward, tensors
from tests.unit.triton.tuning import kernel

HALF, FULL = torch.float16, torch.float32


@pytest.mark.parametrize("dtype", [HALF, FULL])
@pytest.mark.parametrize("cols", [4095, 8190, 9001])
@pytest.mark.parametrize("backward", [False, True])
def test_rows_of_a_program_start_at_one_place_within_16_bytes(
    dtype: torch.dtype, cols: int, backward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works out once where the vectors of its rows begin."""
    monkeypatch.setattr(row_forms, "traffic", lambda nest: 2**30)
    rows = 2 * SMS + 3
    shapes: list[tuple[int, ...]] = [(rows, cols), (cols,), (cols,)]
    if backward:
        shapes = [(rows, cols), (rows, cols), (cols,), (rows, 1)]
    function: Callable[..., Any] = rmsnorm_backward if backward else layernorm
    made = kernel(function, *tensors(dtype, 0, *shapes))
    persistent = [option for option in made.options if option.programs]
    assert persistent
    assert all(option.window for option in persistent)
    assert [o.text() for o in persistent if o.programs * cols % vector(made.nest)] == []


def test_where_the_largest_is_and_short_ragged_rows_are_no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window's two ends lie apart from its middle, and a place within a row is counted from its start."""
    monkeypatch.setattr(row_forms, "traffic", lambda nest: 2**30)

    def windows(function: Callable[..., Any], cols: int) -> set[bool]:
        return {option.window for option in kernel(function, *tensors(FULL, 0, (5, cols))).options}

    assert windows(lambda x: x.argmax(-1), 2047) == {False}
    assert windows(lambda x: x.amax(-1), 2047) == {True}
    assert windows(lambda x: x.amax(-1), 2048) == {False}
    assert windows(lambda x: x.amax(-1), 63) == {False}
