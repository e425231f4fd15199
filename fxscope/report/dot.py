"""A graph as a graphviz drawing: always valid dot, linear in size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fxscope.errors import UsageError
from fxscope.graph.arguments import call_text, node_refs
from fxscope.graph.heap import no_collections
from fxscope.graph.histogram import short_target
from fxscope.graph.modules import places
from fxscope.graph.navigate import neighbourhood
from fxscope.graph.records import Graph, Node
from fxscope.graph.table import shape_text
from fxscope.report.dot_style import KINDS, Quoted, colour_of, kind_of, quoted, shortened
from fxscope.words import count

_LABEL = 60  # characters of arguments that a node shows


def to_dot(
    graph: Graph,
    *,
    around: Sequence[str] = (),
    hops: int = 2,
    collapse: int | Collection[str] | None = None,
    highlight: Mapping[str, str] | None = None,
    sources: bool = False,
    clusters: bool = True,
    legend: bool = True,
    title: str = "",
) -> str:
    """The graph in the dot language, made with pydot.

    Args:
        graph: The graph; nested graphs are drawn as boxes of their own.
        around: Draw only what is near these nodes.
        hops: How near, in edges in either direction.
        collapse: Draw each module at this depth (1: ``layers``, 2: ``layers.0``) as one node, or each of these module paths.
        highlight: Label by node name: nodes with the same label get the same thick coloured border, named in the legend.
        sources: Show the user's line in each node.
        clusters: Draw a box around the nodes of each module.
        legend: Explain the colours.
        title: Heading; by default the graph's name and stage.

    Raises:
        UsageError: A node in ``around`` or a module in ``collapse`` is not in the graph; the nearest names are given.
    """
    import pydot

    heading = title or " ".join(part for part in (graph.name, graph.stage) if part)
    drawing = pydot.Dot(
        "fxscope",
        graph_type="digraph",
        rankdir="TB",
        fontname="Helvetica",
        label=quoted(heading),
        labelloc="t",
        tooltip=quoted(heading),
    )
    drawing.set_node_defaults(shape="box", style=quoted("filled,rounded"), fontname="Helvetica", fontsize="11")
    drawing.set_edge_defaults(fontname="Helvetica", fontsize="9", color=quoted("#555555"))
    picture = _Picture(graph, highlight or {}, sources)
    shown = _near(graph, around, hops) if around else None
    if collapse is not None and not isinstance(collapse, int):
        _require_modules(graph, collapse)
    with no_collections():
        picture.draw(drawing, shown, collapse, clusters)
        if legend:
            picture.legend(drawing)
        return str(drawing.to_string())


def _near(graph: Graph, around: Sequence[str], hops: int) -> set[str]:
    names = graph.by_name()
    for name in around:
        if name not in names:
            import difflib

            near = difflib.get_close_matches(name, names, 3)
            raise UsageError(
                f"no node {name} in graph '{graph.name}'" + (f"; did you mean {' or '.join(near)}?" if near else "")
            )
    return set(neighbourhood(graph, around, hops))


def _require_modules(graph: Graph, wanted: Collection[str]) -> None:
    known: dict[str, None] = {}
    for place in places(graph).values():
        parts = place.path.split(".") if place.path else []
        known |= dict.fromkeys(".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    for name in wanted:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 3) or list(known)[:3]
            raise UsageError(f"no module '{name}' in graph '{graph.name}'; there are {', '.join(near) or 'none'}")


class _Picture:
    """Draws one graph and the graphs nested in it into a pydot graph."""

    def __init__(self, graph: Graph, highlight: Mapping[str, str], sources: bool, prefix: str = "n") -> None:
        self.graph = graph
        self.highlight = highlight
        self.colours = colour_of(highlight)
        self.sources = sources
        self.prefix = prefix
        self.kinds: Counter[str] = Counter()
        self.ids: dict[str, str] = {}
        self.clusters = 0

    def draw(
        self, drawing: Any, shown: set[str] | None, collapse: int | Collection[str] | None, clusters: bool
    ) -> None:
        """Nodes, boxes and edges."""
        nodes = [node for node in self.graph.nodes if shown is None or node.name in shown]
        where = places(self.graph) if clusters or collapse is not None else {}
        paths = {node.name: where[node.name].path if where else "" for node in nodes}
        groups = _collapsed(nodes, paths, collapse)
        boxes: dict[str, Any] = {"": drawing}
        for group, members in groups.items():
            self._group(drawing, group, members)
        inner = _borrowed(nodes, paths) if clusters else {}
        for node in nodes:
            if node.name not in self.ids:
                box = self._box(boxes, inner.get(node.name, "")) if clusters and collapse is None else drawing
                self._node(box, node, shown)
        self._edges(drawing, nodes)
        callers: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            for name in dict.fromkeys(node.subgraphs):
                callers.setdefault(name, []).append(node.name)
        for name, nested in self.graph.subgraphs.items():
            shown_callers = [caller for caller in callers.get(name, ()) if caller in self.ids]
            if shown_callers or not callers:
                self._nested(drawing, name, nested, shown_callers)

    def _box(self, boxes: dict[str, Any], path: str) -> Any:
        """The cluster of a module, inside those of the modules around it."""
        import pydot

        if path not in boxes:
            parent, _, name = path.rpartition(".")
            box = pydot.Cluster(
                f"{self.prefix}{len(boxes)}",
                label=quoted(name),
                tooltip=quoted(path),
                color=quoted("#999999"),
                style="rounded",
                fontsize="10",
            )
            self._box(boxes, parent).add_subgraph(box)
            boxes[path] = box
        return boxes[path]

    def _node(self, box: Any, node: Node, shown: set[str] | None) -> None:
        import pydot

        kind = kind_of(node)
        self.kinds[kind] += 1
        identifier = self.ids[node.name] = f"{self.prefix}{len(self.ids)}"
        label, tooltip = self._label(node, shown)
        attributes = {"label": quoted(label), "tooltip": quoted(tooltip), "fillcolor": quoted(KINDS[kind][0])}
        attributes |= self._border(node.name)
        box.add_node(pydot.Node(identifier, **attributes))

    def _border(self, name: str) -> dict[str, Quoted]:
        if name not in self.highlight:
            return {}
        return {"color": quoted(self.colours[self.highlight[name]]), "penwidth": quoted("4")}

    def _label(self, node: Node, shown: set[str] | None) -> tuple[str, str]:
        call = node.target if node.op == "placeholder" else call_text(node)
        shape = shape_text(node)
        if node.op == "placeholder":
            name = node.original or node.target
            lines = [node.name] + ([shortened(name, _LABEL)] if name != node.name else []) + [shape]
        elif node.op == "output":
            lines = ["output"]
        else:
            target = f".{node.target}" if node.op == "call_method" else short_target(node.target)
            constants = ", ".join(_constants(node))
            lines = [node.name, shortened(target, _LABEL)] + ([shortened(constants, _LABEL)] if constants else [])
        if self.sources and node.source is not None:
            lines += [node.source.site, shortened(node.source.code, _LABEL)]
        if shown is not None:
            inputs = sum(1 for name in dict.fromkeys(node_refs(node)) if name not in shown)
            users = sum(1 for name in node.users if name not in shown)
            if inputs or users:
                lines.append(f"({count(inputs, 'input')}, {count(users, 'user')} not shown)")
        where = f"\n{node.source.site} {node.source.code}" if node.source else ""
        tooltip = f"{node.name} = {node.target}({call})\n{shape}{where}"
        return "\n".join(line for line in lines if line), tooltip

    def _group(self, drawing: Any, path: str, members: list[Node]) -> None:
        """One node in place of all nodes of a module."""
        import pydot

        identifier = f"{self.prefix}{len(self.ids)}"
        calls = [short_target(node.target) for node in members if node.op not in ("placeholder", "get_attr")]
        common = Counter(calls).most_common(3)
        number = f"{len(calls)} node{'s' * (len(calls) != 1)}"
        label = f"{path}\n{number}\n" + "\n".join(f"{count} × {target}" for target, count in common)
        attributes = {"label": quoted(label), "tooltip": quoted(path), "fillcolor": quoted(KINDS["group"][0])}
        for node in members:
            self.ids[node.name] = identifier
            attributes = attributes | self._border(node.name)
        self.ids[f"\0{path}"] = identifier  # keeps identifiers unique: one entry per drawn node at least
        self.kinds["group"] += 1
        drawing.add_node(pydot.Node(identifier, shape="box3d", **attributes))

    def _edges(self, drawing: Any, nodes: list[Node]) -> None:
        """One edge per pair of drawn nodes, with the shape of what flows."""
        import pydot

        drawn: set[tuple[str, str]] = set()
        by_name = self.graph.by_name()
        for node in nodes:
            end = self.ids[node.name]
            for name in dict.fromkeys(node_refs(node)):
                start = self.ids.get(name)
                if start is None or start == end or (start, end) in drawn:
                    continue
                drawn.add((start, end))
                label = shape_text(by_name[name])
                drawing.add_edge(pydot.Edge(start, end, **({"label": quoted(label)} if label else {})))

    def _nested(self, drawing: Any, name: str, nested: Graph, callers: list[str]) -> None:
        """A graph of a higher-order operator: a dashed box, and a dashed edge to what calls it."""
        import pydot

        prefix = f"{self.prefix}_{len(self.ids)}_{self.clusters}_"
        self.clusters += 1
        box = pydot.Cluster(f"{prefix}box", label=quoted(name), style=quoted("dashed,rounded"), color=quoted("#666666"))
        inner = _Picture(nested, {}, self.sources, prefix)
        inner.draw(box, None, None, clusters=False)
        self.kinds.update(inner.kinds)
        drawing.add_subgraph(box)
        for caller in callers:
            if nested.nodes:
                last = inner.ids[nested.nodes[-1].name]
                edge = pydot.Edge(last, self.ids[caller], style="dashed", label=quoted("calls"), dir="back")
                drawing.add_edge(edge)

    def legend(self, drawing: Any) -> None:
        """The colours that occur, and what the thick borders mean."""
        import pydot

        box = pydot.Cluster("legend", label="legend", style="rounded", color=quoted("#bbbbbb"), fontsize="10")
        entries: list[tuple[str, str, dict[str, Quoted]]]
        entries = [(KINDS[kind][1], KINDS[kind][0], {}) for kind in KINDS if self.kinds[kind]]
        entries += [
            (label, "#ffffff", {"color": quoted(colour), "penwidth": quoted("4")})
            for label, colour in self.colours.items()
        ]
        if not entries:
            return
        previous = None
        for position, (label, fill, more) in enumerate(entries):
            identifier = f"legend{position}"
            box.add_node(pydot.Node(identifier, label=quoted(label), fillcolor=quoted(fill), fontsize="9", **more))
            if previous is not None:
                box.add_edge(pydot.Edge(previous, identifier, style="invis"))
            previous = identifier
        drawing.add_subgraph(box)


def _constants(node: Node) -> Iterator[str]:
    """Arguments that are no other node's value."""
    from fxscope.graph.arguments import arg_text, refs

    for arg in node.args:
        if next(iter(refs(arg)), None) is None:
            yield arg_text(arg)
    for key, value in node.kwargs.items():
        if next(iter(refs(value)), None) is None:
            yield f"{key}={arg_text(value)}"


def _collapsed(
    nodes: list[Node], paths: dict[str, str], collapse: int | Collection[str] | None
) -> dict[str, list[Node]]:
    """Nodes that one group node stands for, by module path; a module's parameters are in it, the graph's inputs are not."""
    if collapse is None:
        return {}

    def group_of(path: str) -> str | None:
        parts = path.split(".") if path else []
        if isinstance(collapse, int):
            return ".".join(parts[:collapse]) if len(parts) >= collapse else None
        prefixes = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        return next((prefix for prefix in prefixes if prefix in collapse), None)

    groups: dict[str, list[Node]] = {}
    for node in nodes:
        group = group_of(paths[node.name])
        if group is not None and node.op != "output":
            groups.setdefault(group, []).append(node)
    return groups


def _borrowed(nodes: list[Node], paths: dict[str, str]) -> dict[str, str]:
    """Module paths, where an input without one takes that of its users if they agree: it is drawn beside them."""
    result = dict(paths)
    for node in nodes:
        if node.op in ("placeholder", "get_attr") and not result[node.name]:
            found = {paths[user] for user in node.users if user in paths}
            if len(found) == 1:
                result[node.name] = found.pop()
    return result
