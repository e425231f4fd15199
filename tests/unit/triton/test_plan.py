"""How kernels and library calls of one island stand beside one another."""

from __future__ import annotations

import warnings

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.backend import make_backend
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from fxscope.targets.triton.target import TritonTarget
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


def test_running_statistics_that_a_backward_needs() -> None:
    """A GPU's batch norm returns them; a CPU's returns tensors of no elements, and is left to eager where those are used."""

    def function(x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ops.aten._native_batch_norm_legit_no_training(x, w, None, mean, var, 0.1, 1e-5)

    args = tuple(on_device(torch.rand(shape) + 0.5) for shape in ((2, 3, 4), (3,), (3,), (3,)))
    traced = graph(lambda *given: function(*given), *args)
    (norm,) = (node for node in traced.graph.nodes if "batch_norm" in str(node.target))
    if INTERPRETED:
        assert "of shape (0,) has no elements" in TritonTarget().supports(norm)[0].text
        traced = graph(lambda *given: (function(*given)[0],), *args)
    got = TritonExecutable(traced, args, first_candidate, DEVICE, INTERPRETED)(*args)
    for one, other in zip(got, function(*args), strict=False):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_what_has_no_elements_is_left_to_eager() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:0] * 2, x[:, :0].sum(1) + 1, x[:, :0] @ x[:0], x[:0].sum(), x * 2

    x = on_device(torch.randn(4, 5))
    backend = make_backend(TritonTarget(), decompositions="none")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", UserWarning)  # "runs eagerly: ..." of an island that does not compile
        got = torch.compile(function, backend=backend)(x)
    for one, other in zip(got, function(x), strict=True):
        torch.testing.assert_close(one, other)


def test_dimensions_of_a_scalar() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        s = x.sum()
        rows = s.transpose(0, -1).softmax(-1) + s.sum(0) + s.amax(-1) + s.mean(0, keepdim=True) + s.t() + s.permute(())
        return (
            rows,
            s.cumsum(0) * 2,
            s.flip(0) + 1,
            s.var(0, correction=0) * 2,
            s.argmax(0),
            s.max(0)[0] + 1,
            s.squeeze(0) + 1,
        )

    x = on_device(torch.randn(5))
    backend = make_backend(TritonTarget(), decompositions="none")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", UserWarning)
        got = torch.compile(function, backend=backend)(x)
    for one, other in zip(got, function(x), strict=True):
        torch.testing.assert_close(one, other)
