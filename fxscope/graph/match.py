"""Which node of one graph is which node of another: the first half of a structural diff.

Certain pairs come first: nodes that compute the same from the same inputs (a hash over their whole history), told apart by the
user's line where several do. From there the pairing spreads along edges to nodes whose neighbours are paired, and what remains
is aligned in order of execution. Every step looks at each node and edge a bounded number of times.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Any

from fxscope.graph.alignment import align
from fxscope.graph.arguments import arg_text, node_refs
from fxscope.graph.cost import short_name
from fxscope.graph.records import Arg, Graph, Node, Ref, Symbolic, TensorMeta

_CANDIDATES = 8  # nodes looked at per neighbour: a value with thousands of users must not make the work quadratic
_NUMBERED = re.compile(r"(primals|tangents|arg|args|getitem|inputs?)_?\d+(_\d+)?")


def skeleton(arg: Arg) -> str:
    """An argument as text with every node replaced by ``%``: what is left of a call without its wiring."""
    return arg_text(arg, _unwired)


def _unwired(arg: Any) -> str:
    if isinstance(arg, Ref):
        return "%"
    if isinstance(arg, Symbolic):
        return "<%>" if arg.refs else f"<{arg.text}>"
    return repr(arg)


def plain_name(node: Node) -> str:
    """The operator without its dialect: ``add`` for ``operator.iadd``, ``.add_`` and ``torch.ops.aten.add.Tensor``."""
    name = short_name(node)
    if node.target.startswith("operator.i") and name not in ("invert", "is_", "is_not", "index"):
        name = name[1:]
    return name.rstrip("_")


class Side:
    """One of the two graphs, with what the matching asks for again and again."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self.by_name = graph.by_name()
        self.inputs: dict[str, list[str]] = {
            node.name: [name for name in node_refs(node) if name in self.by_name] for node in graph.nodes
        }
        self.skeletons: dict[str, str] = {
            node.name: skeleton(node.args) + (skeleton(node.kwargs) if node.kwargs else "") for node in graph.nodes
        }


class Matching:
    """Pairs found so far, in both directions."""

    def __init__(self, a: Graph, b: Graph) -> None:
        self.a, self.b = Side(a), Side(b)
        self.to_b: dict[str, str] = {}
        self.to_a: dict[str, str] = {}

    def pair(self, a: str, b: str) -> None:
        """Record that two nodes are the same."""
        self.to_b[a] = b
        self.to_a[b] = a

    def left(self) -> tuple[list[Node], list[Node]]:
        """What has no partner yet, in order."""
        return (
            [node for node in self.a.nodes if node.name not in self.to_b],
            [node for node in self.b.nodes if node.name not in self.to_a],
        )


def match(a: Graph, b: Graph) -> dict[str, str]:
    """Name in ``a`` to name in ``b`` of every node that is in both."""
    matching = Matching(a, b)
    _inputs(matching)
    _histories(matching)
    for exact in (True, False):
        for with_source in (True, False):
            _along_edges(matching, exact, with_source)
    _in_order(matching, lambda node: (node.op, node.target, _origin(node)))
    _along_edges(matching, exact=True, with_source=False)
    _in_order(matching, lambda node: (plain_name(node), _origin(node)) if node.source else None)
    _in_order(matching, lambda node: (node.op, node.target))
    _in_place_of(matching)
    return matching.to_b


def _origin(node: Node) -> Hashable:
    """Provenance that survives edits elsewhere in the user's file: function, text of the line, module."""
    return (node.source.function, node.source.code, node.module) if node.source else None


