"""Islands: laws on random graphs, and the cases of the reference table."""

from __future__ import annotations

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.fx import Graph, GraphModule, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from fxscope.passes.partition import partition
from fxscope.passes.split import check_convex, extract, split
from tests.unit.passes.drawn import NO, Upstream, chain, choices, connected, names, only, random_graph


@settings(max_examples=100)
@given(choices, st.booleans())
def test_random_graphs_are_convex_minimal_and_run_the_same(choice, components):
    gm, supported = random_graph(choice)

    def supports(node):
        return () if node.name in supported else NO

    result = partition(gm, supports, components=components)
    assert {node.name for island in result.islands for node in island.nodes} == supported
    assert check_convex(gm, [island.nodes for island in result.islands]) is None
    for island in result.islands:
        assert check_convex(gm, [island.nodes]) is None
        assert not components or connected(island.nodes)
    if not components:
        peer = CapabilityBasedPartitioner(gm, Upstream(supports), allows_single_node_partition=True)
        assert len(result.islands) == len(peer.propose_partitions())
    inputs = torch.randn(3), torch.randn(3)
    expected, got = gm(*inputs), split(gm, result)(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_getitem_follows_its_producer():
    norms = nn.ModuleList(nn.BatchNorm2d(3).eval() for _ in range(4))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = norms

        def forward(self, x):
            for norm in self.norms:
                x = torch.relu(norm(x))
            return x

    gm = make_fx(Model(), tracing_mode="fake", _allow_non_fake_inputs=True)(torch.randn(1, 3, 4, 4))
    aten = torch.ops.aten
    result = partition(gm, only(aten.native_batch_norm.default, aten.relu.default, aten.empty.memory_format))
    assert len(result.islands) == 1
    assert sum(node.target is operator.getitem for node in result.islands[0].nodes) == 12
    # An unsupported producer takes its getitems with it: never an island of getitems only.
    result = partition(gm, only(aten.relu.default))
    assert names(result) == [["relu"], ["relu_1"], ["relu_2"], ["relu_3"]]
    assert {clause.code for failing in result.clauses.values() for clause in failing} == {"op", "producer"}


def test_a_mutation_is_not_overtaken_by_its_island():
    def forward(x):
        y = torch.relu(x)
        z = torch.sin(y)
        y.add_(1)
        return z, torch.relu(y)

    gm = make_fx(forward)(torch.ones(2))
    aten = torch.ops.aten
    result = partition(gm, only(aten.relu.default, aten.add_.Tensor))
    assert names(result) == [["relu"], ["add_", "relu_1"]]
    z, last = split(gm, result)(torch.ones(2))
    assert z[0].item() == pytest.approx(0.8414709848)
    assert last.tolist() == [2.0, 2.0]


def test_a_mutation_through_a_view_keeps_its_order_in_dynamo_graphs_too():
    def forward(x):
        y = torch.relu(x)
        view = y.view(-1)
        z = torch.sin(y)
        view.add_(1)
        return z, torch.relu(y)

    gm = symbolic_trace(forward)
    result = partition(gm, lambda node: () if node.target in (torch.relu, "view", "add_") else NO)
    z, last = split(gm, result)(torch.ones(2))
    assert z[0].item() == pytest.approx(0.8414709848)
    assert last.tolist() == [2.0, 2.0]


def test_random_numbers_keep_their_order():
    def forward(x):
        a = torch.ops.aten.rand_like.default(x)
        b = torch.ops.aten.bernoulli.default(x * 0 + 0.5)
        c = torch.ops.aten.rand_like.default(x)
        return a, b, c

    gm = make_fx(forward)(torch.zeros(8))
    result = partition(gm, only(torch.ops.aten.rand_like.default))
    assert len(result.islands) == 2
    torch.manual_seed(0)
    expected = gm(torch.zeros(8))
    torch.manual_seed(0)
    got = split(gm, result)(torch.zeros(8))
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_assertions_without_users_survive():
    graph = Graph()
    x = graph.placeholder("x")
    r = graph.call_function(torch.relu, (x,))
    graph.call_function(torch._assert, (True, "never"))
    graph.output(graph.call_function(torch.relu, (r,)))
    gm = GraphModule(nn.Module(), graph)
    made = split(gm, partition(gm, only(torch.relu)))
    assert any(node.target is torch._assert for node in made.graph.nodes)


def test_a_module_only_graph_keeps_its_islands():
    gm = symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)).eval())
    result = partition(gm, lambda node: () if node.op == "call_module" else NO)
    assert len(result.kept) == 1
    x = torch.randn(2, 3)
    torch.testing.assert_close(split(gm, result)(x), gm(x))


