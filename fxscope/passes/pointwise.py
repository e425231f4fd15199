"""Chains of pointwise ops of one shape, each as one module: what a generated kernel can do in one pass over memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.passes.analysis import categorise
from fxscope.passes.application import Context
from fxscope.passes.module import value
from fxscope.passes.order import is_compute, order_edges, written
from fxscope.passes.partition import Island, Partition, connected_parts
from fxscope.passes.split import split

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def pointwise_groups(gm: GraphModule, smallest: int = 2) -> list[tuple[Node, ...]]:
    """Connected groups of pointwise nodes with outputs of one shape on one device; each convex, together acyclic.

    Args:
        gm: Functional ATen with ``meta["val"]``.
        smallest: Groups of fewer nodes are left out.
    """
    edges = order_edges(gm.graph)
    colours: dict[Node, Any] = {}
    phases: dict[Node, int] = {}
    groups: dict[tuple[int, Any], list[Node]] = {}
    for node in gm.graph.nodes:
        if not is_compute(node):
            continue
        colour = colours[node] = _colour(node)
        phase = 0
        for before in (*node.all_input_nodes, *edges.get(node, ())):
            if before in phases:
                phase = max(phase, phases[before] + (colours[before] != colour))
        phases[node] = phase
        if colour is not None:
            groups.setdefault((phase, colour), []).append(node)
    found = [tuple(part) for group in groups.values() for part in connected_parts(group) if len(part) >= smallest]
    return sorted(found, key=lambda part: part[0])


def group_pointwise(gm: GraphModule, context: Context) -> GraphModule:
    """Put each connected chain of pointwise ops of one shape into a submodule.

    Such a chain reads its inputs once and writes its outputs once when one kernel runs it, however long it is; run op by op,
    each value in between goes to memory and back. Needs functional ATen.
    """
    chosen = [
        nodes
        for nodes in pointwise_groups(gm)
        if context.apply(nodes, f"{len(nodes)} operations in one pass over memory")
    ]
    islands = tuple(Island(index=at, phase=at, nodes=nodes) for at, nodes in enumerate(chosen))
    parts = Partition(islands=islands, clauses={}, phases={}, edges=order_edges(gm.graph))
    return split(gm, parts, prefix="pointwise")


def _colour(node: Node) -> Any:
    import torch

    known = value(node)
    if not isinstance(known, torch.Tensor) or categorise(node) != "pointwise" or written(node):
        return None
    return (tuple(map(str, known.shape)), known.device)
