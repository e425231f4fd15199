"""Passes on recorded graphs: real logs, a recorded ResNet-50, and the command line's two faces."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from fxscope.cli import bench as bench_verb
from fxscope.cli import passes as passes_verb
from fxscope.errors import FxscopeError
from fxscope.passes import upstream
from fxscope.passes.recorded import load
from fxscope.passes.stepper import Stepper
from tests.versions_of_torch import TORCH

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def resnet(recorded):
    """ResNet-50 recorded: one training step, then evaluation."""
    found = recorded(ROOT / "samples" / "resnet50.py", "--size", "32", options=("--backend", "eager"))
    assert found.exit_code == 0, found.stderr
    return found.path


@pytest.mark.slow
def test_a_recorded_resnet50_folds_all_53_in_evaluation_and_none_in_training(resnet):
    found = load(resnet, "0/1", bind=True)
    stepper = Stepper(found.module, "conv-bn-fold", found.inputs, inference=True)
    fold = stepper.run()[0]
    assert sum(match.applied for match in fold.matches) == len(fold.matches) == 53
    assert fold.status == "applied"
    assert fold.to_start.max_rel < 2e-6
    assert all(match.source.startswith("resnet50.py:") for match in fold.matches)
    assert not any("batch_norm" in str(node.target) for node in stepper.current.graph.nodes)
    training = load(resnet, "0/0")
    step = Stepper(training.module, "conv-bn-fold", training.inputs, numbers=False).run()[0]
    assert [match.reason for match in step.matches] == ["training"] * 53


@pytest.mark.shared
def test_the_resnet50_log_folds_none_and_gives_each_its_reason(shared):
    found = load(shared / "traces/h200/resnet50", "0/0")
    step = Stepper(found.module, "conv-bn-fold", found.inputs, numbers=False).run()[0]
    assert [match.reason for match in step.matches] == ["training"] * 53
    assert all(match.source for match in step.matches)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(("log", "graph"), [("gpt2", "1/0_1"), ("bert_amp", "0/0")])
def test_every_pass_runs_on_the_logs_and_the_numbers_hold(shared, log, graph):
    found = load(shared / "traces/h200" / log, graph, bind=True)
    names = "shapes,conv-bn-fold,decompose:inductor,conv-affine-fold,freeze,constant-fold,cse,dce,group-pointwise"
    stepper = Stepper(found.module, names, found.inputs, inference=True)
    steps = stepper.run()
    assert [step.name for step in steps] == names.split(",")
    assert {step.status for step in steps} <= {"applied", "unchanged"}, [(s.name, s.error) for s in steps]
    assert all(step.to_start.within or "fp64" in step.to_previous.text for step in steps)
    assert steps[2].nodes_after > steps[2].nodes_before


@pytest.mark.shared
def test_the_joint_graph_of_a_log_is_cut_again(shared):
    """The loss of gpt2: less budget keeps less and computes more."""
    done = invoke(
        passes_verb.command, str(shared / "traces/h200/gpt2"), "--graph", "3/0", "--stage", "joint",
        "--pipeline", "dce", "--no-numbers", "--cuts", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["steps"][0]["max_abs_diff"] is None
    rows = document["cuts"]
    assert [(row["partitioner"], row["budget"]) for row in rows[:2]] == [("default", 1.0), ("min-cut", 1.0)]
    kept = [row["activation_bytes"] for row in rows[1:]]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[-1] == 0
    assert len(rows[-1]["recomputed"]) > len(rows[1]["recomputed"])


def invoke(command, *args):
    return CliRunner().invoke(command, list(args), catch_exceptions=True)


@pytest.mark.shared
def test_json_holds_what_the_contract_names(shared):
    log = str(shared / "traces/h200/bert_amp")
    done = invoke(passes_verb.command, log, "--graph", "0/0", "--pipeline", "cse,dce", "--code", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "fxscope.passes/1"
    assert (document["graph"], document["stage"], document["pipeline"]) == ("0/0", "dynamo", ["cse", "dce"])
    step = document["steps"][0]
    assert {"pass", "matches", "nodes_before", "nodes_after", "max_abs_diff", "max_rel_diff", "ms", "diff"} <= set(step)
    assert {"added", "removed", "changed"} <= set(step["diff"])
    assert len(step["lines"]) == step["nodes_after"]
    text = invoke(passes_verb.command, log, "--graph", "0/0", "--pipeline", "cse,dce")
    assert f"{step['nodes_before']} -> {step['nodes_after']} nodes" in text.output
    msgspec.json.decode(done.stdout, type=_document())


def _document():
    from fxscope.passes.document import PassesDocument

    return PassesDocument


@pytest.mark.shared
def test_bad_input_is_one_line(shared, tmp_path):
    log = str(shared / "traces/h200/bert_amp")
    for arguments, message in (
        ([log, "--graph", "0/0", "--pipeline", "convbn"], "did you mean 'conv-bn-fold'"),
        ([log, "--graph", "7/0"], "no compile '7/0'"),
        ([log, "--graph", "0/0", "--stage", "forward.code"], "is generated code, not a graph"),
        ([log, "--graph", "0/0", "--stage", "joint#b"], "e.g. joint#1"),
        ([log, "--graph", "0/0", "--stage", "joint#3"], "stage joint of index 0, not 3"),
        ([log], "name one with --graph"),
        ([str(tmp_path / "none"), "--graph", "0/0"], "none"),
    ):
        done = invoke(passes_verb.command, *arguments)
        assert isinstance(done.exception, FxscopeError), arguments
        assert message in str(done.exception)
        assert "\n" not in str(done.exception)
    file = tmp_path / "bad.py"
    file.write_text("def bad(gm):\n    raise KeyError('lost')\n")
    done = invoke(passes_verb.command, log, "--graph", "0/0", "--pipeline", f"cse,{file}:bad", "--no-numbers")
    assert done.exit_code == 1
    assert "bad raised KeyError: 'lost'" in done.output
    done = invoke(bench_verb.command, log, "--graph", "0/0", "--executors", "eager,tritn")
    assert "did you mean 'triton'" in str(done.exception)
    done = invoke(bench_verb.command, log, "--graph", "0/0", "--sweep", "a")
    assert "--sweep takes numbers" in str(done.exception)


@pytest.mark.shared
def test_the_second_graph_of_a_stage_is_loaded(shared):
    log = shared / "traces/h200/ranks_ddp"  # DDP splits a compile into a graph per bucket
    counts = [len(load(log, "r0:4/0", stage).graph.nodes) for stage in ("forward", "forward#1")]
    assert counts == [80, 106]


@pytest.mark.shared
@pytest.mark.slow
def test_bench_runs_a_recorded_graph_under_eager_and_inductor(shared):
    log = str(shared / "traces/h200/gpt2")
    done = invoke(bench_verb.command, log, "--graph", "3/0", "--seconds", "0.05", "--json", "--sources")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "fxscope.bench/1"
    eager, inductor = document["rows"]
    assert (eager["status"], inductor["status"]) == ("ok", "ok")
    assert inductor["launches"] <= eager["launches"]
    assert inductor["speedup"] > 0
    assert "def call(" in document["listings"]["inductor"][0]["text"]
    assert document["traffic"]["fused_bytes"] <= document["traffic"]["unfused_bytes"]


def test_passes_are_listed_with_what_they_do():
    done = invoke(passes_verb.command, "--list")
    assert done.exit_code == 0
    assert "conv-bn-fold" in done.output
    assert "default pipeline: shapes,conv-bn-fold" in done.output
    assert passes_verb.json_schema()["$defs"]
    assert bench_verb.json_schema()["$defs"]


WRONG = """
import torch
import torch.nn.functional as F

