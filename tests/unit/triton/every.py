"""Runs a function in every formulation that may be timed; used by the tests of Triton kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fxscope.targets.triton import row_forms, schedule
from fxscope.targets.triton.executable import TritonExecutable
from fxscope.targets.triton.schedule import Schedule, candidates
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device

Tensors = tuple[torch.Tensor, ...]
TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-4, torch.bfloat16: 3e-3}  # relative norm of the error


def layernorm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)


def rmsnorm_backward(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, rstd: torch.Tensor) -> Tensors:
    """The gradients of the rows and of the weights, which are a sum over the rows."""
    wide = torch.promote_types(x.dtype, torch.float32)
    g, y, scale = g.to(wide), x.to(wide) * rstd.to(wide), w.to(wide)
    dx = (g * scale - y * (g * scale * y).mean(-1, keepdim=True)) * rstd.to(wide)
    return dx.to(x.dtype), (g * y).sum(0)


def layernorm_backward(
    g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> Tensors:
    """The gradients of the rows, the weights and the biases: two sums along the rows, and two over them."""
    backward = torch.ops.aten.native_layer_norm_backward.default
    return backward(g, x, [x.shape[-1]], mean, rstd, w, w, [True, True, True])


def bias_relu(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + b)


def tensors(dtype: torch.dtype, past: int, *shapes: tuple[int, ...]) -> Tensors:
    """Random tensors; the matrices among them start ``past`` elements past 16 bytes."""
    out = []
    for seed, shape in enumerate(shapes):
        start = past if len(shape) > 1 and shape[-1] > 1 else 0
        numbers = torch.randn(start + torch.Size(shape).numel(), generator=torch.Generator().manual_seed(seed))
        out.append(on_device(numbers.to(dtype)[start:].view(shape)))
    return tuple(out)


def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors get the formulations of large ones, and persistent grids fewer programs than there are rows."""
    monkeypatch.setattr(row_forms, "SMS", 4)
    monkeypatch.setattr(schedule, "SMS", 4)
    monkeypatch.setattr(row_forms, "traffic", lambda nest: 2**30)


def distinct(options: list[Schedule]) -> list[Schedule]:
    """One each of those that differ in more than numbers that an interpreter knows nothing of, or how many programs there are."""
    same: dict[str, Any] = {"warps": 8, "maxnreg": None, "hints": False} if INTERPRETED else {}
    kinds = {replace(o, **same, programs=bool(o.programs)): o for o in reversed(options)}
    return list(kinds.values())


def run_every(function: Callable[..., Any], args: Tensors) -> list[Schedule]:
    """Run with every distinct candidate of every kernel, compare each result with float64, and give the candidates."""
    traced = graph(function, *args)
    wanted = function(*(x.double() for x in args))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    ran: list[Schedule] = []
    turn, turns = 0, 1
    while turn < turns:
        now: list[Schedule] = []

        def choose(nest: Any, *_: Any) -> Schedule:
            nonlocal turns
            options = distinct(candidates(nest))
            if options[0].form == "loop" and nest.row_count > 1000:  # adds up partial sums: slow to interpret
                return replace(options[-1], tile=1024)
            turns = max(turns, len(options))
            now.append(options[turn % len(options)])  # noqa: B023 -- called within this turn
            return now[-1]  # noqa: B023

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of elements behind a mask
            results = TritonExecutable(traced, args, choose, DEVICE, INTERPRETED)(*args)
        for got, want in zip(results, wanted, strict=True):
            error = float((got.double() - want).norm() / want.norm())
            assert error < TOLERANCE[got.dtype], [option.text() for option in now]
        ran += now
        turn += 1
    return ran
