"""Generated kernels on a card: overlapping launches, addresses past 32 bits, the generated programs of the interpreter's test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from tests.unit.triton.traced import graph

UNIT = Path(__file__).resolve().parents[1] / "unit" / "triton"
PROCESSES = 8


def compiled(function: Callable[..., Any], *args: torch.Tensor, choose: Any = first_candidate) -> TritonExecutable:
    return TritonExecutable(graph(function, *args), args, choose, torch.device("cuda", 0), False)


def step(x: torch.Tensor) -> torch.Tensor:
    return x * 1.0009765625 + 0.5


@pytest.mark.parametrize("rows", [1, 64, 3000, 40000])
def test_a_chain_of_kernels_that_start_early_reads_what_was_written(rows: int) -> None:
    """Each kernel is in place before the one ahead has ended, and memory is used again two kernels later."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("launches overlap from compute capability 9.0 on")
    x = torch.randn(rows, 1024, device="cuda")
    run = compiled(step, x)
    assert run.latest.sources[0].overlap
    assert "gdc_wait()" in run.latest.sources[0].text
    want = x.clone()
    for _ in range(200):
        want = torch.addcmul(torch.full_like(want, 0.5), want, torch.full_like(want, 1.0009765625))
    got = x
    for _ in range(200):
        (got,) = run(got)  # the caching allocator hands the memory of the value before last out again
    torch.testing.assert_close(got, want, rtol=2e-4, atol=0)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        replayed = x
        for _ in range(200):
            (replayed,) = run(replayed)
    for _ in range(20):
        recorded.replay()
    assert torch.equal(replayed, got)
    mixed = x  # eager kernels between ours
    for at in range(200):
        mixed = (
            run(mixed)[0] if at % 3 else torch.addcmul(torch.full_like(x, 0.5), mixed, torch.full_like(x, 1.0009765625))
        )
    torch.testing.assert_close(mixed, want, rtol=2e-4, atol=0)


def test_launches_of_several_that_start_early_read_what_was_written() -> None:
    """As above, with kernels that share a launch: each reads what the other wrote in the launch ahead."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("launches overlap from compute capability 9.0 on")

    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return step(y).t().contiguous(), step(x).t().contiguous()

    x, y = torch.randn(300, 1024, device="cuda"), torch.randn(1024, 300, device="cuda")
    run = compiled(both, x, y)
    (source,) = run.latest.sources
    assert source.schedule.form == "several"
    assert source.overlap
    assert "gdc_wait()" in source.text
    want, got = (x, y), (x, y)
    for _ in range(200):
        want = tuple(
            torch.addcmul(torch.full_like(z, 0.5), z, torch.full_like(z, 1.0009765625)).t() for z in want[::-1]
        )
        got = run(*got)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=0)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        replayed = (x, y)
        for _ in range(200):
            replayed = run(*replayed)
    for _ in range(20):
        recorded.replay()
    assert all(torch.equal(one, other) for one, other in zip(replayed, got, strict=True))


@pytest.mark.parametrize("cols", [32768, 32767])  # the second one's rows start anywhere
@pytest.mark.parametrize("function", [lambda x: torch.relu(x) * 2 + 1, lambda x: torch.softmax(x, -1)])
def test_more_elements_than_32_bits_count(function: Callable[..., Any], cols: int) -> None:
    rows = 65544
    free, _ = torch.cuda.mem_get_info()
    if free < 3 * rows * cols * 2:
        pytest.skip("needs 13 GB of device memory")
    assert rows * cols > 2**31
    x = torch.empty(rows, cols, device="cuda", dtype=torch.bfloat16).normal_()
    run = compiled(function, x)
    (got,) = run(x)
    assert "tl.int64" in run.latest.sources[0].text
    for part in range(0, rows, 4096):
        want = function(x[part : part + 4096].double())
        error = (got[part : part + 4096].double() - want).norm() / want.norm()
        assert error < 2.4e-3
    del got, x
    torch.cuda.empty_cache()


def start(*options: str, shard: str = "0/1") -> subprocess.Popen[str]:
    """Tests of tests/unit/triton with the card where they have the interpreter."""
    env = {
        **os.environ,
        "FXSCOPE_TEST_DEVICE": "cuda",
        "FXSCOPE_TEST_SHARD": shard,
        "FXSCOPE_TRITON_AUTOTUNE": "0",
    }
    env.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=UNIT)


def ended_well(*runs: subprocess.Popen[str]) -> None:
    try:
        outputs = [run.communicate(timeout=400)[0] for run in runs]
    finally:
        for run in runs:  # one that ran out of time is not left on the card
            run.kill()
    failed = [out for run, out in zip(runs, outputs, strict=True) if run.returncode]
    assert not failed, failed[0][-4000:]


def test_the_generated_programs_agree_on_the_card() -> None:
    """The 300 programs of tests/unit/triton/test_generated.py, several processes at once."""
    shards = [f"{shard}/{PROCESSES}" for shard in range(PROCESSES)]
    ended_well(*(start("-p", "no:xdist", "test_generated.py", shard=shard) for shard in shards))


def test_every_formulation_agrees_on_the_card() -> None:
    """What may be timed of norms, their backward, sums, chains, tiles and launches of several, with every number of warps and registers."""
    files = ("test_candidates.py", "test_misaligned.py", "test_tiles.py", "test_siblings.py")
    ended_well(start("-n", str(PROCESSES), *files))


def test_what_once_went_wrong_agrees_on_the_card() -> None:
    """Names that meet, sums of what is expanded, kernels that take another's place, chains of hundreds of ops."""
    files = ("test_names.py", "test_sums.py", "test_plan.py", "test_long_chains.py")
    ended_well(start("-n", str(PROCESSES), *files))
