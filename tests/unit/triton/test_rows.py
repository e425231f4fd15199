"""What a kernel reads of a row: elements that are picked, what lies past the row's end, single numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from tests.unit.triton.traced import graph


def compile_and_run(function: Any, *args: torch.Tensor) -> tuple[TritonExecutable, tuple[Any, ...]]:
    executable = TritonExecutable(graph(function, *args), args, first_candidate, torch.device("cpu"), True)
    return executable, executable(*args)


def test_what_is_picked_of_a_row_is_read_alone_beside_other_reductions() -> None:
    """Cross entropy reads its row for the maximum and the sum, and the target's element as one number."""
    x, target = torch.randn(37, 45), torch.randint(0, 45, (37,))
    target[3] = -100
    executable, (loss,) = compile_and_run(lambda x, t: F.cross_entropy(x, t, reduction="none"), x, target)
    torch.testing.assert_close(loss, F.cross_entropy(x, target, reduction="none"))
    (source,) = executable.latest.sources
    assert source.text.count("tl.sum(") == 1
    assert "x_1_ptr + row * N + t_1.to(tl.int64)" in source.text


def test_the_least_of_a_computed_row_leaves_out_what_lies_past_its_end() -> None:
    x = torch.rand(5, 45) + 1  # exp of a masked 0 would be below every element
    _, (least,) = compile_and_run(lambda x: torch.amin(torch.exp(x), -1), x)
    torch.testing.assert_close(least, torch.amin(torch.exp(x), -1))


def test_a_single_number_is_read_as_one() -> None:
    executable, (more,) = compile_and_run(lambda x: x + 1, torch.tensor(41))
    assert more.item() == 42
    (load,) = [line for line in executable.latest.sources[0].text.splitlines() if "tl.load(" in line]
    assert "mask=mask" in load
