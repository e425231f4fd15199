"""FX nodes may be called like anything that a kernel, or the Python that starts it, calls its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from fxscope.targets.triton.schedule import Schedule, candidates
from tests.unit.triton.every import as_if_large, run_every, tensors
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device

OWN = [
    "row", "cols", "mask", "sum", "index", "index_0", "index_1", "index_2", "row_0", "row_1", "cols_0", "cols_1", "mask_edge", "edge", "next_row", "program",
    "device", "empty", "torch", "fits", "call", "shifted_copies", "inf", "fused_add_mul", "add_ptr", "gdc_wait", "gdc_launch_dependents",
]  # fmt: skip


def named(function: Callable[..., Any], names: tuple[str, str], *args: torch.Tensor) -> torch.fx.GraphModule:
    """A function of two tensors with its placeholders called so."""
    gm = graph(function, *args)
    for node, name in zip(gm.graph.find_nodes(op="placeholder"), names, strict=True):
        node._rename(name)
    gm.recompile()
    return gm


def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y) * 2


def normed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y).softmax(-1)


@pytest.mark.parametrize("name", OWN)
def test_inputs_may_be_called_like_what_a_kernel_uses(name: str) -> None:
    x, y = on_device(torch.randn(3, 1, 5, 1)), on_device(torch.randn(3, 2, 1, 5))
    for function in (outer, normed):
        for names in ((name, "y"), ("x", name)):
            traced = named(function, names, x, y)
            (got,) = TritonExecutable(traced, (x, y), first_candidate, DEVICE, INTERPRETED)(x, y)
            torch.testing.assert_close(got, function(x, y), rtol=1e-5, atol=1e-6)


def columns_of_two_dimensions(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Whose coordinates are numbered, as the parts of a row are, and the nodes: mul, mul_1, mul_2."""
    y = g * w * x + g * x
    return y - y.mean((-2, -1), keepdim=True), y.sum(0)


def test_parts_of_a_row_are_no_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_large(monkeypatch)
    ran = run_every(columns_of_two_dimensions, tensors(torch.float32, 0, (3, 64, 130), (3, 64, 130), (64, 1)))
    assert {2, 4} <= {option.chunks for option in ran}


@pytest.mark.parametrize(
    "names", [("x", "w", "w_shifted"), ("x", "w_shifted", "w"), ("w", "w_shifted", "w_shifted_shifted")]
)
@pytest.mark.parametrize("together", [True, False], ids=["one kernel", "a library call"])
def test_a_shifted_copy_is_no_other_tensor(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], together: bool
) -> None:
    as_if_large(monkeypatch)

    def function(x: torch.Tensor, w: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = torch.softmax(x * w, -1)
        return rows, rows * other if together else (rows @ rows.t()) @ other

    args = tensors(torch.float32, 0, (4, 1001), (1001,), (4, 1001))
    traced = graph(function, *args)
    for node, name in zip(traced.graph.find_nodes(op="placeholder"), names, strict=True):
        node._rename(f"{name}_before")
    for node, name in zip(traced.graph.find_nodes(op="placeholder"), names, strict=True):
        node._rename(name)
    traced.recompile()
    copied = []

    def choose(nest: Any, *_: Any) -> Schedule:
        options = candidates(nest)
        copied.extend(option for option in options if option.weights == "shifted")
        return next((option for option in options if option.weights == "shifted"), options[0])

    results = TritonExecutable(traced, args, choose, DEVICE, INTERPRETED)(*args)
    assert copied
    for got, want in zip(results, function(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_kernels_of_the_same_ops_have_names_of_their_own() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (((x * 2 + 1) @ w) * 3 + 4) @ w

    x, w = on_device(torch.randn(6, 8)), on_device(torch.randn(8, 8))
    executable = TritonExecutable(graph(function, x, w), (x, w), first_candidate, DEVICE, INTERPRETED)
    torch.testing.assert_close(executable(x, w)[0], function(x, w), rtol=1e-4, atol=1e-4)
    assert executable.latest is not None
    assert [source.name for source in executable.latest.sources] == ["fused_mul_add", "fused_mul_add_2"]


def test_a_number_among_the_inputs_is_no_tensor() -> None:
    x, y = on_device(torch.randn(3, 5)), on_device(torch.randn(3, 5))
    traced = named(outer, ("unused_2", "number"), x, y)
    with traced.graph.inserting_after(traced.graph.find_nodes(op="placeholder")[-1]):
        traced.graph.placeholder("s0").meta["val"] = 3
    traced.recompile()
    (got,) = TritonExecutable(traced, (x, y, 3), first_candidate, DEVICE, INTERPRETED)(x, y, 3)
    torch.testing.assert_close(got, outer(x, y))
