"""What a node writes to, what must keep its place, and the edges that follow: changed lines here went unnoticed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxscope.passes.order import alias_classes, has_effect, is_dead, order_edges, written

aten = torch.ops.aten


def graph_of(build: Callable[..., Any], *names: str) -> tuple[torch.fx.Graph, dict[str, torch.fx.Node]]:
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(name) for name in names]
    graph.output(build(graph, *inputs))
    return graph, {node.name: node for node in graph.nodes}


def one(target: Any, *args: object, method: bool = False, **kwargs: object) -> tuple[torch.fx.Node, list[str]]:
    """One call on inputs x, y and z (named in its arguments), and the names of what it writes to."""
    graph = torch.fx.Graph()
    inputs = {name: graph.placeholder(name) for name in "xyz"}

    def filled(value: object) -> Any:
        return inputs.get(value, value) if isinstance(value, str) else value

    make = graph.call_method if method else graph.call_function
    node = make(target, tuple(map(filled, args)), {name: filled(value) for name, value in kwargs.items()})
    return node, [item.name for item in written(node)]


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "method", "expected"),
    [
        (torch.add, ("x", "y"), {}, False, []),
        (torch.add, ("x", "y"), {"out": "z"}, False, ["z"]),
        ("add_", ("x", "y"), {}, True, ["x"]),
        ("__setitem__", ("x", 0, "y"), {}, True, ["x"]),
        ("__and__", ("x", "y"), {}, True, []),  # two underscores at the end are no in-place name
        (operator.iadd, ("x", "y"), {}, False, ["x"]),
        (F.relu, ("x",), {"inplace": True}, False, ["x"]),
        (F.relu, ("x",), {"inplace": False}, False, []),
        (aten.add_.Tensor, ("x", "y"), {}, False, ["x"]),
        (aten.add.Tensor, ("x", "y"), {}, False, []),
        (aten.add.out, ("x", "y"), {"out": "z"}, False, ["z"]),
        # Norms write to their running statistics in training, whatever their schema says.
        (F.batch_norm, ("x", "y", "z"), {"training": True}, False, ["y", "z"]),
        (F.batch_norm, ("x", "y", "z"), {"training": False}, False, []),
        (F.batch_norm, ("x", "y", "z"), {}, False, []),
        (F.instance_norm, ("x", "y", "z"), {}, False, ["y", "z"]),
        (F.instance_norm, ("x", "y", "z"), {"use_input_stats": False}, False, []),
        (aten.batch_norm.default, ("x", None, None, "y", "z", True, 0.1, 1e-5, False), {}, False, ["y", "z"]),
        (aten.batch_norm.default, ("x", None, None, "y", "z", False, 0.1, 1e-5, False), {}, False, []),
    ],
)
def test_what_is_written(
    target: Any, args: tuple[object, ...], kwargs: dict[str, object], method: bool, expected: list[str]
) -> None:
    node, found = one(target, *args, method=method, **kwargs)
    assert found == expected
    assert is_dead(node) == (not found)


@pytest.mark.parametrize(
    ("target", "effect"),
    [
        (aten.rand.default, True),
        (aten.bernoulli.default, True),
        (aten.sin.default, False),
        (aten._assert_async.default, True),
        (aten._assert_async.msg, True),
        (aten._assert_scalar.default, True),
        (torch.ops.higher_order.cond, True),
        (torch.rand, True),
        (F.dropout, True),
        (torch.sin, False),
    ],
)
def test_what_keeps_its_place(target: Any, effect: bool) -> None:
    assert has_effect(one(target, "x")[0]) == effect


@pytest.mark.parametrize(
    ("module", "training", "effect"),
    [
        (nn.Dropout(0.5), True, True),
        (nn.Dropout(0.5), False, False),
        (nn.BatchNorm1d(4), True, True),
        (nn.BatchNorm1d(4, track_running_stats=False), True, False),
        (nn.Linear(4, 4), True, False),
    ],
)
def test_modules_keep_their_place_where_they_draw_or_count(module: nn.Module, training: bool, effect: bool) -> None:
    root = nn.Module()
    root.add_module("child", module.train(training))
    graph = torch.fx.Graph()
    graph.output(graph.call_module("child", (graph.placeholder("x"),)))
    gm = torch.fx.GraphModule(root, graph)
    (node,) = (each for each in gm.graph.nodes if each.op == "call_module")
    assert has_effect(node) == effect


def edges(build: Callable[..., Any], *names: str) -> set[tuple[str, str]]:
    graph, _ = graph_of(build, *names)
    return {(before.name, after.name) for after, found in order_edges(graph).items() for before in found}


def test_a_write_stands_between_the_reads_around_it() -> None:
    def build(graph: torch.fx.Graph, x: torch.fx.Node) -> Any:
        early = graph.call_function(aten.sin.default, (x,))
        graph.call_function(aten.add_.Tensor, (x, 1))
        return early, graph.call_function(aten.cos.default, (x,))

    assert edges(build, "x") >= {("sin_default", "add__tensor"), ("add__tensor", "cos_default")}
    assert ("sin_default", "cos_default") not in edges(build, "x")


def test_a_view_is_the_storage_that_it_shows() -> None:
    def build(graph: torch.fx.Graph, x: torch.fx.Node) -> Any:
        view = graph.call_function(aten.view.default, (x, [-1]))
        graph.call_function(aten.add_.Tensor, (view, 1))
        return graph.call_function(aten.cos.default, (x,))

    assert ("add__tensor", "cos_default") in edges(build, "x")


def test_two_attributes_of_one_name_are_one_storage() -> None:
    graph = torch.fx.Graph()
    first, second, other = (graph.get_attr(name) for name in ("state", "state", "else"))
    graph.call_function(aten.add_.Tensor, (first, 1))
    read = graph.call_function(aten.cos.default, (second,))
    apart = graph.call_function(aten.sin.default, (other,))
    graph.output((read, apart))
    found = {(before.name, after.name) for after, each in order_edges(graph).items() for before in each}
    assert ("add__tensor", "cos_default") in found
    assert ("add__tensor", "sin_default") not in found
    classes = alias_classes(list(graph.nodes))
    assert classes[first] is classes[second]
    assert classes[first] is not classes[other]


def test_effects_keep_their_order_among_each_other() -> None:
    def build(graph: torch.fx.Graph) -> Any:
        draws = [graph.call_function(aten.rand.default, ([4],)) for _ in range(3)]
        graph.call_function(aten.sin.default, (draws[0],))
        return draws

    assert edges(build) == {("rand_default", "rand_default_1"), ("rand_default_1", "rand_default_2")}
