"""Real programs with Inductor, recorded and read back: a transformers GPT-2, a ResNet-50, two ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fxscope

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
pytestmark = pytest.mark.slow


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_gpt2_trains_with_changing_lengths(recorded: Callable[..., Any]) -> None:
    arguments = ["--layers", "1", "--width", "32", "--lengths", "16", "24", "32"]
    run = recorded(SAMPLES / "gpt2.py", *arguments)
    assert run.exit_code == 0, run.stderr
    assert [line.split(":")[0] for line in run.stdout.splitlines()] == ["length 16", "length 24", "length 32"]
    recording = fxscope.open(run.path)
    compiled = [compile_ for compile_ in recording.compiles if compile_.calls]
    assert max(compile_.calls for compile_ in compiled) == 2  # 24 and 32 share the graph with a symbolic length
    assert all(compile_.backend == "inductor" for compile_ in compiled)
    symbolic = [row for compile_ in compiled for row in compile_.inputs if row["kind"] == "symint"]
    assert symbolic
    assert all(row["hint"] == 24 for row in symbolic)
    assert any("backward.code" in compile_.stages for compile_ in compiled)
    assert recording.totals.recompiles >= 1
    assert recording.totals.failures == recording.totals.unknown_events == 0


def test_resnet_trains_and_evaluates(recorded: Callable[..., Any]) -> None:
    # A block in each of two stages has every kind of layer that the 50 layers have, at a tenth of the compile time.
    run = recorded(SAMPLES / "resnet50.py", "--blocks", "1", "1", "0", "0", "--size", "32")
    assert run.exit_code == 0, run.stderr
    recording = fxscope.open(run.path)
    train, evaluate = recording.compiles
    assert [compile_.calls for compile_ in (train, evaluate)] == [1, 1]
    assert {"joint", "forward", "backward", "forward.code", "backward.code"} <= set(train.stages)
    assert "backward" not in evaluate.stages
    assert (recording.totals.graph_breaks, recording.totals.recompiles) == (0, 1)
    weights = sum(row["parameter"] for row in train.inputs if row["kind"] == "tensor")
    assert weights == 3 + 2 * (3 * 3 + 3) + 2  # stem; two blocks of three convolutions and a shortcut; head


def test_two_ranks_are_one_recording(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "-o", str(tmp_path / "r"), "--"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *torchrun, str(SAMPLES / "two_ranks.py")],
        capture_output=True,
        text=True,
        env=env,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ranks, gradient norm ")
    names = sorted(path.name for path in (tmp_path / "r").glob("*.log"))
    assert [name.split("_")[4:6] for name in names] == [["rank", "0"], ["rank", "1"]]  # none of torchrun's own agent
    session = json.loads((tmp_path / "r" / "session.json").read_text())
    assert [process["rank"] for process in session["processes"]] == [0, 1]
    recording = fxscope.open(tmp_path / "r")
    assert recording.session.ranks == [0, 1]
    # Compiles come in the order of time, and either rank may be first.
    assert sorted((compile_.rank, compile_.calls) for compile_ in recording.compiles) == [(0, 3), (1, 3)]
