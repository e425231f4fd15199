"""A graph as table rows: one per node, or one per run of nodes of the same module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from fxscope.graph.arguments import call_text, node_refs
from fxscope.graph.diff import Change
from fxscope.graph.histogram import short_target
from fxscope.graph.modules import Place
from fxscope.graph.records import Graph, Node
from fxscope.graph.table import shape_text

from .spans import Cell, Span, plain
from .widgets.diff_view import DiffRow
from .widgets.filtering import Field
from .widgets.virtual_table import Column

_SELF = re.compile(r"^L\['self'\]\.")
_SIGN = {"placeholder": "\u25c7", "get_attr": "\u25c7", "output": "\u25c6", "call_module": "\u25a3"}


def what(node: Node) -> str:
    """What a node does, short: ``aten.add.Tensor``, ``.view``; of an input its role."""
    if node.op in ("placeholder", "get_attr"):
        return node.role or node.op
    if node.op == "output":
        return "output"
    return f".{node.target}" if node.op == "call_method" else short_target(node.target)


def inputs_of(node: Node) -> list[str]:
    """Names of the nodes that a node uses, each once, in order."""
    return list(dict.fromkeys(node_refs(node)))


def title(node: Node) -> str:
    """A node's name; of an input the name that the user knows, where the log tells it: ``layer1.0.conv1.weight``."""
    if node.op not in ("placeholder", "get_attr") or not node.original:
        return node.name
    return _SELF.sub("", node.original)


def node_text(node: Node) -> str:
    """One line for a node: ``conv2d: f32[8, 16] = F.conv2d(x, weight)``."""
    meta = shape_text(node)
    head = f"{node.name}: {meta}" if meta else node.name
    if node.op in ("placeholder", "get_attr"):
        return f"{head} = {what(node)} {node.original or node.target}"
    return f"{head} = {what(node)}({call_text(node)})"


class GraphRows:
    """Row provider over the nodes of a graph."""

    columns: Sequence[Column] = (
        Column("", 0, keep=6, limit=18, least=6),
        Column("node", keep=9, limit=36, least=15, middle=True),
        Column("op", keep=8, limit=32, least=12),
        Column("value", keep=7, limit=34, least=15),
        Column("users", right=True, keep=2),
        Column("inputs", keep=1, flex=True),
        Column("source", keep=4, limit=26, middle=True),
    )

    def __init__(self, graph: Graph, gutter: Sequence[str]) -> None:
        self.graph = graph
        self.gutter = gutter
        self.positions = {node.name: number for number, node in enumerate(graph.nodes)}

    def count(self) -> int:
        """Number of nodes."""
        return len(self.graph.nodes)

    def node(self, index: int) -> Node | None:
        """The node of a row."""
        return self.graph.nodes[index]

    def find(self, key: object) -> int | None:
        """Row of a node by its name."""
        return self.positions.get(str(key))

    @property
    def fields(self) -> Mapping[str, Field]:
        """What filters can be about: ``op:conv2d``, ``value:f16``, ``module:encoder``, ``line:42``, ``src:model.py``."""
        nodes = self.graph.nodes

        def source(row: int) -> tuple[str, int]:
            where = nodes[row].source
            return (where.site.lower(), where.line) if where else ("", -1)

        return {
            "op": lambda row, word: word in what(nodes[row]).lower(),
            "value": lambda row, word: word in shape_text(nodes[row]).lower(),
            "module": lambda row, word: word in (nodes[row].module or "").lower(),
            "line": lambda row, word: word == str(source(row)[1]),
            "src": lambda row, word: word in source(row)[0],
        }

    def neighbours(self, node: Node) -> dict[int, Span]:
        """Signs of the rows of a node's inputs and users."""
        signs: dict[int, Span] = {}
        for sign, names in (("\u2192", node.users), ("\u2190", inputs_of(node))):
            for name in names:
                at = self.find(name)
                if at is not None:
                    signs[at] = (sign, "accent")
        return signs

    def row(self, index: int) -> Sequence[Cell]:
        """Cells of a node."""
        node = self.graph.nodes[index]
        gutter = self.gutter[index] if index < len(self.gutter) else ""
        name_style = "dim" if node.op in ("placeholder", "get_attr") else ""
        source = node.source.site if node.source else "" if title(node) != node.name else node.description
        return (
            (gutter, "dim"),
            (f"{_SIGN.get(node.op, '')}{' ' if node.op in _SIGN else ''}{title(node)}", name_style),
            (what(node), "name" if node.op.startswith("call") else "dim"),
            (shape_text(node), "type"),
            (
                str(len(node.users)) if node.op != "output" else "",
                "dim" if node.users or node.op == "output" else "warn",
            ),
            (", ".join(inputs_of(node)), "dim"),
            (source, "dim"),
        )

    def detail(self, index: int) -> list[Cell]:
        """A node in full, for where the table has no room: what it computes, and from which line of the program."""
        node = self.graph.nodes[index]
        lines: list[Cell] = [node_text(node)]
        if node.source is not None:
            where: list[Span] = [(node.source.site, "name"), (f"  {node.source.code.strip()}", "string")]
            lines.append([*where, (f"  {node.module}" if node.module else "", "dim")])
        elif node.description:
            lines.append((node.description, "dim"))
        return lines

    def text(self, index: int) -> str:
        """Name, op, shape, module and source, for the filter."""
        node = self.graph.nodes[index]
        source = node.source
        where = f"{source.site} {source.code}" if source else ""
        return f"{node.name} {node.op} {node.target} {shape_text(node)} {title(node)} {node.module or ''} {where}"

    def key(self, index: int) -> object:
        """The node's name."""
        return self.graph.nodes[index].name


