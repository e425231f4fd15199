"""Graphs drawn by hand or by chance, and supports; used by the tests of islands."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import nn
from torch.fx import Graph, GraphModule
from torch.fx.passes.operator_support import OperatorSupportBase

from fxscope.targets.target import Clause

NO = (Clause("op", "not supported"),)


def only(*targets):
    return lambda node: () if node.target in targets else NO


def names(result):
    return [[node.name for node in island.nodes] for island in result.islands]


class Upstream(OperatorSupportBase):
    def __init__(self, supports):
        self.supports = supports

    def is_node_supported(self, submodules, node):
        return node.op == "call_function" and not self.supports(node)


def connected(nodes):
    """Whether nodes hang together through their own edges."""
    seen, todo = set(), [*nodes[:1]]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo = [*todo, *(near for near in (*node.all_input_nodes, *node.users) if near in nodes)]
    return seen == set(nodes)


def chain(length, alternating=True):
    graph = Graph()
    node = graph.placeholder("x")
    for at in range(length):
        node = graph.call_function(torch.sin if alternating and at % 2 else torch.relu, (node,))
    graph.output(node)
    return GraphModule(nn.Module(), graph)


def random_graph(choices):
    """A DAG of binary ops; each choice is (left, right, supported), indices modulo what is there."""
    graph = Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    supported = set()
    for left, right, good in choices:
        node = graph.call_function(torch.add, (values[left % len(values)], values[right % len(values)]))
        if good:
            supported.add(node.name)
        values.append(node)
    graph.output(tuple(node for node in values[2:] if not node.users) or values[-1])
    return GraphModule(nn.Module(), graph), supported


choices = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200), st.booleans()), min_size=1, max_size=60)
