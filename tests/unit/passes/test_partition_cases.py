"""Islands: cases of other partitioners, circles, edits, and the same bytes each time."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given, settings
from torch import nn
from torch.fx import Graph, GraphModule, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from fxscope.errors import CheckFailed, UsageError
from fxscope.passes.application import Context
from fxscope.passes.islands import partition_for
from fxscope.passes.module import clone
from fxscope.passes.moves import move_later
from fxscope.passes.partition import Island, Partition, assign_phases, partition, without
from fxscope.passes.partition_report import boundary_bytes, report
from fxscope.passes.peer import capability_based
from fxscope.passes.split import check_convex, split
from tests.unit.passes.drawn import NO, Upstream, chain, choices, names, only, random_graph


def pytorch_cases():
    """Graphs of PyTorch's test_fx_passes.py, only add supported: forward1, 2, 6 and 11."""

    def forward1(a, b, c):
        add = a + b
        add_1 = add + b
        add_2 = add_1 + c
        relu_1 = add_2.relu()
        add_3 = add_1 + add_2
        add_4 = add_1 + relu_1 + add_3
        relu_2 = add_4.relu()
        add_5 = relu_2 + add_4
        add_6 = add_5 + add_4
        return add_4, add_6

    def forward2(a, b, _):
        add = a + b
        add_1 = add + b
        relu_1 = add_1.relu()  # blocked by this
        add_3 = add_1 + relu_1
        return add_1 + add_3

    def forward6(a, b, c):
        del b, c
        return a + 1

    def forward11(a, b, c):
        del b, c
        add = a + 1
        r1 = add.relu()
        add_2 = add + r1
        return add_2.relu()

    return [(forward1, 3), (forward2, 2), (forward6, 1), (forward11, 2)]


@pytest.mark.parametrize(("function", "count"), pytorch_cases())
def test_pytorchs_own_cases(function, count):
    gm = symbolic_trace(function)
    result = partition(gm, only(operator.add))
    assert len(result.islands) == count
    peer = CapabilityBasedPartitioner(gm, Upstream(only(operator.add)), allows_single_node_partition=True)
    assert len(peer.propose_partitions()) == count
    inputs = [torch.randn(3) for _ in range(3)]
    torch.testing.assert_close(split(gm, result)(*inputs), gm(*inputs))


def test_a_circle_is_named():
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,), name="a")
    b = graph.call_function(torch.relu, (x,), name="b")
    c = graph.call_function(torch.relu, (a,), name="c")
    d = graph.call_function(torch.relu, (b,), name="d")
    graph.output((c, d))
    gm = GraphModule(nn.Module(), graph)
    a, b, c, d = (node for node in gm.graph.nodes if node.op == "call_function")
    by_hand = Partition(
        islands=(Island(index=0, phase=0, nodes=(a, d)), Island(index=1, phase=0, nodes=(b, c))),
        clauses={},
        phases={},
    )
    with pytest.raises(CheckFailed, match=r"circle: \{a, d\} <- \{b, c\} <- \{a, d\}"):
        split(gm, by_hand)


def test_executorchs_cycle_cases():
    gm = chain(3, alternating=False)
    a, b, c = (node for node in gm.graph.nodes if node.op == "call_function")
    assert check_convex(gm, [[a, b]]) is None
    assert check_convex(gm, [[a]]) is None
    assert check_convex(gm, [[a, b, c]]) is None
    assert (
        check_convex(gm, [[a, c]])
        == "the islands depend on each other in a circle: {relu, relu_2} <- relu_1 <- {relu, relu_2}"
    )
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b, c = graph.call_function(torch.relu, (a,)), graph.call_function(torch.relu, (a,))
    graph.output((b, c))
    gm = GraphModule(nn.Module(), graph)
    assert check_convex(gm, [[b, c]]) is None


# Where the exception comes inside a callback of the garbage collector, Python tells that it ignored it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_peer_is_compared_and_stopped_in_time():
    small = capability_based(chain(9), only(torch.relu), 60)
    assert len(small.islands) == len(partition(chain(9), only(torch.relu)).islands) == 5
    large = capability_based(chain(4000), only(torch.relu), 0.2)
    assert large.islands is None
    assert "not finished" in large.text
    assert not [thread for thread in threading.enumerate() if "(work)" in thread.name]  # it is gone, not left running

    def raises(node):
        raise KeyError("lost")

    assert "raised KeyError" in capability_based(chain(3), raises, 60).text