def test_views_alone_are_no_island():
    gm = make_fx(lambda x: torch.cat([x.view(4).clone()]).sin())(torch.randn(2, 2))
    aten = torch.ops.aten
    result = partition(gm, only(aten.view.default, aten.clone.default, aten.cat.default))
    assert [island.dropped for island in result.islands] == ["only views and copies: nothing to compute"]
    gm = make_fx(lambda x: x.view(4).relu().sin())(torch.randn(2, 2))
    assert len(partition(gm, only(aten.view.default, aten.relu.default)).kept) == 1


def test_parameters_are_lifted_once():
    weight = nn.Parameter(torch.randn(3))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return (torch.sin(x * self.weight)) * self.weight

    gm = symbolic_trace(Model())
    made = split(gm, partition(gm, only(operator.mul)))
    assert [name for name, _ in made.named_parameters(remove_duplicate=False)] == ["weight"]
    assert made.weight is weight
    assert [node.name for node in made.island_0.graph.find_nodes(op="placeholder")] == ["x", "weight"]
    x = torch.randn(3)
    assert torch.equal(made(x), gm(x))


def test_a_transposed_weight_goes_with_the_island_that_uses_it():
    def forward(x, w, v):
        return torch.mm(torch.sin(torch.mm(x, w.t())), v.t().clone().t().t())

    aten = torch.ops.aten
    inputs = [torch.randn(3, 3) for _ in range(3)]
    gm = make_fx(forward, tracing_mode="fake")(*inputs)
    result = partition(gm, lambda node: NO if node.target is aten.sin.default else ())
    assert [[node.name for node in island.nodes] for island in result.islands] == [
        ["t", "mm"],
        ["t_1", "clone", "t_2", "t_3", "mm_1"],
    ]
    made = split(gm, result)
    assert len(made.island_0.graph.output_node().args[0]) == 1  # the product, no weight
    torch.testing.assert_close(made(*inputs), gm(*inputs))


def test_inputs_come_in_the_callers_order():
    gm = symbolic_trace(lambda a, b: torch.sub(b, a))
    island = extract(gm, [node for node in gm.graph.nodes if node.target is torch.sub])
    assert [node.name for node in island.graph.find_nodes(op="placeholder")] == ["a", "b"]


def test_control_flow_takes_its_branches_along():
    def forward(x):
        y = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))
        return y.relu()

    gm = make_fx(forward, tracing_mode="fake")(torch.ones(2))
    result = partition(gm, lambda node: () if node.target is torch.ops.higher_order.cond else NO)
    made = split(gm, result)
    assert made(torch.ones(2)).tolist() == [2.0, 2.0]
    assert "true_graph_0" in dict(made.island_0.named_children())


def test_a_symbolic_size_crosses_the_boundary():
    gm = make_fx(lambda x: x.sin().expand(2, x.shape[0]).relu() * x.shape[0], tracing_mode="symbolic")(torch.ones(5))
    aten = torch.ops.aten
    made = split(gm, partition(gm, only(aten.relu.default, aten.mul.Tensor, aten.expand.default)))
    assert made(torch.ones(7)).shape == (2, 7)


@pytest.mark.parametrize("build", ["empty", "passthrough", "twice", "dead"])
def test_small_graphs(build):
    graph = Graph()
    x = graph.placeholder("x")
    if build == "empty":
        graph.output(())
    elif build == "passthrough":
        graph.output((x, graph.call_function(torch.relu, (x,))))
    elif build == "twice":
        r = graph.call_function(torch.relu, (x,))
        graph.output((r, r))
    else:
        graph.call_function(torch.relu, (x,))
        graph.output(graph.call_function(torch.relu, (x,)))
    gm = GraphModule(nn.Module(), graph)
    made = split(gm, partition(gm, only(torch.relu)))
    torch.testing.assert_close(made(torch.ones(2)), gm(torch.ones(2)))


def test_unprofitable_islands_are_dropped_with_their_figure():
    gm = chain(5)
    result = partition(gm, only(torch.relu), benefit=lambda island: -1e-5)
    assert [island.dropped for island in result.islands] == ["costs 10.0 µs more than it saves (modelled)"] * 3
    assert [node.target for node in split(gm, result).graph.nodes] == [node.target for node in gm.graph.nodes]


def test_an_island_whose_benefit_nobody_knows_stays():
    gm = symbolic_trace(lambda x: torch.relu(torch.sin(x)))
    kept = partition(gm, only(torch.relu), benefit=lambda part: None).islands
    assert [(island.benefit, island.dropped) for island in kept] == [(None, None)]


def test_a_function_of_the_program_is_no_call_into_a_backend_whatever_its_name():
    def call_delegate(x):
        return torch.relu(x)

    graph = Graph()
    graph.output(graph.call_function(call_delegate, (graph.placeholder("x"),)))
    result = partition(GraphModule(nn.Module(), graph), only(call_delegate))
    assert names(result) == [["call_delegate"]]
