"""Every formulation that may be timed is right, whichever is the fastest."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")
from tests.unit.triton import every
from tests.unit.triton.every import (
    as_if_large,
    bias_relu,
    layernorm,
    layernorm_backward,
    rmsnorm_backward,
    run_every,
    tensors,
)

HALF, FULL = torch.float16, torch.float32
BACKWARD = {"programs", "reread", "hoist", "2 chunks", "4 chunks"}
CASES = {  # what must be among the formulations, so that none is left out unseen
    "layer norm": (layernorm, HALF, [(5, 2048), (2048,), (2048,)], {"repack", "reread", "2 rows a tile"}),
    "layer norm, float32": (layernorm, FULL, [(5, 2048), (2048,), (2048,)], {"reread", "2 rows a tile"}),
    "layer norm, short rows": (layernorm, HALF, [(9, 200), (200,), (200,)], {"16 rows a tile"}),
    "layer norm, ragged": (
        layernorm,
        HALF,
        [(5, 8190), (8190,), (8190,)],
        {"window", "programs", "split", "shifted", "hoist", "prefetch", "next row to the cache", "4 chunks"},
    ),
    "rms norm backward": (
        rmsnorm_backward,
        HALF,
        [(5, 8192), (5, 8192), (8192,), (5, 1)],
        {*BACKWARD, "repack", "next row to the cache"},
    ),
    "rms norm backward, float32": (rmsnorm_backward, FULL, [(3, 8200), (3, 8200), (8200,), (3, 1)], BACKWARD),
    "rms norm backward, ragged": (
        rmsnorm_backward,
        HALF,
        [(5, 8190), (5, 8190), (8190,), (5, 1)],
        {*BACKWARD, "window", "shifted", "repack", "next row to the cache"},
    ),
    "rms norm backward, short rows": (
        rmsnorm_backward,
        HALF,
        [(9, 200), (9, 200), (200,), (9, 1)],
        {"rows a tile", "programs", "loop"},
    ),
    "bias and relu": (bias_relu, HALF, [(5, 1000), (1000,)], {"flat"}),
    "sums alone": (lambda x: (x.float() * 2).sum(0), HALF, [(520, 40)], {"sums"}),
    "a product's bias": (
        lambda b, x, w: torch.relu(torch.addmm(b, x, w)) * 2,
        FULL,
        [(48,), (64, 32), (32, 48)],
        {"library", "flat"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_candidate_agrees_with_float64(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, dtype, shapes, among = CASES[case]
    as_if_large(monkeypatch)
    ran = run_every(function, tensors(dtype, 0, *shapes))
    texts = " ".join(option.text() for option in ran)
    assert {word for word in among if word not in texts} == set()


@pytest.mark.parametrize(("dtype", "cols", "chunks"), [(FULL, 8193, {8, 16}), (HALF, 8192 + 128, {8})])
def test_wide_rows_whose_sums_fill_half_of_the_registers(
    dtype: torch.dtype, cols: int, chunks: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are held in small parts; the formulations that hold more are those of other tests."""
    as_if_large(monkeypatch)
    monkeypatch.setattr(
        every, "distinct", lambda options: [o for o in options if o.chunks >= 8 and not o.hints] or options[:1]
    )
    args = tensors(dtype, 0, (5, cols), (5, cols), (cols,), (5, 1), (5, 1))
    ran = [option for option in run_every(layernorm_backward, args) if option.form == "row"]
    assert {option.chunks for option in ran} == chunks
    assert {option.weights for option in ran} == ({"shifted", "reload"} if cols % 2 else {"reload"})