SCRIPT = """
import random, torch
from torch.fx import Graph, GraphModule
from fxscope.passes.partition import partition
from fxscope.passes.peer import capability_based
from fxscope.passes.split import split
from fxscope.targets.target import Clause
draw = random.Random(7)
graph = Graph(); values = [graph.placeholder("x"), graph.placeholder("y")]; good = set()
for at in range(80):
    values.append(graph.call_function(torch.add, (draw.choice(values), draw.choice(values))))
    if draw.random() < 0.7: good.add(values[-1].name)
graph.output(tuple(v for v in values if not v.users))
gm = GraphModule(torch.nn.Module(), graph)
result = partition(gm, lambda n: () if n.name in good else (Clause("op", ""),), components=True)
made = split(gm, result)
print(made.code, *[made.get_submodule(n.target).code for n in made.graph.nodes if n.op == "call_module"])
"""


@pytest.mark.slow
def test_same_bytes_under_any_hash_seed():
    out = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=240,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(out) == 1
    assert b"island_0" in out.pop()


def test_a_path_around_an_unsupported_node_makes_two_islands():
    gm = symbolic_trace(lambda x: (lambda a: torch.relu(torch.sin(a)) + a)(torch.relu(x)))
    result = partition(gm, only(torch.relu, operator.add))
    assert names(result) == [["relu"], ["relu_1", "add"]]


def quantised():
    """x -> q -> dq -> conv -> q_1 -> dq_1 -> add, and x -> add: what is around a convolution when Q/DQ stay outside."""
    graph = Graph()
    x = graph.placeholder("x")
    head = graph.call_function(torch.relu, (x,), name="head")
    q = graph.call_function(torch.tanh, (head,), name="q")
    conv = graph.call_function(torch.relu, (q,), name="conv")
    dq = graph.call_function(torch.tanh, (conv,), name="dq")
    graph.output(graph.call_function(torch.add, (dq, head), name="tail"))
    return GraphModule(nn.Module(), graph)


def test_nodes_taken_out_of_an_island_leave_no_circle():
    """ExecuTorch 18190: Q and DQ taken out of an island at its edge; head and tail would wait for each other."""
    gm = quantised()
    result = partition(gm, lambda node: ())
    assert names(result) == [["head", "q", "conv", "dq", "tail"]]
    out = [node for node in gm.graph.nodes if node.name in ("q", "dq")]
    kept = [node for node in result.islands[0].nodes if node not in out]
    assert "circle" in check_convex(gm, [kept])  # what trimming alone would leave
    edited = without(gm, result, out)
    assert names(edited) == [["head"], ["conv"], ["tail"]]
    assert {clause.code for failing in edited.clauses.values() for clause in failing} == {"left-out"}
    assert check_convex(gm, [island.nodes for island in edited.islands]) is None
    x = torch.randn(4)
    assert torch.equal(split(gm, edited)(x), gm(x))


def test_a_circle_is_found_from_either_side():
    """ExecuTorch PR 18397: groups that interleave, asked in both orders."""
    gm = quantised()
    head, q, conv, dq, tail = (node for node in gm.graph.nodes if node.op == "call_function")
    for groups in ([[head, dq], [q, conv]], [[q, conv], [head, dq]], [[head, tail], [conv]], [[conv], [head, tail]]):
        assert "circle" in check_convex(gm, groups)
    assert check_convex(gm, [[head], [q, conv, dq], [tail]]) is None


def test_options_of_the_pass():
    gm = symbolic_trace(lambda x, y: (torch.relu(x), torch.relu(y)))

    class Everything:
        name = "everything"

        def supports(self, node):
            return ()

        def cost(self, island):
            return None

    def run(argument):
        context = Context(options={"argument": argument})
        made = partition_for(clone(gm), context)
        return [match.nodes for match in context.matches if match.applied], made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fxscope.targets.registry.target", lambda name: Everything())
        patch.setattr("fxscope.passes.cost.benefit_of", lambda machine: lambda island: None)
        assert run("everything")[0] == [["relu", "relu_1"]]
        assert run("everything:apart")[0] == [["relu"], ["relu_1"]]
        assert run("everything:without=relu")[0] == [["relu_1"]]
        with pytest.raises(UsageError, match="cannot leave out sin: no such node"):
            run("everything:without=sin")
        with pytest.raises(UsageError, match="takes apart and without=NODE"):
            run("everything:maybe")
    with pytest.raises(UsageError, match="needs a target"):
        partition_for(gm, Context())


