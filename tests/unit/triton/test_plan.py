"""How kernels and library calls of one island stand beside one another."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device


def test_a_library_call_after_a_merge_takes_no_kernels_place() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one, two = x + 1, y * 2  # two kernels
        other = z.softmax(-1)  # a third
        both = one - two  # makes one of the first two
        product = both @ both.t()
        return other, both, product, (product * 2).relu()

    args = tuple(on_device(torch.randn(shape)) for shape in ((4, 5), (4, 5), (3, 7)))
    got = TritonExecutable(graph(function, *args), args, first_candidate, DEVICE, INTERPRETED)(*args)
    for one, other in zip(got, function(*args), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
