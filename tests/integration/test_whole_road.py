"""From a program to a timing table: record, fold, decompose, partition, launch eager, Inductor, Triton and the NPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).resolve().parents[2]


def fxscope(*args: str, code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "fxscope", *args, "--json"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == code, done.stderr[-2000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.slow
def test_from_run_to_timing_table(recorded: Callable[..., Any]) -> None:
    run = recorded(ROOT / "samples" / "conv_net.py")
    assert run.exit_code == 0
    passes = fxscope("passes", str(run.path), "--graph", "0/0", "--pipeline", "conv-bn-fold,decompose,partition:triton")
    steps = {step["pass"]: step for step in passes["steps"]}
    assert [match["applied"] for match in steps["conv-bn-fold"]["matches"]] == [True] * 3
    assert all(step["error"] is None for step in steps.values())
    assert all(step["max_abs_diff"] < 1e-5 for step in steps.values() if step["max_abs_diff"] is not None)

    bench = fxscope(
        "bench", str(run.path), "--graph", "0/0", "--executors", "eager,inductor,triton,npu", "--seconds", "0.1", "--sources"
    )  # fmt: skip
    rows = {row["executor"]: row for row in bench["rows"]}
    assert [rows[name]["kind"] for name in ("eager", "inductor", "npu")] == ["measured", "measured", "modelled"]
    triton = rows["triton"]
    assert triton["kind"] == "interpreted"
    assert triton["max_abs_err"] < 1e-5
    assert not triton.get("speedup")  # an interpreted time is compared with nothing
    assert "@triton.jit" in json.dumps(bench)
