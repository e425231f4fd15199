"""The whole road on a card: record a program, fold, decompose, partition, launch four executors on one island; launch times by device events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fxscope.cli import bench as bench_verb
from fxscope.cli import passes as passes_verb
from tests.gpu.recorded import ROOT, record

FOLDED = "conv-bn-fold,decompose:inductor,freeze"
PROGRAM = """
import sys
sys.path.insert(0, {samples!r})
import torch
from conv_net import ConvNet
torch.manual_seed(0)
model = torch.compile(ConvNet().eval().cuda())
with torch.no_grad():
    for _ in range(3):
        model(torch.randn(64, 3, 224, 224, device="cuda"))
"""
STEPS = """
import torch
layer = torch.nn.Linear(4096, 4096, device="cuda", dtype=torch.bfloat16)
step = torch.compile(lambda x: torch.relu(layer(x)).float().square().mean())
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
for _ in range(40):
    step(x).backward()
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("road")
    path = record(folder, "program", PROGRAM.format(samples=str(ROOT / "samples")))

    def call(verb: Any, *arguments: str) -> Any:
        device = ["--device", "cuda"] if verb is bench_verb else []
        done = CliRunner().invoke(verb.command, [str(path), "--graph", "0/0", "--inference", *device, *arguments])
        assert done.exit_code == 0, (done.output, done.exception)
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    return call


def test_fold_decompose_partition(road: Callable[..., Any]) -> None:
    document = road(passes_verb, "--pipeline", f"{FOLDED},partition:triton", "--json")
    fold, _, _, partition = document["steps"]
    assert {step["status"] for step in document["steps"]} == {"applied"}
    assert [match["applied"] for match in fold["matches"]] == [True] * 3
    assert sum(match["applied"] for match in partition["matches"]) >= 3
    assert partition["max_rel_diff_start"] < 1e-2  # cuDNN's float32 convolutions take TF32


def test_one_island_under_four_executors(road: Callable[..., Any]) -> None:
    options = ["--pipeline", FOLDED, "--executors", "eager,inductor,npu,triton", "--seconds", "0.2"]
    document = road(bench_verb, *options, "--island", "0", "--json")
    rows = {row["executor"]: row for row in document["rows"]}
    assert {name: (row["kind"], row["status"]) for name, row in rows.items()} == {
        "eager": ("measured", "ok"),
        "inductor": ("measured", "ok"),
        "npu": ("modelled", "ok"),
        "triton": ("measured", "ok"),
    }
    for name in ("eager", "inductor", "triton"):
        row = rows[name]
        assert row["max_abs_err"] < 1e-4
        assert row["gbps"] == pytest.approx(row["bytes"] / row["median_ms"] / 1e6)
        assert 0 < row["peak_share"] < 2
    assert rows["triton"]["speedup"] > 1


def test_launch_times_are_of_the_device(tmp_path: Path, log_events: Callable[[Path], Any]) -> None:
    path = record(tmp_path, "steps", STEPS)
    events = [event for log in path.glob("*.log") for event in log_events(log)]
    texts = [text for envelope, text in events if envelope.get("artifact", {}).get("name") == "fxscope.launches"]
    last = json.loads(texts[-1])["entries"][-1]
    assert last["calls"] == 40
    for direction in ("forward", "backward"):
        row = last[direction]
        assert row["clock"] == "device"
        assert row["samples"] >= 20
        # 2 * 4096^3 operations forward, twice that backward, take a millisecond on the fastest card and never a second
        assert 1e-5 < row["min"] <= row["mean"] <= row["max"] < 1
    assert last["backward"]["mean"] > last["forward"]["mean"]
