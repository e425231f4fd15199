"""Side by side: right first, then timed; kinds are not mixed; a wrong or missing executor is said."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from fxscope.launch import compare as module
from fxscope.launch.ceilings import ceilings
from fxscope.launch.compare import compare, without_dropout
from fxscope.launch.correctness import run_poisoned
from fxscope.launch.executors import prepare
from fxscope.launch.island import cut_island
from fxscope.launch.sweep import plot, sweep
from fxscope.launch.timing import measure, quantile
from fxscope.passes.cost import Machine
from fxscope.targets.reference import Eager, ReferenceExecutable
from fxscope.targets.target import Clause, Cost

MACHINE = Machine(bandwidth=1e10, flops=1e11, launch=1e-6, origin="by hand")


class Executable(ReferenceExecutable):
    def __init__(self, call, kind="measured", seconds=None):
        super().__init__(call, 1, [])
        self.kind = kind
        self.seconds = seconds

    def modelled_seconds(self):
        return self.seconds


class Part:
    """Runs everything but tanh, through a change of its results."""

    name = "part"

    def __init__(self, change=lambda results: results, kind="measured", seconds=None, missing=None):
        self.change, self.kind, self.seconds, self.missing = change, kind, seconds, missing

    def unavailable(self):
        return self.missing

    def supports(self, node):
        return (Clause("op", "no tanh"),) if "tanh" in str(node.target) else ()

    def compile(self, island, example_inputs):
        return Executable(lambda *inputs: self.change(island(*inputs)), self.kind, self.seconds)

    def cost(self, island):
        return Cost(seconds=1e-6, bytes=0, flops=0)


def graph():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4), nn.Dropout(0.5))
    return symbolic_trace(network), [torch.randn(4, 8)]


def run(*executors, **options):
    gm, inputs = graph()
    return compare(gm, inputs, executors, seconds=0.01, rounds=5, machine=MACHINE, **options)


def test_one_island_is_told_as_one():
    gm = symbolic_trace(nn.Sequential(nn.Linear(8, 4)))
    found = compare(gm, [torch.randn(4, 8)], [Part()], seconds=0.01, rounds=1, machine=MACHINE)
    assert found.rows[-1].note == "1 island, 100% of the nodes"


def test_rows_of_measured_executors():
    gm, inputs = graph()
    gm.eval()
    found = compare(gm, inputs, ["eager", Part()], seconds=100, rounds=5, machine=MACHINE)
    eager, part = found.rows
    assert (eager.status, part.status) == ("ok", "ok")
    assert eager.speedup == pytest.approx(1)
    assert part.speedup > 0
    assert eager.p10_ms <= eager.median_ms <= eager.p90_ms
    assert eager.runs == 5
    assert found.reference == "eager in float64"
    assert re.fullmatch(r"2 islands, \d\d% of the nodes, 1 op runs eagerly beside", part.note)
    assert found.partitions["part"].coverage > 0.5
    assert eager.bytes == part.bytes == found.traffic.fused_bytes
    assert eager.gbps == pytest.approx(eager.bytes / eager.median_ms / 1e6)
    assert eager.peak_share == pytest.approx(eager.gbps / 10)
    assert re.fullmatch(rf"wall clock, \d+ calls? a sample, {torch.get_num_threads()} threads?", eager.how)


def test_a_wrong_executor_is_not_timed():
    def spoil(results):
        return tuple(item * 1.01 for item in results)

    gm, inputs = graph()
    gm.eval()
    row = compare(gm, inputs, ["eager", Part(spoil)], seconds=0.01, rounds=3, machine=MACHINE).rows[1]
    assert (row.status, row.median_ms, row.speedup) == ("wrong", None, None)
    assert row.max_rel_err > 1e-3
    assert "allowed" in row.note


def test_an_output_left_unwritten_is_found_by_poison():
    memory = torch.zeros(4)

    def lazy(x):
        if not torch.isnan(memory).any():
            memory.copy_(x * 2)  # only the first call writes
        return memory

    x = torch.ones(4)
    assert torch.isnan(run_poisoned(lazy, [x])[0][0]).all()
    assert torch.equal(run_poisoned(lambda x: x * 2, [x])[0][0], x * 2)
    assert run_poisoned(lambda x: x, [x])[0][0] is not x
    assert torch.equal(x, torch.ones(4))  # the caller's input is no output of ours


def test_an_output_that_is_missing_is_wrong():
    class Short(Eager):
        def compile(self, island, example_inputs):
            return Executable(lambda *inputs: island(*inputs)[:1])

    gm = symbolic_trace(lambda x: (x + 1, x * 2))
    (row,) = compare(gm, [torch.ones(3)], [Short()], seconds=0.01, rounds=3, machine=MACHINE).rows
    assert (row.status, row.note) == ("wrong", "1 outputs instead of 2")


def test_kinds_are_not_compared():
    gm, inputs = graph()
    gm.eval()
    found = compare(gm, inputs, ["eager", Part(kind="modelled", seconds=2e-3)], seconds=0.01, rounds=3, machine=MACHINE)
    row = found.rows[1]
    assert (row.kind, row.speedup, row.how, row.runs) == ("modelled", None, "cost model", 0)
    assert row.median_ms == row.p10_ms
    assert row.median_ms > 4  # two islands of 2 ms, and the rest modelled
    assert (row.peak_share, row.predicted_ms) == (None, None)  # this machine's ceilings are not the model's
    found = compare(gm, inputs, ["eager", Part(kind="interpreted")], seconds=0.01, rounds=3, machine=MACHINE)
    row = found.rows[1]
    assert (row.kind, row.speedup, row.gbps) == ("interpreted", None, None)
    assert row.median_ms > 0
    found = compare(gm, inputs, [Part(kind="interpreted"), "eager"], seconds=0.01, rounds=3, machine=MACHINE)
    assert [row.speedup for row in found.rows] == [None, None]
    for other, kind in ((Part(kind="modelled", seconds=1e-9), "modelled"), (Part(kind="interpreted"), "interpreted")):
        swept = sweep(lambda size: (gm, inputs), [6], ["eager", other], MACHINE, seconds=0.01)
        assert swept.kinds == {"eager": "measured", other.name: kind}
        assert f"{other.name} ({kind}) takes" in swept.sentence
        assert "faster" not in swept.sentence
        assert f"b {other.name} ({kind})" in plot(swept)


def test_missing_and_failing_executors_are_rows():
    class Raises(Part):
        def compile(self, island, example_inputs):
            raise RuntimeError("no luck\nat all")

    gm, inputs = graph()
    gm.eval()
    found = compare(
        gm, inputs, ["eager", Part(missing="needs an NPU: buy one"), Raises()], seconds=0.01, rounds=3, machine=MACHINE
    )
    assert [row.status for row in found.rows] == ["ok", "missing", "failed"]
    assert found.rows[1].note == "needs an NPU: buy one"
    assert found.rows[2].note == "RuntimeError: no luck"


@pytest.mark.parametrize(
    "drop",
    [
        lambda x: torch.nn.functional.dropout(x, 0.9, True),
        lambda x: torch.nn.functional.dropout2d(x, training=True, p=0.9),
        lambda x: torch.nn.functional.alpha_dropout(input=x, p=0.9, training=True),
        lambda x: torch.dropout(x, 0.9, train=True),
    ],
)
def test_dropout_is_switched_off_and_said(drop):
    gm = symbolic_trace(lambda x: drop(x) + 1)
    notes = without_dropout(gm)
    assert notes == ["dropout is switched off in 1 place, so that results can be compared"]
    assert without_dropout(symbolic_trace(lambda x: torch.relu(x))) == []
    x = torch.randn(1, 2, 100, 1)
    assert torch.equal(gm(x), x + 1)


def test_dropout_of_attention_is_switched_off_too():
    gm = symbolic_trace(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, None, 0.5))
    q = torch.randn(1, 1, 4, 8)
    assert len(without_dropout(gm)) == 1
    torch.testing.assert_close(gm(q), torch.nn.functional.scaled_dot_product_attention(q, q, q))


def test_dropout_that_is_taken_apart_is_switched_off_too():
    gm = symbolic_trace(lambda x: torch.ops.aten.native_dropout.default(x, 0.9, True)[0])
    assert "in 1 place," in without_dropout(gm)[0]
    x = torch.randn(100)
    assert torch.equal(gm(x), x)


def test_cancelling_keeps_what_was_measured():
    gm, inputs = graph()
    gm.eval()
    asked = []

    def cancelled():
        asked.append(1)
        return len(asked) > 4

    found = compare(gm, inputs, ["eager", Part()], seconds=5, rounds=50, machine=MACHINE, cancelled=cancelled)
    assert any("cancelled" in note for note in found.notes)
    assert [row.executor for row in found.rows] == ["eager", "part"]
    assert sum(row.runs for row in found.rows) <= 4


def test_half_precision_reference(monkeypatch):
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).bfloat16().eval()
    found = compare(
        symbolic_trace(network),
        [torch.randn(4, 64).bfloat16()],
        ["eager", Part()],
        seconds=0.01,
        rounds=3,
        machine=MACHINE,
    )
    assert [row.status for row in found.rows] == ["ok", "ok"]
    assert found.rows[0].max_rel_err > 1e-4  # against fp64, so eager has an error too


def test_ratios_are_paired_and_quantiles_interpolate():
    calls = {"a": lambda x: x.sin(), "b": lambda x: x.sin().sin().sin().sin().sin().sin()}
    seen = []
    found = measure(
        calls, [torch.randn(200_000)], seconds=0.01, rounds=7, progress=lambda at, of: seen.append((at, of))
    )
    assert found["a"].ratio == pytest.approx(1)
    assert found["b"].ratio < 1
    assert seen[-1][1] == 7
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([0, 10], 0.1) == pytest.approx(1)


def test_ceilings_are_measured_once():
    first = ceilings("cpu", 1 << 20)
    assert first is ceilings("cpu", 1 << 20)
    assert first.bandwidth > 1e8
    assert first.flops > 1e8
    assert 0 < first.launch < 1e-2
    assert "measured on cpu" in first.origin


def test_one_island_with_its_inputs():
    gm, inputs = graph()
    gm.eval()
    island, given = cut_island(gm, inputs, Part(), 1)
    with torch.no_grad():
        torch.testing.assert_close(island(*given)[0], gm(*inputs))
    with pytest.raises(module.FxscopeError, match=r"no island 7 of .*; there are: 0 "):
        cut_island(gm, inputs, Part(), 7)


def test_a_target_goes_through_the_partition():
    gm, inputs = graph()
    gm.eval()
    executor = prepare(Part(), gm, inputs, machine=MACHINE)
    torch.testing.assert_close(executor.call(*inputs), gm(*inputs))
    assert executor.partition.islands
    assert executor.launches >= 3
