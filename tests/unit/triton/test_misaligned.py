"""Half-precision tensors that start between 16-byte boundaries, and wide rows in parts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton import row_forms
from fxscope.targets.triton.executable import TritonExecutable
from fxscope.targets.triton.schedule import Schedule, candidates
from tests.unit.triton.every import as_if_large, bias_relu, layernorm, rmsnorm_backward, run_every, tensors
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def error(function: Any, args: tuple[torch.Tensor, ...], choose: Any) -> tuple[float, str]:
    """Relative norm of the error against float64, and the kernel's text."""
    args = tuple(on_device(x) for x in args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        executable = TritonExecutable(graph(function, *args), args, choose, DEVICE, INTERPRETED)
        (got,) = executable(*args)
    want = function(*(x.double() for x in args))
    assert executable.latest is not None
    return float((got.double() - want).norm() / want.norm()), executable.latest.sources[0].text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [1, 3, 4, 6])
@pytest.mark.parametrize("shape", [(5, 64), (3, 1000), (7, 24)])
def test_rows_and_chains_are_read_in_whole_words(dtype: torch.dtype, shift: int, shape: tuple[int, int]) -> None:
    x = torch.randn(shape[0] * shape[1] + shift).to(dtype)[shift:].view(shape)
    for function in (softmax, lambda x: torch.relu(x) * 2 + 1):

        def first(nest: Any, *_: Any) -> Schedule:
            options = candidates(nest)
            assert not options[-1].words  # element by element is tried too
            return options[0]

        off, text = error(function, (x,), first)
        assert "device.load_between(x_1_ptr, " in text
        assert off < 4e-3


def softmax_and_sum(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A row that is read three times, twice behind its end too, and a sum over the rows."""
    wide = torch.promote_types(x.dtype, torch.float32)
    y = torch.softmax(x.to(wide), -1) * g.to(wide)
    return y.to(x.dtype), y.sum(0)


BF, FP = torch.bfloat16, torch.float16
CHUNKS = {"2 chunks", "4 chunks"}
WORDS = {  # elements past 16 bytes, and what must be among the formulations that read words
    "whole blocks": (softmax_and_sum, BF, 1, [(5, 8192), (5, 8192)], {*CHUNKS, "repack", "programs"}),
    "past the row's end": (softmax_and_sum, FP, 6, [(5, 8200), (5, 8200)], {*CHUNKS, "next row to the cache"}),
    "rms norm backward": (rmsnorm_backward, BF, 3, [(5, 8192), (5, 8192), (8192,), (5, 1)], {*CHUNKS, "hoist"}),
    "backward, short rows": (rmsnorm_backward, FP, 4, [(9, 200), (9, 200), (200,), (9, 1)], {"rows a tile"}),
    "layer norm": (layernorm, BF, 5, [(5, 1000), (1000,), (1000,)], {"2 rows a tile", "repack", "reread"}),
    "layer norm of short rows": (layernorm, FP, 7, [(2, 9, 40), (40,), (40,)], {"16 rows a tile"}),
    "bias and relu": (bias_relu, BF, 2, [(5, 1000), (1000,)], {"flat"}),
}


@pytest.mark.parametrize("case", WORDS)
def test_every_formulation_reads_the_right_words(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, dtype, past, shapes, among = WORDS[case]
    as_if_large(monkeypatch)
    ran = run_every(function, tensors(dtype, past, *shapes))
    texts = " ".join(option.text() for option in ran if option.words)
    assert {word for word in among if word not in texts} == set()


def test_rows_that_start_anywhere_are_not() -> None:
    x = torch.randn(3 * 1001 + 1).to(torch.bfloat16)[1:].view(3, 1001)
    off, text = error(softmax, (x,), lambda nest, *_: candidates(nest)[0])
    assert "load_between" not in text
    assert off < 4e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_wide_row_in_parts_and_vectors_kept_apart(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_forms, "SMS", 8)
    monkeypatch.setattr(row_forms, "traffic", lambda nest: 2**30)
    x, (w, b) = torch.randn(9, 8191).to(dtype), torch.randn(2, 8191).to(dtype)
    kinds: set[tuple[Any, ...]] = set()

    def each(nest: Any, *_: Any) -> Schedule:
        for option in candidates(nest):
            kind = (min(option.chunks, 2), option.live, option.weights, option.prefetch)
            if (option.chunks > 1 or option.weights == "split") and kind not in kinds:
                kinds.add(kind)
                return option
        return candidates(nest)[0]

    before = -1
    while len(kinds) != before:
        before = len(kinds)
        off, _ = error(layernorm, (x, w, b), each)
        assert off < 3e-4
    assert len(kinds) == (4 if dtype == torch.float16 else 2)
