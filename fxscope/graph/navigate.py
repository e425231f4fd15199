"""Moving through a graph along its edges. Linear in the graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fxscope.graph.arguments import node_refs
from fxscope.graph.records import Graph


def neighbourhood(graph: Graph, names: Iterable[str], hops: int) -> list[str]:
    """Nodes within ``hops`` steps of the named ones, to what they read and to what reads them, in order of execution."""
    nodes = graph.by_name()
    distance = dict.fromkeys(names, 0)
    queue = deque(distance)
    while queue:
        name = queue.popleft()
        if distance[name] >= hops:
            continue
        node = nodes[name]
        for near in (*node_refs(node), *node.users):
            if near in nodes and near not in distance:
                distance[near] = distance[name] + 1
                queue.append(near)
    return sorted(distance, key=lambda name: nodes[name].index)
