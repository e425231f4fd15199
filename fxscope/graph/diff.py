"""Structural diff of two graphs, and its application. Names do not count: a renumbered graph is the same graph."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import msgspec

from fxscope.graph.arguments import call_text, map_arg, refs, rename, to_json
from fxscope.graph.heap import no_collections
from fxscope.graph.match import match, skeleton
from fxscope.graph.parse import link
from fxscope.graph.records import Arg, Graph, Node, Ref, Symbolic, TensorMeta
from fxscope.graph.table import meta_text
from fxscope.words import count

_STRUCTURE = ("op", "target", "args", "kwargs", "meta", "symbol", "subgraphs")
_PROVENANCE = ("source", "module", "role", "original", "description")


class Change(msgspec.Struct, kw_only=True):
    """A node that is in both graphs, and differs.

    Attributes:
        a: Its name in the first graph.
        b: Its name in the second.
        what: In what it differs: ``target`` (another operator), ``arguments`` (constants), ``inputs`` (wiring), ``shape``,
            ``dtype``, ``layout`` (strides), ``device``.
        sizes_only: It differs in sizes alone: shapes, and numbers among its arguments that are sizes.
        before: Fields that differ, as in the first graph.
        after: The same, as in the second.
    """

    a: str
    b: str
    what: list[str]
    sizes_only: bool = False
    before: dict[str, Any] = msgspec.field(default_factory=dict)
    after: dict[str, Any] = msgspec.field(default_factory=dict)


class GraphDiff(msgspec.Struct, kw_only=True):
    """What makes the second graph out of the first.

    Attributes:
        pairs: Name in the first graph to name in the second, of every node in both.
        added: Nodes that only the second graph has, as they are there.
        removed: Names of nodes that only the first graph has.
        changed: Nodes that call something else, with other constants, or give another shape or type.
        rewired: Nodes that read other nodes than before; such a node may be in ``changed`` too.
        moved: Nodes (names in the second graph) whose place in the order of execution changed, the fewest that explain it.
        provenance: Differences in source lines, modules and roles, which are none of structure.
        subgraphs: Diffs of nested graphs that differ, by name.
        added_subgraphs: Nested graphs that only the second has.
        removed_subgraphs: Names of nested graphs that only the first has.
        order: Names of the second graph's nodes in order.
    """

    pairs: dict[str, str] = msgspec.field(default_factory=dict)
    added: list[Node] = msgspec.field(default_factory=list)
    removed: list[str] = msgspec.field(default_factory=list)
    changed: list[Change] = msgspec.field(default_factory=list)
    rewired: list[Change] = msgspec.field(default_factory=list)
    moved: list[str] = msgspec.field(default_factory=list)
    provenance: list[Change] = msgspec.field(default_factory=list)
    subgraphs: dict[str, GraphDiff] = msgspec.field(default_factory=dict)
    added_subgraphs: dict[str, Graph] = msgspec.field(default_factory=dict)
    removed_subgraphs: list[str] = msgspec.field(default_factory=list)
    order: list[str] = msgspec.field(default_factory=list)
    head: dict[str, Any] = msgspec.field(default_factory=dict)  # name, stage, problems and text of the second graph

    @property
    def empty(self) -> bool:
        """Whether the graphs are the same up to names and provenance."""
        here = self.added or self.removed or self.changed or self.rewired or self.moved
        return not (here or self.subgraphs or self.added_subgraphs or self.removed_subgraphs)

    @property
    def renamed(self) -> dict[str, str]:
        """Pairs whose names differ; no change."""
        return {a: b for a, b in self.pairs.items() if a != b}

    def besides_sizes(self) -> list[Change]:
        """Changes that are more than another size: what else a recompile for another shape changed."""
        unique = {change.b: change for change in [*self.changed, *self.rewired]}
        return [change for change in unique.values() if not change.sizes_only]

    def summary(self) -> str:
        """One line: ``2 added, 1 removed, 57 changed (56 in size only), 1 rewired``."""
        if self.empty:
            return "no difference"
        sizes = sum(change.sizes_only for change in self.changed)
        parts = [f"{len(self.added)} added", f"{len(self.removed)} removed"]
        devices = sum(change.what == ["device"] for change in self.changed)
        notes = [f"{sizes} in size only"] * bool(sizes) + [f"{devices} in device only"] * bool(devices)
        parts.append(f"{len(self.changed)} changed" + (f" ({', '.join(notes)})" if notes else ""))
        parts += [f"{len(self.rewired)} rewired", *[f"{len(self.moved)} moved"] * bool(self.moved)]
        nested = len(self.subgraphs) + len(self.added_subgraphs) + len(self.removed_subgraphs)
        parts += [count(nested, "nested graph differs", "nested graphs differ")] * bool(nested)
        return ", ".join(parts)

    def lines(self) -> Iterator[str]:
        """The diff as text: ``-`` removed, ``+`` added, ``~`` changed, ``>`` rewired, ``^`` moved; nested graphs behind."""
        for name in self.removed:
            yield f"- {name}"
        for node in self.added:
            yield f"+ {node.name} = {node.target}({call_text(node)})  {meta_text(node.meta)}".rstrip()
        seen = set()
        for change in [*self.changed, *self.rewired]:
            if change.b in seen:
                continue
            seen.add(change.b)
            mark = "~" if change.what != ["inputs"] else ">"
            both = change.a if change.a == change.b else f"{change.a} → {change.b}"
            yield f"{mark} {both}: {', '.join(change.what)}: {_values(change.before)} → {_values(change.after)}"
        for name in self.moved:
            yield f"^ {name} moved"
        yield from (f"- {name}: the whole graph" for name in self.removed_subgraphs)
        yield from (f"+ {name}: a graph of {count(len(g.nodes), 'node')}" for name, g in self.added_subgraphs.items())
        for name, nested in self.subgraphs.items():
            yield from (f"{name}: {line}" for line in nested.lines())

    def to_json(self) -> dict[str, Any]:
        """As JSON: names, and for changes what differs before and after."""
        return {
            "added": [node.name for node in self.added],
            "removed": list(self.removed),
            "changed": [_change_json(change) for change in self.changed],
            "rewired": [_change_json(change) for change in self.rewired],
            "moved": list(self.moved),
            "renamed": self.renamed,
            "subgraphs": {name: nested.to_json() for name, nested in self.subgraphs.items()},
            "added_subgraphs": list(self.added_subgraphs),
            "removed_subgraphs": list(self.removed_subgraphs),
        }


def _values(fields: dict[str, Any]) -> str:
    parts = []
    for key, value in fields.items():
        if key == "meta":
            parts.append(meta_text(value) or "?")
        elif key in ("args", "kwargs"):
            parts.append(call_text(Node(name="", op="call_function", target="", **{key: value})))
        else:
            parts.append(str(value))
    return " ".join(part for part in parts if part)


def _change_json(change: Change) -> dict[str, Any]:
    def field(key: str, value: Any) -> Any:
        return to_json(value) if key in ("args", "kwargs") else msgspec.to_builtins(value)

    return {
        "node": change.b,
        "was": change.a,
        "what": change.what,
        "sizes_only": change.sizes_only,
        "before": {key: field(key, value) for key, value in change.before.items()},
        "after": {key: field(key, value) for key, value in change.after.items()},
    }


def diff_graphs(a: Graph, b: Graph) -> GraphDiff:
    """What must be done to ``a`` to get ``b``."""
    with no_collections():
        return _diff(a, b)


def _diff(a: Graph, b: Graph) -> GraphDiff:
    pairs = match(a, b)
    nodes_a, nodes_b = a.by_name(), b.by_name()
    found = set(pairs.values())
    result = GraphDiff(
        pairs=pairs,
        added=[node for node in b.nodes if node.name not in found],
        removed=[node.name for node in a.nodes if node.name not in pairs],
        order=[node.name for node in b.nodes],
        head={"name": b.name, "stage": b.stage, "problems": b.problems, "text": b.text},
    )
    sizes = {name for side in (nodes_a, nodes_b) for name, node in side.items() if _is_size(node)}
    for name_a, name_b in pairs.items():
        change = _compare(nodes_a[name_a], nodes_b[name_b], pairs, sizes)
        if change is not None:
            if change.what != ["inputs"]:
                result.changed.append(change)
            if "inputs" in change.what:
                result.rewired.append(change)
        # What an input's argument is called is a name like others.
        fields = (*_PROVENANCE, "target") if nodes_b[name_b].op == "placeholder" else _PROVENANCE
        provenance = _fields(nodes_a[name_a], nodes_b[name_b], fields)
        if provenance is not None:
            result.provenance.append(provenance)
    result.moved = _moved([nodes_b[pairs[node.name]] for node in a.nodes if node.name in pairs], result.order)
    for name, nested in b.subgraphs.items():
        if name not in a.subgraphs:
            result.added_subgraphs[name] = nested
        else:
            inner = _diff(a.subgraphs[name], nested)
            if not inner.empty or inner.renamed or inner.provenance or inner.head != _head(a.subgraphs[name]):
                result.subgraphs[name] = inner
    result.removed_subgraphs = [name for name in a.subgraphs if name not in b.subgraphs]
    return result


def _head(graph: Graph) -> dict[str, Any]:
    return {"name": graph.name, "stage": graph.stage, "problems": graph.problems, "text": graph.text}


def _is_size(node: Node) -> bool:
    return node.role == "symbol" or node.symbol is not None


def _fields(a: Node, b: Node, names: tuple[str, ...]) -> Change | None:
    different = [name for name in names if getattr(a, name) != getattr(b, name)]
    if not different:
        return None
    return Change(
        a=a.name,
        b=b.name,
        what=different,
        before={name: getattr(a, name) for name in different},
        after={name: getattr(b, name) for name in different},
    )


def _compare(a: Node, b: Node, pairs: dict[str, str], sizes: set[str]) -> Change | None:
    """How two paired nodes differ; None where they do not."""
    args, kwargs = rename(a.args, pairs), rename(a.kwargs, pairs)
    same_call = args == b.args and kwargs == b.kwargs and _types(args) == _types(b.args)
    what: list[str] = []
    if a.op != b.op or (a.target != b.target and a.op != "placeholder") or a.subgraphs != b.subgraphs:
        what.append("target")
    if not same_call:
        if _constants(args, kwargs) != _constants(b.args, b.kwargs):
            what.append("arguments")
        if [*refs(args), *refs(kwargs)] != [*refs(b.args), *refs(b.kwargs)]:
            what.append("inputs")
        if not what:
            what.append("arguments")
    what += _meta_differences(a, b)
    if not what:
        return None
    # A rewired node may read the same names, of other nodes: its arguments are stored though they compare equal.
    change = _fields(a, b, _STRUCTURE) or Change(a=a.name, b=b.name, what=[])
    change.what = what
    for fields, node in ((change.before, a), (change.after, b)):
        fields.pop("args", None)
        fields.pop("kwargs", None)
        if not same_call:
            fields.update({"args": node.args, "kwargs": node.kwargs})
    calls_same = "target" not in what and _sizeless(args, sizes) == _sizeless(b.args, sizes)
    change.sizes_only = calls_same and _sizeless(kwargs, sizes) == _sizeless(b.kwargs, sizes)
    change.sizes_only = change.sizes_only and not {"dtype", "device"} & set(what)
    return change


def _types(arg: Arg) -> Any:
    """Types of the constants, because 1 == True == 1.0 in Python."""
    if isinstance(arg, (tuple, list)):
        return [type(arg), *map(_types, arg)]
    return type(arg)


def _constants(args: Arg, kwargs: Arg) -> tuple[str, str]:
    return skeleton(args), skeleton(kwargs)


def _sizeless(arg: Arg, sizes: set[str]) -> str:
    """A call with everything that can be a size struck out: integers, symbols, nodes that are symbols."""

    def strike(leaf: Ref | Symbolic) -> Any:
        if isinstance(leaf, Ref):
            return 0 if leaf.node in sizes else leaf
        return 0 if leaf.refs else leaf

    def numbers(value: Arg) -> Arg:
        if isinstance(value, (tuple, list)):
            return type(value)(map(numbers, value))
        if isinstance(value, slice):
            return slice(*(None if end is None else numbers(end) for end in (value.start, value.stop, value.step)))
        return 0 if isinstance(value, int) and not isinstance(value, bool) else value

    struck = numbers(map_arg(arg, strike))
    # repr, not skeleton: here the wiring counts.
    return repr(struck)


def _meta_differences(a: Node, b: Node) -> list[str]:
    if a.meta == b.meta and a.symbol == b.symbol:
        return []
    one, other = a.meta, b.meta
    if not isinstance(one, TensorMeta) or not isinstance(other, TensorMeta):
        return ["shape"]
    differences: list[str] = []
    if one.shape != other.shape:
        differences.append("shape")
    if one.dtype != other.dtype:
        differences.append("dtype")
    if one.shape == other.shape and one.stride != other.stride:
        differences.append("layout")
    if one.device != other.device:
        differences.append("device")
    return differences or ["shape"]


def _moved(paired: list[Node], order: list[str]) -> list[str]:
    """The fewest nodes that must move so that the others keep their order (all but a longest increasing run)."""
    place = {name: position for position, name in enumerate(order)}
    tails: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    positions = [place[node.name] for node in paired]
    for index, position in enumerate(positions):
        where = bisect_left(tails, position)
        back.append(ends[where - 1] if where else -1)
        if where == len(tails):
            tails.append(position)
            ends.append(index)
        else:
            tails[where], ends[where] = position, index
    keep: set[int] = set()
    index = ends[-1] if ends else -1
    while index >= 0:
        keep.add(index)
        index = back[index]
    return [node.name for index, node in enumerate(paired) if index not in keep]


def apply_diff(a: Graph, diff: GraphDiff) -> Graph:
    """The second graph, made from the first and the diff. ``a`` stays as it is."""
    made: dict[str, Node] = {node.name: msgspec.structs.replace(node) for node in diff.added}
    by_name = a.by_name()
    changes: dict[str, dict[str, Any]] = {}
    for change in [*diff.changed, *diff.rewired, *diff.provenance]:
        changes.setdefault(change.b, {}).update(change.after)
    for name_a, name_b in diff.pairs.items():
        node = by_name[name_a]
        fields = changes.get(name_b, {})
        fields.setdefault("args", rename(node.args, diff.pairs))
        fields.setdefault("kwargs", rename(node.kwargs, diff.pairs))
        made[name_b] = msgspec.structs.replace(node, name=name_b, **fields)
    subgraphs: dict[str, Graph] = {}
    for name, nested in a.subgraphs.items():
        if name not in diff.removed_subgraphs:
            subgraphs[name] = apply_diff(nested, diff.subgraphs[name]) if name in diff.subgraphs else nested
    subgraphs.update(diff.added_subgraphs)
    return link(Graph(nodes=[made[name] for name in diff.order], subgraphs=subgraphs, **diff.head))
