"""Dead code, common subexpressions, constants, and grouping of pointwise chains."""

from __future__ import annotations

import torch
from torch import nn
from torch.fx import Graph, GraphModule, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

from fxscope.passes.application import Context
from fxscope.passes.aten import to_aten
from fxscope.passes.cleanup import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    freeze,
)
from fxscope.passes.fakes import propagate_named
from fxscope.passes.module import clone
from fxscope.passes.pointwise import group_pointwise, pointwise_groups


def trace(function, *inputs):
    return make_fx(function, tracing_mode="fake")(*inputs)


def applied(context):
    return [(match.nodes, match.reason) for match in context.matches]


def test_dead_code_keeps_writes_that_torch_would_drop():
    def forward(x):
        y = torch.relu(x)
        torch.sin(x)
        y.add_(1)
        return torch.relu(y)

    gm = symbolic_trace(forward)
    upstream = clone(gm)
    upstream.graph.eliminate_dead_code()
    assert "add_" not in [node.target for node in upstream.graph.nodes]  # why this pass does not use it
    context = Context()
    done = eliminate_dead_code(clone(gm), context)
    x = torch.randn(4)
    assert torch.equal(done(x), gm(x))
    assert [(m.nodes, m.applied, m.reason) for m in context.matches] == [
        (["add_"], False, "mutation"),
        (["sin"], True, None),
    ]


def test_dead_code_keeps_assertions_and_random_numbers():
    def forward(x):
        torch._assert(x.shape[0] > 0, "empty")
        torch.rand(2)
        return torch.rand_like(x)

    gm = symbolic_trace(forward)
    done = eliminate_dead_code(clone(gm), Context())
    assert len(done.graph.nodes) == len(gm.graph.nodes)


def test_common_subexpressions():
    def forward(x):
        return torch.sin(x) + torch.sin(x) * torch.cos(x) + (x + 1) + (x + 1.0)

    gm = trace(forward, torch.randn(3))
    context = Context()
    done = eliminate_common_subexpressions(clone(gm), context)
    assert applied(context) == [(["sin", "sin_1"], None)]  # x + 1 and x + 1.0 are other calls
    x = torch.randn(3)
    assert torch.equal(done(x), gm(x))


def test_subexpressions_that_must_stay_two():
    def forward(x):
        a = torch.rand_like(x) + torch.rand_like(x)
        return torch.sin(x), torch.sin(x), a

    gm = trace(forward, torch.randn(3))
    context = Context()
    eliminate_common_subexpressions(gm, context)
    assert sorted(match.reason for match in context.matches) == ["random", "returned"]

    def writes(x):
        a, b = torch.relu(x), torch.relu(x)
        a.add_(1)
        return a + b

    gm = symbolic_trace(writes)
    context = Context()
    done = eliminate_common_subexpressions(clone(gm), context)
    assert [match.reason for match in context.matches] == ["mutated"]
    assert torch.equal(done(torch.ones(2)), gm(torch.ones(2)))


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return x @ (self.weight * self.scale).t() + torch.arange(x.shape[1]) * 2


def test_constants_fold_without_parameters_and_freeze_with_them():
    x = torch.randn(2, 3)
    module = Weighted()
    gm = to_aten(symbolic_trace(module), [x])
    context = Context()
    folded = fold_constants(clone(gm), context)
    assert len([m for m in context.matches if m.applied]) == 1
    torch.testing.assert_close(folded(x), module(x), rtol=0, atol=0)
    context = Context()
    kept = freeze(clone(gm), context)
    assert {m.reason for m in context.matches if not m.applied} == {"grad"}
    torch.testing.assert_close(kept(x), module(x), rtol=0, atol=0)
    context = Context(inference=True)
    frozen = freeze(clone(gm), context)
    assert all(m.applied for m in context.matches)
    assert "weight, scale" in context.matches[0].text or "scale, weight" in context.matches[0].text
    torch.testing.assert_close(frozen(x), module(x), rtol=0, atol=0)
    with torch.no_grad():
        module.weight.zero_()
    assert not torch.equal(frozen(x), module(x))  # that is what freezing means


