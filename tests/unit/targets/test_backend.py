"""torch.compile with a target: islands on it, the rest eager; and targets by name."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import EntryPoint

import pytest
import torch
from torch import nn

from fxscope.errors import MissingError, UsageError
from fxscope.passes.partition_report import report
from fxscope.targets import registry
from fxscope.targets.backend import make_backend
from fxscope.targets.reference import count_launches
from fxscope.targets.target import Clause, Cost, Target


class Toy:
    """Runs relu, mul and addmm."""

    name = "toy"
    kind = "measured"

    def __init__(self, ops=("relu", "mul", "addmm"), cost=None):
        self.ops, self.price = ops, cost
        self.compiled = []

    def unavailable(self):
        return None

    def supports(self, node):
        return () if any(op in str(node.target) for op in self.ops) else (Clause("op", f"toy has no {node.target}"),)

    def compile(self, island, example_inputs):
        self.compiled.append((island, example_inputs))
        return registry.target("eager").compile(island, example_inputs)

    def cost(self, island):
        return self.price


def toy():
    return Toy()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Tanh(), nn.Linear(8, 2), nn.ReLU())


def test_training_and_inference_through_a_target():
    model, x = network(), torch.randn(3, 4)
    target = Toy()
    assert isinstance(target, Target)
    backend = make_backend(target)
    compiled = torch.compile(model, backend=backend)
    compiled(x).sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for got, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad)
    assert [item.kind for item in backend.lowered] == ["forward", "backward"]
    assert len(backend.lowered[0].executables) == 2
    assert 0 < backend.lowered[0].coverage < 1
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert backend.lowered[-1].kind == "inference"
    assert all(value is not None for _, inputs in target.compiled for value in inputs)
    assert Toy.name in backend.__name__


@pytest.mark.parametrize("partitioner", ["default", "min-cut"])
def test_both_partitioners_train(partitioner):
    model, x = network(), torch.randn(3, 4)
    torch.compile(model, backend=make_backend(Toy(), partitioner=partitioner))(x).sum().backward()
    got = model[0].weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(got, model[0].weight.grad)


def test_nothing_supported_runs_eagerly_and_says_so_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.randn(3)
        got = torch.compile(lambda x: torch.sin(torch.cos(x)), backend=make_backend(Toy()))(x)
    torch.testing.assert_close(got, torch.sin(torch.cos(x)))
    said = [str(item.message) for item in caught if "toy" in str(item.message)]
    assert len(said) == 1
    assert said[0].startswith("toy: nothing in this inference graph of 4 nodes runs on it, so all of it runs eagerly: ")
    assert said[0].endswith("toy has no aten.cos.default (1x); toy has no aten.sin.default (1x)")


def test_islands_that_do_not_pay_stay_eager():
    from fxscope.passes.cost import benefit_of

    slow = Toy(cost=Cost(seconds=1.0, bytes=0, flops=0))
    backend = make_backend(slow, benefit=benefit_of(slow))
    x = torch.randn(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.compile(lambda x: torch.relu(x) * 2, backend=backend)(x), torch.relu(x) * 2)
    assert backend.lowered[0].executables == {}
    assert "more than it saves (modelled)" in backend.lowered[0].partition.islands[0].dropped


def test_a_report_names_what_one_more_op_would_bring():
    backend = make_backend(Toy())
    with torch.no_grad():
        torch.compile(lambda x: torch.relu(torch.tanh(torch.relu(torch.tanh(torch.relu(x))))), backend=backend)(
            torch.randn(16)
        )
    made = backend.lowered[0]
    found = report(made.aten, made.partition)
    assert len(found.islands) == 3
    assert found.boundary_bytes == 3 * 2 * 64
    assert [(item.target, item.codes, len(item.nodes)) for item in found.reasons] == [
        ("torch.ops.aten.tanh.default", ["op"], 2)
    ]
    what = found.what_if[0]
    assert (what.islands, what.nodes, what.boundary_bytes) == (-2, 2, -4 * 64)
    assert "2 fewer islands, 256 bytes fewer" in what.text
    assert found.coverage == pytest.approx(3 / 5)


def test_targets_by_name(monkeypatch):
    assert {"eager", "inductor"} <= set(registry.names())
    with pytest.raises(UsageError, match="did you mean 'eager'"):
        registry.target("eagr")
    monkeypatch.setitem(sys.modules, "toy_target_module", sys.modules[__name__])
    found = dict(registry._entries())
    found["toy"] = EntryPoint("toy", "toy_target_module:toy", registry.GROUP)
    found["broken"] = EntryPoint("broken", "no_such_module:target", registry.GROUP)
    monkeypatch.setattr(registry, "_entries", lambda: found)
    assert registry.target("toy").name == "toy"
    with pytest.raises(MissingError, match="cannot be loaded"):
        registry.target("broken")


def test_launches_are_counted_in_inductors_code():
    code = """
def helper():
    extern_kernels.mm(a, b)

    def call(self, args):
        buf0 = empty_strided_cpu((3, 3), (3, 1), torch.float32)
        extern_kernels.mm(arg0_1, b, out=buf0)
        buf1 = buf0; del buf0  # reuse
        cpp_fused_add_relu_0(buf1)
        buf2 = torch.ops.aten.convolution.default(buf1, w)
        triton_poi_fused_add_0.run(buf2, 12, stream=stream0)
        return (buf1, )

def benchmark():
    cpp_fused_add_relu_0(x)
"""
    assert count_launches(code) == 4


class Failing(Toy):
    """Compiles no island that holds a product, or none at all."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def compile(self, island, example_inputs):
        if isinstance(self.error, MissingError) or any("addmm" in str(node.target) for node in island.graph.nodes):
            raise self.error
        return super().compile(island, example_inputs)


def test_an_island_that_is_not_compiled_runs_eagerly_with_the_reason(monkeypatch):
    model, x = network(), torch.randn(3, 4)
    backend = make_backend(Failing(ValueError("no such tile\nand more")))
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match=r"toy: island_\d+ of \d nodes? runs eagerly: ValueError: no such tile$"),
    ):
        torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))
    assert backend.lowered[0].partition.kept
    assert backend.lowered[0].coverage == 0
    monkeypatch.setenv("FXSCOPE_DEBUG", "1")
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="no such tile"):
        torch.compile(model, backend=make_backend(Failing(ValueError("no such tile"))))(x)


def test_where_the_target_cannot_run_everything_runs_eagerly_with_the_reason():
    model, x = network(), torch.randn(3, 4)
    backend = make_backend(Failing(MissingError("toy: plug it in")))
    with torch.no_grad(), pytest.warns(UserWarning, match="everything runs eagerly: toy: plug it in") as told:
        torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))
    assert len({str(one.message) for one in told}) == 1
    assert backend.lowered[0].coverage == 0


@pytest.mark.parametrize("given", [{"options": {"fast": True}}, {"mode": "max-autotune"}])
def test_what_a_backend_does_not_take_is_named(given):
    with pytest.raises(Exception, match=f"fxscope_toy takes no {next(iter(given))}"):
        torch.compile(lambda x: x.relu(), backend=make_backend(Toy()), **given)(torch.ones(2))
