"""Nodes that may run in a later island than the first possible one, moved where fewer bytes then cross island edges.

Phases stay valid: a node is never moved before what it depends on, nor behind its users, so islands stay convex and as few.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import TYPE_CHECKING

from fxscope.passes.analysis import value_bytes
from fxscope.passes.module import value
from fxscope.passes.no_ops import is_no_op

if TYPE_CHECKING:
    from torch.fx import Node

    from fxscope.targets.target import Clause

Phases = dict["Node", int]


def move_roots(
    nodes: list[Node], clauses: dict[Node, tuple[Clause, ...]], edges: dict[Node, tuple[Node, ...]], phases: Phases
) -> None:
    """Let views of parameters and constants go with the first island that uses them, instead of crossing from the first one.

    A transposed weight depends on nothing that runs, so its phase is 0 wherever it is used.
    """
    ordered = _ordered(edges)
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


def move_later(
    nodes: list[Node], clauses: dict[Node, tuple[Clause, ...]], edges: dict[Node, tuple[Node, ...]], phases: Phases
) -> list[Node]:
    """Move nodes to the last phase that their users allow where the bytes across island edges do not grow; linear time.

    A node whose small input is at hand in the later island, and whose large result only that island uses, is better computed there:
    the input crosses instead of the result. A step of a chain that is as good in either place goes along, since the gain may be at the
    chain's other end; where the whole gains nothing, all stays.

    Returns:
        What was moved.
    """
    movable = [node for node in nodes if node not in clauses and _latest(node, clauses, phases) > phases[node]]
    if not movable:  # what moves later moves behind something that can: nothing to count
        return []
    asap = dict(phases)
    gain = 0
    ordered = _ordered(edges)
    readers: dict[Node, Counter[int | None]] = {}  # of a value: in which islands it is read, None for outside of all
    for node in nodes:
        for used in node.all_input_nodes:
            readers.setdefault(used, Counter())[_island(node, clauses, phases)] += 1
        for user in node.users:
            if user not in phases:
                readers.setdefault(node, Counter())[None] += 1
    moved = []
    for node in reversed(nodes):
        if node in clauses or node in ordered or _several(node):
            continue
        now, last = phases[node], _latest(node, clauses, phases)
        if last <= now:
            continue
        values = [used for used in (node, *node.all_input_nodes) if used.op != "get_attr"]
        before = sum(_crossing(used, readers, clauses, phases) for used in values)
        _place(node, last, readers, phases)
        saved = before - sum(_crossing(used, readers, clauses, phases) for used in values)
        if saved < 0:
            _place(node, now, readers, phases)
        else:
            moved.append(node)
            gain += saved
    if gain:
        return moved
    phases.update(asap)
    return []


def _latest(node: Node, clauses: dict[Node, tuple[Clause, ...]], phases: Phases) -> int:
    """The last phase that a supported node's users allow."""
    return min((phases[user] - (user in clauses) for user in node.users if user in phases), default=-1)


def _place(node: Node, phase: int, readers: dict[Node, Counter[int | None]], phases: Phases) -> None:
    for used in node.all_input_nodes:
        count = readers[used]
        count[phases[node]] -= 1
        if not count[phases[node]]:
            del count[phases[node]]
        count[phase] += 1
    phases[node] = phase


def _crossing(
    node: Node, readers: dict[Node, Counter[int | None]], clauses: dict[Node, tuple[Clause, ...]], phases: Phases
) -> int:
    """Bytes of a value that cross island edges: once into every island that reads it from outside, once out of its own."""
    home = _island(node, clauses, phases)
    outside = [island for island in readers.get(node, ()) if island is None or island != home]
    entered = sum(island is not None for island in outside)
    return value_bytes(value(node)) * (entered + (home is not None and bool(outside)))


def _island(node: Node, clauses: dict[Node, tuple[Clause, ...]], phases: Phases) -> int | None:
    return phases[node] if node in phases and node not in clauses else None


def _several(node: Node) -> bool:
    """Whether a node and its getitems belong together."""
    return node.target is operator.getitem or any(user.target is operator.getitem for user in node.users)


def _ordered(edges: dict[Node, tuple[Node, ...]]) -> set[Node]:
    return {before for after in edges.values() for before in after} | set(edges)
