"""Which nodes a target runs: the fewest convex islands of supported nodes, found in linear time.

The phase of a node is the largest phase of what it depends on, plus one wherever support changes on the way; sources
start at 0 where supported and at -1 where not. Supported nodes of one phase form one island: whoever leaves it through
an unsupported node comes back in a higher phase, so the island is convex, and edges between islands lead upwards only,
so the islands together have no cycle. A path through k runs of supported nodes needs k islands, and the scheme uses as
many as the longest such path: it is minimal.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fxscope.passes.order import is_compute, order_edges
from fxscope.targets.target import Clause

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

Supports = Callable[["Node"], tuple[Clause, ...]]
Benefit = Callable[["GraphModule"], "float | None"]

# Ops that move no data and compute nothing: an island of these alone is not worth a launch.
NO_OPS = frozenset(
    ("view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "alias", "detach",
     "slice", "select", "split", "split_with_sizes", "as_strided", "lift_fresh_copy", "getitem", "sym_size", "clone")
)  # fmt: skip


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
    _move_to_users(nodes, clauses, edges, phases)
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


def _move_to_users(
    nodes: list[Node],
    clauses: dict[Node, tuple[Clause, ...]],
    edges: dict[Node, tuple[Node, ...]],
    phases: dict[Node, int],
) -> None:
    """Let views of parameters and constants go with the first island that uses them, instead of crossing from the first one.

    A transposed weight depends on nothing that runs, so its phase is 0 wherever it is used. Its users' phases are not below the
    one it moves to, and its inputs' stay below, so islands stay convex.
    """
    ordered = {before for after in edges.values() for before in after} | set(edges)
    rooted: dict[Node, None] = {}
    for node in nodes:
        movable = node not in clauses and node not in ordered and node.target is not operator.getitem
        free = all(used in rooted or used not in phases for used in node.all_input_nodes)
        if movable and free and (is_no_op(node) or not node.all_input_nodes):
            rooted[node] = None
    for node in reversed(rooted):
        users = [phases[user] for user in node.users if user in phases]
        if len(users) == len(node.users) and users and min(users) > phases[node] and min(users) % 2 == 0:
            phases[node] = min(users)


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
            failing = supports(node) or _escapes(node)
        if failing:
            clauses[node] = failing
    return clauses


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


def is_no_op(node: Node) -> bool:
    """Whether a node only renames data (view, clone, cat of one tensor), whatever its overload."""
    import torch

    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.split("::")[-1]
    if name == "cat":
        first = node.args[0] if node.args else ()
        return isinstance(first, list | tuple) and len(first) == 1
    return node.op in ("call_function", "call_method") and name in NO_OPS


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
