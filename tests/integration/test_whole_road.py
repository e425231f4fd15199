"""From a program to a timing table: record, fold, decompose, partition, launch eager, Inductor, Triton and the NPU on one island."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fxscope.cli import bench as bench_verb
from fxscope.cli import passes as passes_verb

pytest.importorskip("triton")
ROOT = Path(__file__).resolve().parents[2]
FOLDED = "conv-bn-fold,decompose:inductor,freeze"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, also where there is a GPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def road(recorded: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a verb on the recording of convolutions, batch norms, pointwise ops and a softmax."""
    run = recorded(ROOT / "samples" / "conv_net.py", options=("--save-tensors",))
    assert run.exit_code == 0, run.stderr

    def call(verb: Any, *arguments: str) -> Any:
        done = CliRunner().invoke(verb.command, [str(run.path), "--graph", "0/0", "--inference", *arguments])
        assert done.exit_code == 0, (done.output, done.exception)
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    return call


@pytest.mark.slow
@pytest.mark.parametrize("target", ["npu", "triton"])
def test_fold_decompose_partition(road: Callable[..., Any], target: str) -> None:
    document = road(passes_verb, "--pipeline", f"{FOLDED},partition:{target}", "--json")
    assert "inputs are the program's own, of its first call (--save-tensors)" in document["notes"]
    fold, _, freeze, partition = document["steps"]
    assert {step["status"] for step in document["steps"]} == {"applied"}
    assert [match["applied"] for match in fold["matches"]] == [True] * 3
    assert all(match["max_rel_diff"] < 2e-6 for match in fold["matches"])
    assert [match["source"].split(":")[0] for match in fold["matches"]] == ["conv_net.py"] * 3
    assert partition["max_rel_diff_start"] < 1e-5
    assert "norm.running_var" in fold["state_removed"] + freeze["state_removed"]
    assert freeze["state_added"] == [f"_folded_{at}" for at in range(6)]
    islands = [match for match in partition["matches"] if match["applied"]]
    outside = {
        match["nodes"][0]: match["text"] for match in partition["matches"] if match["reason"] not in (None, "benefit")
    }
    assert all(re.search(rf"^[1-9]\d* nodes? on {target}", match["text"]) for match in islands)
    inside = {name for match in islands for name in match["nodes"]}
    if target == "npu":  # one island from the first convolution on
        assert sum(name.startswith("convolution") for name in inside) == 3
    else:  # convolutions stay outside, each with the reason
        assert len(islands) >= 3
        assert sum(name.startswith("convolution") for name in outside) == 3
        assert all("triton has no aten.convolution.default" in outside[name] for name in outside if "conv" in name)
        assert any("softmax" in name or "amax" in name for name in inside)


@pytest.mark.slow
def test_one_island_under_four_executors(road: Callable[..., Any]) -> None:
    """The last island for Triton: residual, mean, linear layer and softmax, after the fold."""
    options = ["--pipeline", FOLDED, "--executors", "eager,inductor,npu,triton", "--island", "2", "--seconds", "0.02"]
    document = road(bench_verb, *options, "--json", "--sources")
    rows = {row["executor"]: row for row in document["rows"]}
    assert [(row["executor"], row["kind"], row["status"]) for row in document["rows"]] == [
        ("eager", "measured", "ok"),
        ("inductor", "measured", "ok"),
        ("npu", "modelled", "ok"),
        ("triton", "interpreted", "ok"),
    ]
    assert document["reference"] == "eager in float64"
    assert all(row["max_abs_err"] < 1e-5 for row in rows.values())
    assert all(row["median_ms"] > 0 for row in rows.values())
    assert len({row["bytes"] for row in rows.values()}) == 1
    for name in ("eager", "inductor"):
        row = rows[name]
        assert row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]
        assert row["gbps"] == pytest.approx(row["bytes"] / row["median_ms"] / 1e6)
        assert row["speedup"] > 0
    assert rows["inductor"]["launches"] < rows["eager"]["launches"]
    for name in ("npu", "triton"):  # a model's and an interpreter's time are compared with nothing
        assert rows[name]["speedup"] is rows[name]["peak_share"] is rows[name]["predicted_ms"] is None
        assert document["partitions"][name]["coverage"] == 1
    assert rows["npu"]["runs"] == 0
    assert rows["triton"]["gbps"] is None
    sources = {name: listings[0]["text"] for name, listings in document["listings"].items() if listings}
    assert "@triton.jit" in sources["triton"]
    assert "def call(" in sources["inductor"]
    assert sources["npu"]
    options[3] = "eager,npu,triton"  # compiling once is enough
    table = road(bench_verb, *options).splitlines()
    assert table[1].split() == [
        "executor",
        "kind",
        "median",
        "p10-p90",
        "GB/s",
        "of",
        "peak",
        "max",
        "err",
        "launches",
        "x",
    ]
    shown = [["eager", "measured"], ["npu", "modelled"], ["triton", "interpreted"]]
    assert [line.split()[:2] for line in table[2:5]] == shown
    assert all(line.split()[3] == "ms" for line in table[2:5])
    assert max(map(len, table[1:5])) <= 100
    assert any(line.startswith("compared with: eager in float64") for line in table)
