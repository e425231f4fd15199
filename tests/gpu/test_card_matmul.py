"""Matrix products with their tails on a card: every formulation right, the choice by measurement, the library beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable
from fxscope.targets.triton.matmul import MatmulNest
from fxscope.targets.triton.schedule import LIBRARY, candidates
from fxscope.targets.triton.tune import Tuner
from tests.unit.triton.traced import graph

CARD = torch.device("cuda", 0)
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 8e-4, torch.float32: 2e-6}


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.linear(x, w, b)) + r


def make(rows: int, depth: int, cols: int, dtype: torch.dtype) -> list[torch.Tensor]:
    shapes = ((rows, depth), (cols, depth), (cols,), (rows, cols))
    return [torch.randn(s, device="cuda").mul(0.3).to(dtype) for s in shapes]


def error(got: torch.Tensor, args: list[torch.Tensor]) -> float:
    want = linear(*(x.double() for x in args))
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_the_choice_is_by_measurement(dtype: torch.dtype, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    args = make(512, 768, 1000, dtype)
    timed: list[tuple[Any, float]] = []
    measure = Tuner.measure

    def spy(self: Tuner, nest: Any, *rest: Any) -> Any:
        found = measure(self, nest, *rest)
        if isinstance(nest, MatmulNest):
            timed.extend(found)
        return found

    monkeypatch.setattr(Tuner, "measure", spy)
    executable = TritonExecutable(graph(linear, *args), args, Tuner(CARD).choose, CARD, False)
    assert error(executable(*args)[0], args) < TOLERANCE[dtype]
    best = min(timed, key=lambda pair: pair[1])[0]
    assert len(timed) >= 2
    assert (executable.launches == 1) == (best.form == "matmul")
    count = len(timed)
    again = TritonExecutable(graph(linear, *args), args, Tuner(CARD).choose, CARD, False)
    assert again.launches == executable.launches
    assert len(timed) == count  # the choice came from disk


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_every_formulation_is_right(dtype: torch.dtype) -> None:
    args = make(300, 200, 264, dtype)
    tried, right, refused = 1, 0, []
    number = 0
    while number < tried:

        def choose(nest: Any, write: Any, name: str, values: Any, number: int = number) -> Any:
            nonlocal tried
            options = candidates(nest)
            if options[0] is not LIBRARY:
                return options[0]
            tried = len(options)
            return options[number]

        try:
            executable = TritonExecutable(graph(linear, *args), args, choose, CARD, False)
        except Exception as problem:
            refused.append(f"{type(problem).__name__}: {problem}")
        else:
            right += error(executable(*args)[0], args) < TOLERANCE[dtype]
        number += 1
    assert right == tried - len(refused)
    assert right >= 8
    assert all("out of resource" in text for text in refused), refused