INPUTS = "(inputs)"


class Run(NamedTuple):
    """Consecutive nodes of one module."""

    module: str
    start: int
    stop: int


class ModuleRows(GraphRows):
    """Row provider that shows each run of nodes of one module as one row; single nodes stay."""

    columns = (
        Column("module or node", keep=9, limit=44),
        Column("nodes", right=True, keep=8),
        Column("ops", keep=5, flex=True),
        Column("value", keep=6, limit=34),
    )

    def __init__(self, nodes: GraphRows, places: Mapping[str, Place], depth: int, unfolded: Set[int]) -> None:
        graph = nodes.graph
        self.graph, self.gutter, self.positions = graph, nodes.gutter, nodes.positions
        self._rows: list[Run | int] = []
        self._row_of: list[int] = []  # of each node
        for run in runs(graph, places, depth):
            if run.stop - run.start == 1 or not run.module or run.start in unfolded:
                self._rows.extend(range(run.start, run.stop))
            else:
                self._rows.append(run)
        for number, row in enumerate(self._rows):
            self._row_of.extend([number] * (row.stop - row.start if isinstance(row, Run) else 1))

    @property
    def fields(self) -> Mapping[str, Field]:
        """None: a row is many nodes."""
        return {}

    def count(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def at(self, index: int) -> Run | None:
        """The run of a row, None for a single node."""
        row = self._rows[index]
        return row if isinstance(row, Run) else None

    def node(self, index: int) -> Node | None:
        """The node of a row; of a run its last, whose value leaves it."""
        row = self._rows[index]
        return self.graph.nodes[row.stop - 1 if isinstance(row, Run) else row]

    def find(self, key: object) -> int | None:
        """Row that shows a node."""
        position = self.positions.get(str(key))
        return None if position is None else self._row_of[position]

    def row(self, index: int) -> Sequence[Cell]:
        """Cells of a run or a node."""
        row = self._rows[index]
        if not isinstance(row, Run):
            node = self.graph.nodes[row]
            return ((f"  {title(node)}", "dim"), "", (what(node), "name"), (shape_text(node), "type"))
        counts: dict[str, int] = {}
        for node in self.graph.nodes[row.start : row.stop]:
            counts[what(node)] = counts.get(what(node), 0) + 1
        top = sorted(counts.items(), key=lambda item: -item[1])
        ops = ", ".join(f"{name} \u00d7{number}" if number > 1 else name for name, number in top)
        last = self.graph.nodes[row.stop - 1]
        return (
            [("\u25b8 ", "dim"), (row.module, "strong")],
            str(row.stop - row.start),
            (ops, "name"),
            (shape_text(last), "type"),
        )

    def detail(self, index: int) -> list[Cell]:
        """A module and its ops; a node in full."""
        row = self._rows[index]
        if not isinstance(row, Run):
            return super().detail(row)
        name, number, ops, _ = self.row(index)
        return [name, [(f"{plain(number)} nodes: ", "dim"), (plain(ops), "name")]]

    def text(self, index: int) -> str:
        """Module and all its nodes, for the filter."""
        row = self._rows[index]
        if isinstance(row, Run):
            return f"{row.module} " + " ".join(
                f"{node.name} {node.target}" for node in self.graph.nodes[row.start : row.stop]
            )
        return super().text(row)

    def key(self, index: int) -> object:
        """The node's name; of a run its first."""
        row = self._rows[index]
        return self.graph.nodes[row.start if isinstance(row, Run) else row].name


def runs(graph: Graph, places: Mapping[str, Place], depth: int) -> list[Run]:
    """Consecutive calls whose modules agree in the first ``depth`` parts of their path; inputs are a run too."""
    found: list[Run] = []
    for number, node in enumerate(graph.nodes):
        if node.op in ("placeholder", "get_attr"):
            if found and found[-1].module == INPUTS:
                found[-1] = found[-1]._replace(stop=number + 1)
            else:
                found.append(Run(INPUTS, number, number + 1))
            continue
        place = places.get(node.name) if node.op.startswith("call") else None
        module = ".".join(place.path.split(".")[:depth]) if place is not None else ""
        if found and module and found[-1].module == module:
            found[-1] = found[-1]._replace(stop=number + 1)
        else:
            found.append(Run(module, number, number + 1))
    return found


def deepest(places: Mapping[str, Place]) -> int:
    """Parts of the longest module path."""
    return max((place.path.count(".") + 1 for place in places.values() if place.path), default=0)


def diff_rows(a: Graph, b: Graph, pairs: Mapping[str, str], changed: Mapping[str, Change]) -> list[DiffRow]:
    """Rows of two graphs in step, in the order of the second.

    Args:
        a: Before.
        b: After.
        pairs: Name in ``a`` to name in ``b`` of nodes that correspond.
        changed: By name in ``b``: paired nodes that are not the same. Names alone are no difference, so of an equal pair
            both sides show their own.
    """
    partner = {right: left for left, right in pairs.items()}
    position = {node.name: number for number, node in enumerate(a.nodes)}
    rows: list[DiffRow] = []
    at = 0
    for node in b.nodes:
        left = partner.get(node.name)
        if left is None:
            rows.append(DiffRow(None, node_text(node), "+"))
            continue
        stop = position[left]
        rows.extend(DiffRow(node_text(gone), None, "-") for gone in a.nodes[at:stop] if gone.name not in pairs)
        at = max(at, stop)
        rows.append(DiffRow(node_text(a.nodes[stop]), node_text(node), "~" if node.name in changed else " "))
    rows.extend(DiffRow(node_text(gone), None, "-") for gone in a.nodes[at:] if gone.name not in pairs)
    return rows