def _inputs(matching: Matching) -> None:
    """Placeholders and constants by what they are called in the program, then by name, then in order by type."""

    def named(node: Node) -> Hashable:
        return (node.op, node.original) if node.op in ("placeholder", "get_attr") and node.original else None

    def printed(node: Node) -> Hashable:
        if node.op not in ("placeholder", "get_attr") or _NUMBERED.fullmatch(node.target):
            return None
        return (node.op, node.target)

    def typed(node: Node) -> Hashable:
        if node.op not in ("placeholder", "get_attr"):
            return None
        return (node.op, node.role, _type(node))

    def loosely_typed(node: Node) -> Hashable:
        if node.op not in ("placeholder", "get_attr"):
            return None
        meta = node.meta
        return (node.op, node.role, (meta.dtype, len(meta.shape)) if isinstance(meta, TensorMeta) else None)

    _unique(matching, named)
    _unique(matching, printed)
    _in_order(matching, typed)
    _in_order(matching, loosely_typed)
    _unique(matching, lambda node: "output" if node.op == "output" else None)


def _type(node: Node) -> Hashable:
    meta = node.meta
    return (meta.dtype, meta.shape) if isinstance(meta, TensorMeta) else node.symbol


def _groups(nodes: Iterable[Node], key: Callable[[Node], Hashable]) -> dict[Hashable, list[str]]:
    found: dict[Hashable, list[str]] = defaultdict(list)
    for node in nodes:
        value = key(node)
        if value is not None:
            found[value].append(node.name)
    return found


def _unique(matching: Matching, key: Callable[[Node], Hashable]) -> None:
    """Pair what has the same key, where as many nodes of both graphs have it (the k-th with the k-th)."""
    left_a, left_b = matching.left()
    in_a, in_b = _groups(left_a, key), _groups(left_b, key)
    for value, names in in_a.items():
        if len(names) == len(in_b.get(value, ())):
            for name_a, name_b in zip(names, in_b[value], strict=True):
                matching.pair(name_a, name_b)


def _histories(matching: Matching) -> None:
    """Nodes with the same history: same call on the same inputs, all the way up to paired placeholders."""
    tokens: dict[Hashable, int] = {}

    def hashes(side: Side, shared: Callable[[str], Hashable]) -> dict[str, int]:
        result: dict[str, int] = {}
        for node in side.nodes:
            key: Hashable
            if node.op in ("placeholder", "get_attr"):
                key = shared(node.name)
            else:
                # A node that reads a later one (a malformed graph) hashes it as unknown.
                inputs = tuple(result.get(name, -1) for name in side.inputs[node.name])
                key = (node.op, node.target, side.skeletons[node.name], inputs)
            result[node.name] = tokens.setdefault(key, len(tokens))
        return result

    in_a = hashes(matching.a, lambda name: ("input", matching.to_b[name]) if name in matching.to_b else ("a", name))
    in_b = hashes(matching.b, lambda name: ("input", name) if name in matching.to_a else ("b", name))
    both = {
        **{(True, name): value for name, value in in_a.items()},
        **{(False, name): value for name, value in in_b.items()},
    }
    side_of = {id(node): True for node in matching.a.nodes} if matching.a.nodes is not matching.b.nodes else {}

    def history(node: Node) -> int:
        return both[(id(node) in side_of, node.name)]

    if not side_of:  # the very same graph twice
        for node in matching.a.nodes:
            matching.pair(node.name, node.name)
        return
    _unique(matching, lambda node: (history(node), _origin(node)) if node.source else None)
    _unique(matching, history)


def _along_edges(matching: Matching, exact: bool, with_source: bool) -> None:
    """Pair nodes whose operands (then: whose users) are paired and that call the same.

    Args:
        matching: What is paired so far.
        exact: Ask for the same target; else for the same operator in any dialect.
        with_source: Ask for the same origin, where both have one.
    """

    def kind(node: Node) -> Hashable:
        name = (node.op, node.target) if exact else plain_name(node)
        return (name, _origin(node)) if with_source else name

    users: dict[tuple[str, Hashable], deque[str]] = defaultdict(deque)
    for node in matching.a.nodes:
        if node.name not in matching.to_b and node.op not in ("placeholder", "get_attr"):
            for name in dict.fromkeys(matching.a.inputs[node.name]):
                users[(name, kind(node))].append(node.name)
    if not users:
        return
    for node in matching.b.nodes:
        if node.name not in matching.to_a and node.op not in ("placeholder", "get_attr"):
            best = _best_partner(matching, node, kind(node), users)
            if best is not None:
                matching.pair(best, node.name)
    _against_edges(matching, kind)


