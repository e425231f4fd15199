"""Columns that lie so far apart that no 32 bits hold an address: the interpreter counts in them as a card does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable
from fxscope.targets.triton.schedule import Schedule, candidates
from tests.unit.triton.every import distinct
from tests.unit.triton.traced import graph

APART = 2**27  # the 17th column starts at 2**31
CPU = torch.device("cpu")


def spread(rows: int) -> torch.Tensor:
    """20 columns far apart, of which no more is ever touched than their elements."""
    base = torch.empty(19 * APART + rows, dtype=torch.int8)
    return base.as_strided((rows, 20), (1, APART)).copy_(torch.arange(rows * 20).view(rows, 20) * 7 % 100 - 50)


def close_by(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Neighbours in memory are columns of one tensor and rows of the other: programs hold whole rows."""
    return torch.softmax(t.float() + y, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, y: t.float().sum(1),
        lambda t, y: torch.softmax(t.float(), 1),
        lambda t, y: t.float().argmax(1),
        close_by,
        lambda t, y: (t.float() + y).argmax(1),
        lambda t, y: ((t.float() + y).sum(1), (t.float() * y).sum(0)),
        lambda t, y: t.t().float().sum(0) + y.sum(1),
        lambda t, y: y + t[0],
        lambda t, y: t.float() + y,  # tiles
        lambda t, y: (t.float() * 2, y * 2),  # one launch
    ],
)
def test_columns_far_apart(function: Callable[..., Any]) -> None:
    t, y = spread(600), torch.randn(600, 20, generator=torch.Generator().manual_seed(0))
    wanted = function(t, y)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    traced = graph(function, t, y)
    turn, turns = 0, 1
    while turn < turns:
        taken: list[str] = []

        def choose(nest: Any, *_: Any) -> Schedule:
            nonlocal turns
            options = distinct(candidates(nest))
            turns = max(turns, min(3, len(options)))
            taken.append(options[turn % len(options)].text())  # noqa: B023 -- called within this turn
            return options[turn % len(options)]  # noqa: B023

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of elements behind a mask
            results = TritonExecutable(traced, (t, y), choose, CPU, True)(t, y)
        for got, want in zip(results, wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, msg=lambda said: f"{taken}: {said}")  # noqa: B023
        turn += 1
