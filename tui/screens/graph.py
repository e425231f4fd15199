"""Graph: the nodes as a table with a gutter of edges, the source in step, modules, subgraphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from fxscope.graph.modules import Place
from fxscope.graph.records import Graph

from ..graph_rows import GraphRows, ModuleRows
from ..store import SourceFile
from ..widgets.code_view import Mark
from ..widgets.detail import Detail
from ..widgets.diff_view import DiffView
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .graph_jumps import JumpsView
from .graph_stages import Prepared, rows_of
from .pick import PickScreen
from .source_pane import SourcePane

WIDE = 96  # cells of the view from which the source pane stands beside the table
LOW = 14  # lines of the view from which there is room for the node in full


class GraphView(JumpsView):
    """One graph of the selected compile."""

    NAME = "graph"
    TERMS = "Nodes in execution order, edges on the left; s goes through the stages."
    EMPTY = "This compile has no graph.\n\nSelect another compile in the tree (t), or wait: graphs appear as they are captured."
    DEFAULT_CSS = """
    GraphView #graph-split { height: 1fr; }
    GraphView #graph-table { width: 3fr; }
    GraphView #graph-source { width: 2fr; border-left: solid $surface-lighten-2; display: none; }
    GraphView.-source #graph-source { display: block; }
    GraphView #graph-detail { height: 4; border-top: solid $surface-lighten-2; display: none; }
    GraphView.-detail #graph-detail { display: block; }
    GraphView.-diff #graph-detail, GraphView.-empty #graph-detail { display: none; }
    GraphView #graph-diff { display: none; height: 1fr; }
    GraphView.-diff #graph-diff { display: block; }
    GraphView.-diff #graph-split { display: none; }
    """
    about_compile = True

    def __init__(self) -> None:
        super().__init__()
        self._whole: Graph | None = None
        self._unfolded: set[int] = set()
        self._places: dict[str, Place] = {}
        self._deepest = 0  # parts of the longest module path
        self._show_source: bool | None = None
        self._known: dict[str, dict[int, str]] = {}

    def body(self) -> ComposeResult:
        """Table and source, or the node in full where there is no room for source; the comparison in their place."""
        with Horizontal(id="graph-split", classes="body"):
            yield VirtualTable(id="graph-table")
            yield SourcePane(id="graph-source")
        yield Detail(id="graph-detail").add_class("body")
        yield DiffView(id="graph-diff")

    @property
    def source_pane(self) -> SourcePane:
        """The source."""
        return self.query_one(SourcePane)

    # what is shown

    def _show_graph(self, prepared: Prepared) -> None:
        graph = prepared.rows.graph
        self._numbers, self._known, self._places = prepared.numbers, prepared.known, prepared.places
        self._inputs, self._deepest = prepared.inputs, prepared.deepest
        self._whole = self.graph = graph
        self._unfolded = set()
        self._rows = {id(graph): prepared.rows}
        self.filled()
        wanted, self._pending_node = self._pending_node, None
        self._fill_table(wanted)
        if wanted is None and not self._depth:
            first = next((number for number, node in enumerate(graph.nodes) if node.op.startswith("call")), 0)
            at = self.table.shown_index(first)
            if at is not None:
                self.table.start_at(at)
            self._moved()

    def _fill_table(self, node: str | None = None) -> None:
        """Show the graph's rows, and the cursor on a node; rows of modules are made on a worker."""
        graph = self.graph
        if graph is None:
            return
        known = self._rows.get(id(graph))
        if known is None:
            return  # its rows are on the way, and fill the table then
        depth, places, unfolded = self._depth, self._places, frozenset(self._unfolded)

        def show(rows: GraphRows) -> None:
            if graph is not self.graph or depth != self._depth:
                return  # meanwhile another key was pressed
            self.table.show(rows, prepare=True)
            if node is not None:
                self.to_node(node)
            self._moved()
            if self.compile is not None:
                self._tell(self.compile)

        if depth:
            self.load(lambda: ModuleRows(known, places, depth, unfolded), show, group="modules")
        else:
            show(known)

    # cursor

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
        at = self.table.selected
        if self.has_class("-detail") and at is not None:
            self.query_one(Detail).show(rows.detail(at))
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
        detail = not shown and self.size.height >= LOW
        if shown != self.has_class("-source") or detail != self.has_class("-detail"):
            self.set_class(shown, "-source")
            self.set_class(detail, "-detail")
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
                self._fill_table(rows.graph.nodes[run.start].name)
                return
        self.list_neighbours()

    def enter(self, name: str) -> None:
        """Show a subgraph."""
        graph = self.graph
        if graph is None or name not in graph.subgraphs:
            self.notify(f"the subgraph {name} is not in the log")
            return
        self._inside.append(name)
        self._inner(graph.subgraphs[name])

    def _inner(self, graph: Graph) -> None:
        """Show a subgraph, or the graph around it."""
        self.graph = graph
        self._unfolded = set()
        if id(graph) in self._rows:
            self._fill_table()
            return

        def show(rows: GraphRows) -> None:
            self._rows[id(graph)] = rows
            if graph is self.graph:
                self._fill_table()

        self.load(lambda: rows_of(graph), show, group="subgraph")

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
        if not self._deepest:
            self.notify("the log does not say which module these nodes ran in")
            return
        node = self.node()
        self._depth = 0 if self._depth >= self._deepest else self._depth + 1
        self._unfolded = set()
        self._fill_table(node.name if node is not None else None)

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

        graph = self.graph
        if graph is not None:
            self.load(lambda: histogram(graph), self._pick_op, group="ops")

    def _pick_op(self, counted: list[tuple[str, int]]) -> None:
        most = max((number for _, number in counted), default=1)
        rows = [
            (target, f"{number:,}", ("\u2588" * max(1, round(20 * number / most)), "info"))
            for target, number in counted
        ]
        columns = (Column("op", keep=9, limit=60), Column("count", right=True, keep=9), Column("", 20))

        def done(picked: int | None) -> None:
            if picked is not None:
                self.table.filter(counted[picked][0].lstrip("."))

        title = f"{sum(number for _, number in counted):,} ops, {len(counted)} kinds"
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