def test_constants_that_must_stay():
    def forward(x):
        return x + torch.zeros(1024, 1024)[:1, :1] * 1, torch.rand(3) + x.sum()

    gm = trace(forward, torch.randn(3))
    context = Context()
    fold_constants(gm, context)
    assert "random" in {match.reason for match in context.matches}
    graph = Graph()
    x = graph.placeholder("x")
    big = graph.call_function(torch.ops.aten.full.default, ([1024, 1024], 1.0))
    graph.output(graph.call_function(torch.ops.aten.add.Tensor, (x, big)))
    gm = GraphModule(nn.Module(), graph)
    propagate_named(gm, [torch.randn(1024, 1024)])
    context = Context()
    fold_constants(gm, context)
    assert [match.reason for match in context.matches] == ["too-large"]


def test_a_buffer_that_is_written_is_no_constant():
    root = nn.Module()
    root.register_buffer("count", torch.zeros(()))
    graph = Graph()
    x = graph.placeholder("x")
    count = graph.get_attr("count")
    graph.call_method("add_", (count, 1))
    graph.output(graph.call_function(torch.mul, (x, graph.call_function(torch.add, (count, 1)))))
    gm = to_aten(GraphModule(root, graph), [torch.ones(2)])
    assert torch.ops.aten.copy_.default in [node.target for node in gm.graph.nodes]
    context = Context(inference=True)
    freeze(gm, context)
    assert {match.reason for match in context.matches} == {"mutated"}


def test_pointwise_chains_are_grouped_and_run_the_same():
    def forward(x, b, y):
        h = torch.relu(x + b) * 0.5
        s = torch.sigmoid(h).sum(-1, keepdim=True)
        return h * s + y, torch.tanh(y)

    inputs = [torch.randn(4, 8), torch.randn(8), torch.randn(4, 8)]
    gm = trace(forward, *inputs)
    groups = [[node.name for node in group] for group in pointwise_groups(gm)]
    assert groups == [["add", "relu", "mul", "sigmoid"], ["mul_1", "add_1"]]
    context = Context()
    made = group_pointwise(clone(gm), context)
    assert len(context.matches) == 2
    for got, want in zip(made(*inputs), gm(*inputs), strict=True):
        assert torch.equal(got, want)
    again = group_pointwise(clone(made), Context())  # names of the first grouping are taken
    assert torch.equal(again(*inputs)[0], gm(*inputs)[0])


def test_zeros_of_either_sign_are_two_arguments():
    gm = symbolic_trace(lambda x: (1 / (x * 0.0), 1 / (x * -0.0)))
    made = eliminate_common_subexpressions(clone(gm), Context())
    assert [float(item) for item in made(torch.ones(()))] == [float("inf"), float("-inf")]


def test_of_equal_values_one_may_be_returned_but_not_two():
    gm = symbolic_trace(lambda x: (torch.sin(x), torch.sin(x) + 1))
    context = Context()
    eliminate_common_subexpressions(gm, context)
    assert [match.applied for match in context.matches] == [True]
    three = symbolic_trace(lambda x: (torch.sin(x) + 1, torch.sin(x), torch.sin(x)))
    context = Context()
    eliminate_common_subexpressions(three, context)  # the first becomes the second, which is returned
    assert [(match.applied, match.reason) for match in context.matches] == [(True, None), (False, "returned")]


def test_a_parameter_seen_differently_stays_and_a_copy_of_it_is_frozen():
    class Viewed(nn.Module):
        def __init__(self, copied):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 5))
            self.copied = copied

        def forward(self, x):
            weight = self.weight.t().unsqueeze(0)
            return x @ (weight.clone() if self.copied else weight)

    for copied in (False, True):
        context = Context(inference=True)
        freeze(to_aten(symbolic_trace(Viewed(copied)), [torch.randn(2, 4, 5)]), context)
        assert [match.applied for match in context.matches] == [True] * copied
