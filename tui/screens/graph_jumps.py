"""Jumps in a graph: from a node to its inputs, its users and its subgraphs."""

from __future__ import annotations

from typing import Any

from fxscope.graph.records import Node
from fxscope.graph.table import shape_text
from fxscope.words import count

from ..graph_rows import GraphRows, inputs_of, title, what
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .graph_comparison import ComparisonView
from .pick import PickScreen


class JumpsView(ComparisonView):
    """A view of one graph whose cursor is on a node."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[int, GraphRows] = {}  # by the graph's id; the graph and its subgraphs

    @property
    def table(self) -> VirtualTable:
        """The nodes."""
        return self.query_one("#graph-table", VirtualTable)

    def node(self) -> Node | None:
        """The node under the cursor."""
        rows = self.table.provider
        at = self.table.selected
        return rows.node(at) if at is not None and isinstance(rows, GraphRows) else None

    def to_node(self, name: str) -> None:
        """Put the cursor on a node."""
        rows = self.table.provider
        if isinstance(rows, GraphRows):
            at = rows.find(name)
            if at is not None and not self.table.select(at):
                self.table.filter("")
                self.table.select(at)

    def list_neighbours(self) -> None:
        """Inputs, users and subgraphs of the node under the cursor, to jump to."""
        node, rows = self.node(), self.table.provider
        if node is None or not isinstance(rows, GraphRows):
            return
        graph, positions = rows.graph, rows.positions  # of what is shown: another graph may be on its way
        names = [("input", name) for name in inputs_of(node)] + [("user", name) for name in node.users]
        by_name = {name: graph.nodes[positions[name]] for _, name in names if name in positions}
        cells: list[list[Any]] = [
            [
                ("\u2190 input", "dim") if kind == "input" else ("\u2192 user", "dim"),
                name,
                (what(by_name[name]), "name") if name in by_name else "",
                (shape_text(by_name[name]), "type") if name in by_name else "",
            ]
            for kind, name in names
        ]
        for name in node.subgraphs:
            cells.append(
                [("\u21b3 subgraph", "dim"), name, (count(len(graph.subgraphs[name].nodes), "node"), "dim"), ""]
                if name in graph.subgraphs
                else [("\u21b3 subgraph", "dim"), name, "", ""]
            )
            names.append(("subgraph", name))
        if not cells:
            self.notify(f"{node.name} has neither inputs nor users")
            return
        columns = (Column(""), Column("node", keep=9), Column("op", flex=True), Column("value"))

        def done(picked: int | None) -> None:
            if picked is None:
                return
            kind, name = names[picked]
            if kind == "subgraph":
                self.enter(name)
            else:
                self.to_node(name)

        self.app.push_screen(PickScreen(f"{title(node)} = {what(node)}", Rows(columns, cells), "enter jumps"), done)

    def enter(self, name: str) -> None:
        """Show a subgraph."""
        raise NotImplementedError

    def do_to_input(self) -> None:
        """The first input."""
        node = self.node()
        names = inputs_of(node) if node else []
        if names:
            self.to_node(names[0])
        else:
            self.notify("this node has no inputs")

    def do_to_user(self) -> None:
        """The next user."""
        node = self.node()
        if node is not None and node.users:
            self.to_node(node.users[0])
        else:
            self.notify("nothing uses this node")
