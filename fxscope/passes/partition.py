"""Which nodes a target runs: the fewest convex islands of supported nodes, found in linear time.

The phase of a node is the largest phase of what it depends on, plus one wherever support changes on the way; sources
start at 0 where supported and at -1 where not. Supported nodes of one phase form one island: whoever leaves it through
an unsupported node comes back in a higher phase, so the island is convex, and edges between islands lead upwards only,
so the islands together have no cycle. A path through k runs of supported nodes needs k islands, and the scheme uses as
many as the longest such path: it is minimal.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fxscope.passes.moves import move_later, move_roots
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.order import is_compute, order_edges
from fxscope.targets.target import Clause

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

Supports = Callable[["Node"], tuple[Clause, ...]]
Benefit = Callable[["GraphModule"], "float | None"]

# In the names of calls into what another backend compiled: ExecuTorch, Triton kernels, TensorRT.
LOWERED = ("call_delegate", "triton_kernel_wrapper", "execute_engine")


@dataclass(frozen=True, kw_only=True, eq=False)
class Island:
    """A convex set of supported nodes.

    Attributes:
        phase: Islands run in the order of their phases.
        nodes: In program order.
        dropped: Why the island is not worth compiling, None where it is.
        benefit: Modelled seconds that it saves, None where nobody modelled it.
    """

    index: int
    phase: int
    nodes: tuple[Node, ...]
    dropped: str | None = None
    benefit: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """What goes where.

    Attributes:
        islands: By phase; dropped ones included, with their reason.
        clauses: For every compute node that is not supported, all the clauses it fails.
        phases: The phase of every compute node.
        edges: Order edges that data flow does not show (``order.order_edges``).
    """

    islands: tuple[Island, ...]
    clauses: dict[Node, tuple[Clause, ...]]
    phases: dict[Node, int]
    edges: dict[Node, tuple[Node, ...]] = field(default_factory=dict)

    @property
    def kept(self) -> tuple[Island, ...]:
        """The islands that are compiled."""
        return tuple(island for island in self.islands if island.dropped is None)


def partition(
    gm: GraphModule, supports: Supports, *, benefit: Benefit | None = None, components: bool = False
) -> Partition:
    """Find the islands of a graph.

    Args:
        gm: Any FX graph; its nodes keep their order inside an island.
        supports: All failing clauses of a node. It is asked about compute nodes only; a ``getitem`` follows its producer.
        benefit: Modelled seconds that an island saves over leaving it where it is; islands below zero are dropped.
        components: Split each phase into its weakly connected parts instead of one island per phase.
    """
    nodes = [node for node in gm.graph.nodes if is_compute(node)]
    edges = order_edges(gm.graph)
    clauses = _verdicts(nodes, supports)
    phases = assign_phases(nodes, clauses, edges)
    move_roots(nodes, clauses, edges, phases)
    move_later(nodes, clauses, edges, phases)
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        if node not in clauses:
            groups.setdefault(phases[node], []).append(node)
    islands: list[Island] = []
    for phase in sorted(groups):
        parts = connected_parts(groups[phase]) if components else [groups[phase]]
        islands += [
            Island(index=len(islands) + at, phase=phase, nodes=tuple(part), dropped=_no_work(part))
            for at, part in enumerate(parts)
        ]
    if benefit is not None:
        islands = [_judge(gm, island, benefit) for island in islands]
    return Partition(islands=tuple(islands), clauses=clauses, phases=phases, edges=edges)


def without(
    gm: GraphModule, found: Partition, removed: Collection[Node], *, why: str = "taken out by hand"
) -> Partition:
    """A partition with nodes taken out of its islands.

    What is left is partitioned again and split into connected parts: an island from whose middle a node goes would otherwise depend
    on itself through that node.

    Args:
        gm: The graph that was partitioned.
        found: Its partition; dropped islands are weighed again by nobody.
        removed: Nodes that shall stay outside.
        why: Goes into their clause.
    """
    clauses = {**found.clauses, **{node: (Clause("left-out", why),) for node in removed}}
    return partition(gm, lambda node: clauses.get(node, ()), components=True)


def assign_phases(
    nodes: list[Node], clauses: dict[Node, tuple[Clause, ...]], edges: dict[Node, tuple[Node, ...]]
) -> dict[Node, int]:
    """The phase of each compute node; even where supported, odd where not."""
    phases: dict[Node, int] = {}
    for node in nodes:
        supported = node not in clauses
        phase = 0 if supported else -1
        for before in (*node.all_input_nodes, *edges.get(node, ())):
            if before in phases:
                phase = max(phase, phases[before] + ((before not in clauses) != supported))
        phases[node] = phase
    return phases


def _verdicts(nodes: list[Node], supports: Supports) -> dict[Node, tuple[Clause, ...]]:
    clauses: dict[Node, tuple[Clause, ...]] = {}
    for node in nodes:
        producer = node.args[0] if node.target is operator.getitem and node.args else None
        if producer is not None and getattr(producer, "op", "placeholder") not in ("placeholder", "get_attr"):
            failing: tuple[Clause, ...] = ()
            if producer in clauses:
                failing = (Clause("producer", f"follows its producer {producer.name}"),)
        elif node.target is operator.getitem:
            failing = (Clause("op", "getitem of a graph input"),)
        else:
            failing = _lowered(node) or supports(node) or _escapes(node)
        if failing:
            clauses[node] = failing
    return clauses


def _lowered(node: Node) -> tuple[Clause, ...]:
    """What a target has taken already is left alone, whatever the next target supports."""
    import torch

    root = node.graph.owning_module
    if node.op == "call_module" and root is not None:
        child = root.get_submodule(str(node.target))
        taken = "fxscope.island" in getattr(child, "meta", ())
    else:
        taken = isinstance(node.target, torch._ops.HigherOrderOperator | torch._ops.OpOverload) and any(
            word in str(node.target) for word in LOWERED
        )
    return (Clause("lowered", f"{node.name} is an island of another target already"),) if taken else ()


def _escapes(node: Node) -> tuple[Clause, ...]:
    """Several outputs may cross a boundary only one by one, through getitem."""
    if isinstance(node.meta.get("val"), tuple | list):
        for user in node.users:
            if user.target is not operator.getitem:
                return (Clause("tuple", f"{user.name} uses all outputs at once; a boundary carries tensors only"),)
    return ()


def connected_parts(nodes: list[Node]) -> list[list[Node]]:
    """The weakly connected parts of a set of nodes, in program order."""
    parent = {node: node for node in nodes}

    def find(node: Node) -> Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in nodes:
        for used in node.all_input_nodes:
            if used in parent:
                parent[find(node)] = find(used)
    parts: dict[Node, list[Node]] = {}
    for node in nodes:
        parts.setdefault(find(node), []).append(node)
    return list(parts.values())


def _no_work(nodes: list[Node]) -> str | None:
    return "only views and copies: nothing to compute" if all(map(is_no_op, nodes)) else None


def _judge(gm: GraphModule, island: Island, benefit: Benefit) -> Island:
    from fxscope.passes.split import extract

    if island.dropped is not None:
        return island
    saved = benefit(extract(gm, island.nodes))
    if saved is None or saved >= 0:
        return replace(island, benefit=saved)
    return replace(island, benefit=saved, dropped=f"costs {-saved * 1e6:.1f} µs more than it saves (modelled)")