class Keywords(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3))
        self.bias = torch.nn.Parameter(torch.randn(4))
        self.bn = torch.nn.BatchNorm2d(4)

    def forward(self, x):
        y = F.conv2d(x, self.weight, bias=self.bias, stride=2, padding=1)
        return F.batch_norm(y, self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias)

torch.manual_seed(0)
with torch.no_grad():
    torch.compile(Keywords().eval(), backend="eager")(torch.randn(2, 3, 16, 16))
"""


@pytest.mark.slow
def test_what_upstream_gets_silently_wrong_on_a_recorded_graph_is_named(recorded, tmp_path_factory, monkeypatch):
    """PyTorch issue 196165: keywords are dropped, and the result has another shape. Ours is right on the same graph."""
    script = tmp_path_factory.getbasetemp().parent / "upstream_is_wrong.py"
    script.write_text(WRONG)
    run = recorded(script, options=("--save-tensors",))
    assert run.exit_code == 0, run.stderr
    tools = ["fx.optimization.fuse", "efficient_conv_bn_eval"]
    monkeypatch.setattr(upstream, "would_do", functools.partial(upstream.would_do, tools=tools))
    arguments = [str(run.path), "--graph", "0/0", "--inference", "--pipeline", "conv-bn-fold", "--upstream"]
    done = invoke(passes_verb.command, *arguments, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert [match["applied"] for match in document["steps"][0]["matches"]] == [True]
    assert document["steps"][0]["max_rel_diff"] < 1e-6
    fuse, efficient = document["upstream"]
    assert (fuse["tool"], fuse["status"]) == (tools[0], "not-applied")
    assert efficient["tool"] == tools[1]
    if TORCH < (2, 13):
        assert (efficient["status"], efficient["nodes"]) == ("raised", [])
        assert efficient["text"] == "BackendCompilerFailed: backend='inductor' raised: AssertionError"
    else:
        assert (efficient["status"], efficient["nodes"]) == ("wrong", ["y", "batch_norm"])
        assert "SILENTLY WRONG: output 0 has shape (2, 4, 14, 14) instead of (2, 4, 8, 8)" in efficient["text"]
    monkeypatch.setattr(upstream, "would_do", lambda gm, inputs: [upstream.Upstream(**efficient)])
    lines = invoke(passes_verb.command, *arguments).stdout.splitlines()
    mark = "✖" if efficient["status"] == "wrong" else "·"
    assert lines[-1] == f"{mark} upstream {tools[1]:<24} {efficient['text']}"