def test_what_another_target_took_is_left_alone():
    """ExecuTorch PR 20077 partitioned delegates again."""
    gm = symbolic_trace(lambda x: torch.relu(torch.sin(torch.relu(x))))
    once = split(gm, partition(gm, only(torch.relu)))
    again = partition(once, lambda node: ())
    assert [clause.code for failing in again.clauses.values() for clause in failing][:2] == ["lowered", "producer"]
    assert ["sin"] in names(again)
    assert not {"island_0", "island_1"} & {name for island in names(again) for name in island}
    x = torch.randn(4)
    assert torch.equal(split(once, again, "other")(x), gm(x))


def test_a_triton_kernel_of_the_program_is_left_alone():
    pytest.importorskip("torch._higher_order_ops.triton_kernel_wrap")  # registers the op
    graph = Graph()
    x = graph.placeholder("x")
    kernel = graph.call_function(torch.ops.higher_order.triton_kernel_wrapper_functional, (), {"kwargs": {"x": x}})
    graph.output(graph.call_function(operator.getitem, (kernel, "x")))
    result = partition(GraphModule(nn.Module(), graph), lambda node: ())
    assert [failing[0].code for failing in result.clauses.values()] == ["lowered", "producer"]
    assert result.islands == ()


def test_a_node_moves_to_the_later_island_where_fewer_bytes_cross():
    """A sum over a row is small; what it is spread over again is large and used behind the unsupported op only."""

    def forward(x):
        small = x.sum(-1, keepdim=True)
        large = small.expand(8, 64) * 2.0
        return torch.ops.aten.sin.default(small) * large + torch.ops.aten.relu.default(large)

    aten = torch.ops.aten
    gm = make_fx(forward, tracing_mode="fake")(torch.randn(8, 64))
    result = partition(gm, lambda node: NO if node.target is aten.sin.default else ())
    assert [island[0] for island in names(result)] == ["sum_1", "expand"]
    # The input and the sums; the sums once more, their sines, and the result.
    assert boundary_bytes([list(island.nodes) for island in result.islands]) == 4 * (8 * 64 + 8 + 8 + 8 + 8 * 64)
    x = torch.randn(8, 64)
    torch.testing.assert_close(split(gm, result)(x), gm(x))


@settings(max_examples=60)
@given(choices)
def test_moving_never_costs_bytes_nor_breaks_islands(choice):
    gm, supported = random_graph(choice)
    FakeTensorProp(gm).propagate(torch.randn(3), torch.randn(3))
    for node in gm.graph.nodes:  # sizes of all kinds: only their bytes count
        if isinstance(node.meta.get("val"), torch.Tensor):
            node.meta["val"] = torch.empty(1 + 7 * (len(node.name) * node.name.count("1") % 5), device="meta")
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    clauses = {node: NO for node in nodes if node.name not in supported}

    def groups(phases):
        found = {}
        for node in nodes:
            if node not in clauses:
                found.setdefault(phases[node], []).append(node)
        return [found[phase] for phase in sorted(found)]

    phases = assign_phases(nodes, clauses, {})
    before = groups(phases)
    moved = move_later(nodes, clauses, {}, phases)
    after = groups(phases)
    assert check_convex(gm, after) is None
    assert len(after) <= len(before)
    assert boundary_bytes(after) < boundary_bytes(before) if moved else after == before


def test_branches_in_one_island_and_what_they_keep_alive():
    def forward(x):
        return (torch.sin(torch.cos(x)).sum(), torch.cos(torch.sin(x)).sum())

    gm = make_fx(forward, tracing_mode="fake")(torch.randn(1000))
    row = report(gm, partition(gm, lambda node: ())).islands[0]
    assert (row.branches, row.peak_bytes_apart) == (2, 8000)
    assert row.peak_bytes == 12000  # the input waits for the other branch beside the two values of the first one
    assert len(partition(gm, lambda node: (), components=True).islands) == 2


def test_a_boundary_carries_tensors_only():
    """Several outputs leave an island one by one; a node whose whole tuple is used at once stays outside."""
    aten = torch.ops.aten

    def forward(x):
        values, places = torch.ops.aten.max.dim(x, 0)
        return torch.relu(values), places

    gm = make_fx(forward, tracing_mode="fake")(torch.randn(3, 4))
    result = partition(gm, only(aten.max.dim))
    made = split(gm, result)
    assert [type(item) for item in made.island_0(torch.randn(3, 4))] == [torch.Tensor, torch.Tensor]
    graph = Graph()
    x = graph.placeholder("x")
    pair = graph.call_function(aten.max.dim, (x, 0))
    pair.meta["val"] = (torch.empty(4, device="meta"), torch.empty(4, device="meta"))
    graph.output(graph.call_function(tuple, (pair,)))
    result = partition(GraphModule(nn.Module(), graph), only(aten.max.dim))
    assert [clause.code for clause in result.clauses[pair]] == ["tuple"]
