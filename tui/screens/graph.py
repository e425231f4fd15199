"""Graph: the nodes as a table with a gutter of edges, the source in step, modules, subgraphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from fxscope.graph.modules import Place
from fxscope.graph.records import Graph, Node
from fxscope.graph.table import shape_text

from ..graph_rows import GraphRows, ModuleRows, deepest, inputs_of, title, what
from ..store import SourceFile
from ..widgets.code_view import Mark
from ..widgets.diff_view import DiffView
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .graph_comparison import ComparisonView
from .graph_stages import Prepared, rows_of
from .pick import PickScreen
from .source_pane import SourcePane

WIDE = 96  # cells of the view from which the source pane stands beside the table


class GraphView(ComparisonView):
    """One graph of the selected compile."""

    NAME = "graph"
    TERMS = "Nodes in execution order, edges on the left; s switches the stage of the stack."
    EMPTY = "This compile has no graph.\n\nSelect another compile in the tree (t), or wait: graphs appear as they are captured."
    DEFAULT_CSS = """
    GraphView #graph-split { height: 1fr; }
    GraphView #graph-table { width: 3fr; }
    GraphView #graph-source { width: 2fr; border-left: solid $surface-lighten-2; display: none; }
    GraphView.-source #graph-source { display: block; }
    GraphView #graph-diff { display: none; height: 1fr; }
    GraphView.-diff #graph-diff { display: block; }
    GraphView.-diff #graph-split { display: none; }
    """
    about_compile = True

    def __init__(self) -> None:
        super().__init__()
        self._whole: Graph | None = None
        self._unfolded: set[int] = set()
        self._rows: dict[int, GraphRows] = {}  # by the graph's id; the graph and its subgraphs
        self._places: dict[str, Place] = {}
        self._show_source: bool | None = None
        self._known: dict[str, dict[int, str]] = {}

    def body(self) -> ComposeResult:
        """Table and source; the comparison in their place."""
        with Horizontal(id="graph-split", classes="body"):
            yield VirtualTable(id="graph-table")
            yield SourcePane(id="graph-source")
        yield DiffView(id="graph-diff")

    @property
    def table(self) -> VirtualTable:
        """The nodes."""
        return self.query_one("#graph-table", VirtualTable)

    @property
    def source_pane(self) -> SourcePane:
        """The source."""
        return self.query_one(SourcePane)

    # what is shown

    def _show_graph(self, prepared: Prepared) -> None:
        graph = prepared.rows.graph
        self._numbers, self._known, self._places = prepared.numbers, prepared.known, prepared.places
        self._inputs = prepared.inputs
        self._whole = self.graph = graph
        self._unfolded = set()
        self._rows = {id(graph): prepared.rows}
        self.filled()
        self._fill_table()
        first = next((number for number, node in enumerate(graph.nodes) if node.op.startswith("call")), 0)
        if first and not self._depth:
            self.table.select(first, tell=False)
            self._moved()
        if self.compile is not None:
            self._tell(self.compile)
        if self._pending_node is not None:
            self.to_node(self._pending_node)
            self._pending_node = None

    def _fill_table(self) -> None:
        graph = self.graph
        if graph is None:
            return
        rows = self._rows[id(graph)]
        if self._depth:
            rows = ModuleRows(rows, self._places, self._depth, self._unfolded)
        self.table.show(rows, prepare=True)
        self._moved()

    # cursor

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

    def follow(self, view: LineView) -> None:
        """Source and marks follow the cursor."""
        if view is self.table:
            self._moved()

    def _moved(self) -> None:
        node = self.node()
        rows = self.table.provider
        if node is None or not isinstance(rows, GraphRows):
            return
        self.table.mark(rows.neighbours(node))
        if not self.has_class("-source"):
            return
        if node.source is not None:
            known = self._known.get(node.source.file, {})
            marks = {node.source.line: Mark("\u25b6", "accent")}
            self.source_pane.follow(node.source.file, node.source.line, self._read_source, known, marks)

    def _read_source(self, path: str, done: Callable[[SourceFile], None]) -> None:
        store = self.scope.store
        self.load(lambda: store.source(path), done, group="source")

    def on_resize(self, event: events.Resize) -> None:
        """The source pane stands there where there is room."""
        self._place_source()

    def _place_source(self) -> None:
        shown = self.size.width >= WIDE if self._show_source is None else self._show_source
        shown = shown and not self.scope.zoomed
        if shown != self.has_class("-source"):
            self.set_class(shown, "-source")
            self.call_after_refresh(self._moved)

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Unfold a module, or list inputs and users."""
        event.stop()
        if event.view is not self.table:
            return
        rows = self.table.provider
        at = self.table.selected
        if at is None:
            return
        if isinstance(rows, ModuleRows):
            run = rows.at(at)
            if run is not None:
                self._unfolded.add(run.start)
                self._fill_table()
                return
        self._list_neighbours()

    def _list_neighbours(self) -> None:
        node, graph = self.node(), self.graph
        if node is None or graph is None:
            return
        by_name = graph.by_name()
        names = [("input", name) for name in inputs_of(node)] + [("user", name) for name in node.users]
        rows: list[list[Any]] = [
            [
                ("\u2190 input", "dim") if kind == "input" else ("\u2192 user", "dim"),
                name,
                (what(by_name[name]), "name") if name in by_name else "",
                (shape_text(by_name[name]), "type") if name in by_name else "",
            ]
            for kind, name in names
        ]
        for name in node.subgraphs:
            rows.append(
                [("\u21b3 subgraph", "dim"), name, (f"{len(graph.subgraphs[name].nodes)} nodes", "dim"), ""]
                if name in graph.subgraphs
                else [("\u21b3 subgraph", "dim"), name, "", ""]
            )
            names.append(("subgraph", name))
        if not rows:
            self.notify(f"{node.name} has neither inputs nor users")
            return
        columns = (Column(""), Column("node", keep=9), Column("op", flex=True), Column("value"))

        def done(picked: int | None) -> None:
            if picked is None:
                return
            kind, name = names[picked]
            if kind == "subgraph":
                self._enter(name)
            else:
                self.to_node(name)

        self.app.push_screen(PickScreen(f"{title(node)} = {what(node)}", Rows(columns, rows), "enter jumps"), done)

    def _enter(self, name: str) -> None:
        graph = self.graph
        if graph is None or name not in graph.subgraphs:
            self.notify(f"the subgraph {name} is not in the log")
            return
        self._inside.append(name)
        self._inner(graph.subgraphs[name])

    def _inner(self, graph: Graph) -> None:
        self.graph = graph
        if id(graph) not in self._rows:
            self._rows[id(graph)] = rows_of(graph)
        self._unfolded = set()
        self._fill_table()
        if self.compile is not None:
            self._tell(self.compile)

    def back(self) -> bool:
        """Leave the comparison or a subgraph."""
        if self.has_class("-diff"):
            self.remove_class("-diff")
            self.table.focus()
            return True
        if self._inside and self._whole is not None:
            self._inside.pop()
            graph = self._whole
            for name in self._inside:
                graph = graph.subgraphs[name]
            self._inner(graph)
            return True
        return False

    # keys

    def do_collapse(self) -> None:
        """Deeper module paths, then single nodes again."""
        if self.graph is None:
            return
        most = deepest(self._places)
        if not most:
            self.notify("the log does not say which module these nodes ran in")
            return
        node = self.node()
        self._depth = 0 if self._depth >= most else self._depth + 1
        self._unfolded = set()
        self._fill_table()
        if node is not None:
            self.to_node(node.name)
        if self.compile is not None:
            self._tell(self.compile)

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

    def do_kernel(self) -> None:
        """The generated kernel that computes this node."""
        node = self.node()
        if node is None or self.stage is None:
            return
        self.scope.show_kernel(self.stage[0], node.name)

    def do_source(self) -> None:
        """Show or hide the source."""
        self._show_source = not self.has_class("-source")
        self._place_source()

    def do_histogram(self) -> None:
        """Count ops; picking one filters the table."""
        from fxscope.graph.histogram import histogram

        if self.graph is None:
            return
        counted = histogram(self.graph)
        most = max((number for _, number in counted), default=1)
        rows = [
            (target, f"{number:,}", ("\u2588" * max(1, round(20 * number / most)), "info"))
            for target, number in counted
        ]
        columns = (Column("op", keep=9, limit=60), Column("count", right=True, keep=9), Column("", 20))

        def done(picked: int | None) -> None:
            if picked is not None:
                self.table.filter(counted[picked][0].lstrip("."))

        title = f"{len(self.graph.nodes):,} nodes, {len(counted)} kinds of op"
        self.app.push_screen(PickScreen(title, Rows(columns, rows), "enter filters the table by an op"), done)

    # export

    def source_line(self) -> tuple[str, int] | None:
        """Source of the node, or of the function."""
        node = self.node()
        if node is not None and node.source is not None:
            return node.source.file, node.source.line
        compile_ = self.compile
        return (compile_.file, compile_.line) if compile_ and compile_.file else None

    def has_dot(self) -> bool:
        """Whether there is a graph."""
        return self.graph is not None

    def dot(self) -> str | None:
        """The graph for graphviz."""
        from fxscope.report.dot import to_dot

        return to_dot(self.graph) if self.graph is not None else None

    def data(self) -> Any:
        """The graph's records."""
        return self.graph
