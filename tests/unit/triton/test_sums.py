"""Sums along rows and down them, met in one graph: what backward graphs of norms are made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device

SHAPES = [(2, 13, 32), (2, 300, 8), (1, 1, 32), (7, 1, 1), (2, 13, 1)]


def weights_first(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As in the backward graph of an RMS norm: the sum down the rows stands before the one along them."""
    scaled = g * w
    down = (g * x).sum((0, 1), keepdim=True)
    along = (scaled * x).sum(2, keepdim=True)
    return down, scaled - along * x


def rows_first(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    along = (g * w * x).sum(2, keepdim=True)
    return (g * x).sum((0, 1), keepdim=True), g * w - along * x, (g * x).sum(1), g.sum((0, 1, 2))


def across(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Memory in the other order: neighbours lie in different rows."""
    g, x = g.transpose(0, 2), x.transpose(0, 2)
    along = (g * x).sum((0,), keepdim=True)
    return (g * x).sum((1, 2)), g - along * x, (g * x).sum((2,))


@pytest.mark.parametrize("function", [weights_first, rows_first, across])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_along_and_down_the_rows(function: object, shape: tuple[int, ...]) -> None:
    assert callable(function)
    torch.manual_seed(0)
    args = tuple(on_device(torch.randn(size)) for size in (shape, shape, shape[-1:]))
    got = TritonExecutable(graph(function, *args), args, first_candidate, DEVICE, INTERPRETED)(*args)
    for one, other in zip(got, function(*args), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


EXPANDED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "of a row": (lambda x: (x * 2).expand(3, 6).sum(), (6,)),
    "of a column": (lambda x: (x * 2).expand(4, 6).sum(1), (4, 1)),
    "mean": (lambda x: (x * 2).expand(4, 6).mean(), (4, 1)),
    "down, after a reduction": (lambda x: (x.sum(1, keepdim=True) * 2).expand(4, 6).sum(0) + x, (4, 6)),
    "along, after a reduction": (lambda x: (x.sum(1, keepdim=True) * 2).expand(4, 6).sum(1), (4, 6)),
    "many rows": (lambda x: (x * 2).expand(600, 6).sum(0), (1, 6)),
    "of a scalar": (lambda x: (x.sum() * 2).expand(4, 6).sum(1), (4, 6)),
    "in the middle": (lambda x: (x * 2).unsqueeze(1).expand(5, 3, 6).reshape(15, 6).sum(0), (5, 6)),
}


@pytest.mark.parametrize("case", EXPANDED)
def test_what_is_expanded_counts_as_often(case: str) -> None:
    function, shape = EXPANDED[case]
    x = on_device(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    (got,) = TritonExecutable(graph(function, x), (x,), first_candidate, DEVICE, INTERPRETED)(x)
    torch.testing.assert_close(got, function(x), rtol=1e-4, atol=1e-4)
