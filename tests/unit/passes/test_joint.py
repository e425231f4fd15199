"""Joint graphs: what is saved, what is recomputed, and memory against work."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from fxscope.errors import UsageError
from fxscope.passes.joint import cut_rows, joint_from_graph, saved, to_joint


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def gradients(cut, joint, model, x):
    """Run forward and backward by hand: the forward's own outputs, and the gradients."""
    flat = [*model.parameters(), x]
    with torch.no_grad():
        results = cut.forward(*flat)
        own, kept = results[: joint.num_forward_outputs], results[joint.num_forward_outputs :]
        symbols = [item for item in kept if not isinstance(item, torch.Tensor)]
        tensors = [item for item in kept if isinstance(item, torch.Tensor)]
        return own, cut.backward(*symbols, *tensors, torch.ones_like(own[0]))


@pytest.mark.parametrize(
    ("partitioner", "budget"), [("default", 1.0), ("min-cut", 1.0), ("min-cut", 0.3), ("min-cut", 0.0)]
)
def test_every_cut_computes_the_gradients(partitioner, budget):
    model, x = network(), torch.randn(8, 16)
    joint = to_joint(symbolic_trace(model), [x])
    cut = joint.cut(partitioner, budget=budget)
    own, found = gradients(cut, joint, model, x)
    want = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    torch.testing.assert_close(own[0], model(x), rtol=1e-5, atol=1e-5)
    for got, expected in zip(found, want, strict=False):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_a_sweep_trades_memory_for_work():
    joint = to_joint(symbolic_trace(network()), [torch.randn(8, 16)])
    cuts = joint.sweep((0.0, 0.5, 1.0))
    assert [cut.budget for cut in cuts] == [0.0, 0.5, 1.0]
    memory = [cut.activation_bytes for cut in cuts]
    work = [cut.recomputed_flops for cut in cuts]
    assert memory == sorted(memory)
    assert memory[0] == 0
    assert work == sorted(work, reverse=True)
    assert work[0] > 0
    plain = joint.cut("default")
    assert plain.recomputed == ()
    assert plain.activation_bytes >= memory[-1]


def test_saved_values_know_their_origin_and_storage():
    joint = to_joint(symbolic_trace(network()), [torch.randn(8, 16)])
    kept = {item.name: item for item in joint.cut("default").saved}
    views = [item for name, item in kept.items() if name.startswith("permute")]
    assert views
    assert all(item.origin == "input" for item in views)  # a transposed weight keeps no memory of its own
    assert {item.bytes for item in kept.values() if item.name.startswith("alias")} <= {0}
    assert any(item.origin == "activation" and item.bytes == 8 * 64 * 4 for item in kept.values())


def test_a_joint_graph_from_a_log_is_told_apart_by_its_names():
    joint = to_joint(symbolic_trace(network()), [torch.randn(8, 16)])
    again = joint_from_graph(joint.graph)
    assert again.num_forward_outputs == 1
    with pytest.raises(UsageError, match="no joint graph"):
        joint_from_graph(joint.cut().forward)


def test_what_has_no_joint_graph_is_said():
    with pytest.raises(UsageError, match="requires a gradient"):
        to_joint(symbolic_trace(lambda x: x.sin()), [torch.randn(3)])
    joint = to_joint(symbolic_trace(network()), [torch.randn(8, 16)])
    with pytest.raises(UsageError, match="between 0 and 1"):
        joint.cut("min-cut", budget=2)
    with pytest.raises(UsageError, match="no partitioner 'mincut'"):
        joint.cut("mincut")


def test_a_copy_of_an_input_keeps_memory_of_its_own_and_a_view_none():
    graph = torch.fx.Graph()
    p = graph.placeholder("p")
    view = graph.call_function(torch.ops.aten.view.default, (p, [6]))
    copy = graph.call_function(torch.ops.aten.clone.default, (view,))
    part = graph.call_function(torch.ops.aten.view.default, (copy, [3, 2]))
    result = graph.call_function(torch.ops.aten.sin.default, (copy,))
    for node, shape in ((p, (2, 3)), (view, (6,)), (copy, (6,)), (part, (3, 2)), (result, (6,))):
        node.meta["val"] = torch.empty(shape)
    graph.output((result, view, copy, part))
    found = saved(torch.fx.GraphModule(nn.Module(), graph), torch.fx.GraphModule(nn.Module(), torch.fx.Graph()), 1)
    assert [(each.name, each.origin, each.bytes) for each in found] == [
        ("view_default", "input", 24),
        ("clone_default", "activation", 24),
        ("view_default_1", "activation", 0),  # the copy's memory, counted already
    ]


def test_rows_name_the_largest_activations_first_and_budgets_go_from_one_to_none():
    joint = to_joint(symbolic_trace(network()), [torch.randn(8, 16)])
    rows = cut_rows(joint, (1.0, 0.0))
    sizes = {item.name: item.bytes for item in joint.cut("default").saved}
    assert [row.partitioner for row in rows] == ["default", "min-cut", "min-cut"]
    assert [sizes[name] for name in rows[0].saved] == sorted((sizes[name] for name in rows[0].saved), reverse=True)
    assert len({sizes[name] for name in rows[0].saved}) > 1
    assert rows[0].input_bytes == sum(item.bytes for item in joint.cut("default").saved if item.origin == "input") > 0
    assert [cut.budget for cut in joint.sweep((1.0, 0.0, 0.5))] == [0.0, 0.5, 1.0]
    for budget in (-0.1, 1.1):
        with pytest.raises(UsageError, match="between 0 and 1"):
            joint.cut("min-cut", budget=budget)
