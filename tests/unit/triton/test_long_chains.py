"""Unrolled loops are chains of hundreds of ops: they are cut into kernels, and take time in proportion."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from fxscope.targets.triton.fuse import MAX_VALUES
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device


def test_a_chain_of_hundreds_of_ops_is_several_kernels() -> None:
    def unrolled(x: torch.Tensor) -> torch.Tensor:
        for _ in range(250):
            x = x.sin() + 0.1
        return x.softmax(-1)

    x = on_device(torch.randn(3, 10, generator=torch.Generator().manual_seed(0)))
    made = TritonExecutable(graph(unrolled, x), (x,), first_candidate, DEVICE, INTERPRETED)
    torch.testing.assert_close(made(x)[0], unrolled(x), rtol=1e-4, atol=1e-5)
    assert made.launches == -(-500 // MAX_VALUES)


def test_a_value_that_is_used_twice_in_every_step_is_looked_at_once() -> None:
    def gated(x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):  # two to the sixtieth ways from the end to the beginning
            x = x * torch.sigmoid(x) + 1
        return x.log_softmax(-1)

    x = on_device(torch.randn(3, 10, generator=torch.Generator().manual_seed(0)))
    (got,) = TritonExecutable(graph(gated, x), (x,), first_candidate, DEVICE, INTERPRETED)(x)
    torch.testing.assert_close(got, gated(x), rtol=1e-4, atol=1e-5)