def _best_partner(
    matching: Matching, node: Node, kind: Hashable, users: dict[tuple[str, Hashable], deque[str]]
) -> str | None:
    """Of the unpaired nodes that read what this node reads, the one most like it."""
    best, best_score = None, 0
    for name in dict.fromkeys(matching.b.inputs[node.name]):
        partner = matching.to_a.get(name)
        waiting = users.get((partner, kind), deque()) if partner is not None else deque()
        while waiting and waiting[0] in matching.to_b:
            waiting.popleft()
        for candidate in islice(waiting, _CANDIDATES):
            if candidate not in matching.to_b:
                score = _likeness(matching, candidate, node.name)
                if score > best_score:
                    best, best_score = candidate, score
    return best


def _against_edges(matching: Matching, kind: Callable[[Node], Hashable]) -> None:
    """The other direction: the same operand of two paired nodes, last node first."""
    for node in reversed(matching.b.nodes):
        partner = matching.to_a.get(node.name)
        if partner is None:
            continue
        ours, theirs = matching.b.inputs[node.name], matching.a.inputs[partner]
        if len(ours) != len(theirs):
            continue
        for name_b, name_a in zip(ours, theirs, strict=True):
            if name_b in matching.to_a or name_a in matching.to_b:
                continue
            node_a, node_b = matching.a.by_name[name_a], matching.b.by_name[name_b]
            inputs = ("placeholder", "get_attr")
            if node_a.op not in inputs and node_b.op not in inputs and kind(node_a) == kind(node_b):
                matching.pair(name_a, name_b)


def _likeness(matching: Matching, name_a: str, name_b: str) -> int:
    """How alike two nodes are: operands paired with each other, same constants, same origin, same shape."""
    ours, theirs = matching.b.inputs[name_b], matching.a.inputs[name_a]
    same = sum(matching.to_a.get(one) == other for one, other in zip(ours, theirs, strict=False))
    if not same and not any(matching.to_a.get(one) in theirs for one in ours):
        return 0
    node_a, node_b = matching.a.by_name[name_a], matching.b.by_name[name_b]
    score = 1 + 8 * same - 4 * abs(len(ours) - len(theirs))
    score += 4 * (matching.a.skeletons[name_a] == matching.b.skeletons[name_b])
    score += 2 * (_origin(node_a) == _origin(node_b)) + (node_a.meta == node_b.meta)
    return max(score, 1)


def _in_order(matching: Matching, key: Callable[[Node], Hashable]) -> None:
    """Align what is left by its key, in order of execution."""
    left_a, left_b = matching.left()
    keyed_a = [(node.name, value) for node in left_a if (value := key(node)) is not None]
    keyed_b = [(node.name, value) for node in left_b if (value := key(node)) is not None]
    for one, other in align([value for _, value in keyed_a], [value for _, value in keyed_b]):
        matching.pair(keyed_a[one][0], keyed_b[other][0])


def _in_place_of(matching: Matching) -> None:
    """A node that stands where another stood: the same operands, and users that are paired. Its target was changed."""
    users: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    left_a, left_b = matching.left()
    for node in left_a:
        users[tuple(matching.a.inputs[node.name])].append(node.name)
    for node in left_b:
        inputs = tuple(matching.to_a.get(name) for name in matching.b.inputs[node.name])
        if not inputs or None in inputs:
            continue
        for candidate in users.get(inputs, [])[:_CANDIDATES]:
            if candidate in matching.to_b:
                continue
            after = {matching.to_a.get(name) for name in node.users}
            if after & set(matching.a.by_name[candidate].users):
                matching.pair(candidate, node.name)
                break
