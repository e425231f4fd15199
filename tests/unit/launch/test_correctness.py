"""What an executor writes in place counts like what it returns, and nothing of it is left behind."""

from __future__ import annotations

import torch
from torch import nn
from torch.fx import Graph, GraphModule, symbolic_trace

from fxscope.launch.compare import compare
from fxscope.launch.correctness import check, reference, run_poisoned
from fxscope.passes import numeric
from fxscope.passes.cost import Machine
from fxscope.passes.order import written
from fxscope.targets.reference import Eager, ReferenceExecutable

MACHINE = Machine(bandwidth=1e10, flops=1e11, launch=1e-6, origin="by hand")


def writes(x, y):
    y.add_(x)
    return x * 2


def counting():
    """Adds one to a buffer, and returns a product with it."""
    root = nn.Module()
    root.register_buffer("count", torch.zeros(()))
    graph = Graph()
    x = graph.placeholder("x")
    count = graph.get_attr("count")
    graph.call_method("add_", (count, 1))
    graph.output(graph.call_function(torch.mul, (x, count)))
    return GraphModule(root, graph)


def test_an_executor_that_forgets_a_write_is_wrong():
    gm, inputs = symbolic_trace(writes), [torch.ones(3), torch.zeros(3)]
    expected = reference(gm, inputs)
    assert sorted(expected.outcome.inputs) == [1]
    assert check(gm, gm, inputs, expected).within
    found = check(lambda x, y: x * 2, gm, inputs, expected)
    assert not found.within
    assert found.max_abs == 1
    found = check(lambda x, y: (y.fill_(float("inf")), x * 2)[1], gm, inputs, expected)
    assert found.text == "input 1, which is written in place, has 3 elements that are finite in one graph only"
    found = check(lambda x, y: (y.add_(x), x.zero_(), x + 2)[2], gm, inputs, expected)  # writes more than it may
    assert not found.within
    assert inputs[1].sum() == 0


def test_buffers_are_compared_and_put_back():
    gm, x = counting(), torch.ones(2)
    expected = reference(gm, [x])
    assert expected.outcome.buffers["count"] == 1
    assert check(gm, gm, [x], expected).within
    assert not check(lambda x: x * 1, gm, [x], expected).within
    assert check(lambda x: x * 1, gm, [x], expected).max_abs == 1

    class Forgets(Eager):
        name = "eager"  # gets the whole graph

        def compile(self, island, example_inputs):
            return ReferenceExecutable(lambda x: (x * 1,), 1, [])

    statuses = [
        compare(gm, [x], [item], seconds=0.01, rounds=3, machine=MACHINE).rows[0].status
        for item in ("eager", Forgets())
    ]
    assert statuses == ["ok", "wrong"]
    assert gm.count == 0  # checked and timed, and nothing left behind


def test_batch_norm_in_training_is_known_to_write_its_statistics():
    mean, var = torch.zeros(3), torch.ones(3)
    gm = symbolic_trace(lambda x, m, v: nn.functional.batch_norm(x, m, v, training=True, momentum=0.5))
    assert [[used.name for used in written(node)] for node in gm.graph.nodes if node.op == "call_function"] == [
        ["m", "v"]
    ]
    outcome = numeric.outcome(gm, [torch.randn(8, 3), mean, var])
    assert sorted(outcome.inputs) == [1, 2]
    evaluation = symbolic_trace(lambda x, m, v: torch.batch_norm(x, None, None, m, v, False, 0.1, 1e-5, False))
    assert not any(written(node) for node in evaluation.graph.nodes if node.op == "call_function")


def test_where_eager_is_off_others_may_be_off_by_four_times_as_much():
    """The more of its digits float32 loses, the more executors may differ; where it loses all, float64 is no reference."""
    x = torch.linspace(0.1, 0.9, 8)
    usual = reference(symbolic_trace(lambda x: x * 2), [x])
    assert (usual.text, usual.tolerances) == ("eager in float64", numeric.TOLERANCES)
    rounded = symbolic_trace(lambda x: (x + 1e3) - 1e3)
    expected = reference(rounded, [x])
    off = numeric.difference([rounded(x)], [(x.double() + 1e3) - 1e3]).max_rel
    assert off > numeric.TOLERANCES["float32"]
    assert expected.tolerances["float32"] == 4 * off
    assert expected.tolerances["bfloat16"] == numeric.TOLERANCES["bfloat16"]
    lost = symbolic_trace(lambda x: (x + 1e9) - 1e9)
    expected = reference(lost, [x])
    assert (
        expected.text == "eager in its own dtypes (its float64 form gives other values: dtypes decide what it computes)"
    )
    assert (expected.outcome.outputs[0].tolist(), expected.tolerances) == ([0.0] * 8, {})


def test_poison_goes_where_a_result_owns_its_memory():
    """A callable that leaves a result unwritten shows NaN; inputs, numbers of other kinds and spread values are spared."""
    x = torch.ones(3)
    (same, view), given = run_poisoned(lambda x: (x, x.view(3, 1)), [x])
    assert torch.equal(same, x)
    assert torch.equal(view, x.view(3, 1))
    assert same is given[0]
    assert same is not x

    def left(kept):
        calls = []
        run_poisoned(lambda x: calls.append(kept) or (kept,), [x])
        assert len(calls) == 2
        return kept

    assert left(torch.zeros(4)).isnan().all()
    assert left(torch.zeros(4, dtype=torch.int64)).tolist() == [0] * 4
    assert left(torch.zeros(1).expand(4)).tolist() == [0.0] * 4
    assert left(torch.zeros(1).as_strided((1, 2), (0, 0))[:, :1]).isnan().all()
    assert left(torch.zeros(2, 1)).isnan().all()
