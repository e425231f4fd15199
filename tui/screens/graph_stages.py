"""Which graph of a compile is shown: the stages of the stack, reading one, and the line of facts about it."""

from __future__ import annotations

from typing import Any, NamedTuple

from fxscope.graph.modules import Place, adopt_originals, places
from fxscope.graph.records import Graph
from fxscope.recording.lookup import stage_name
from fxscope.recording.records import Compile
from fxscope.words import count

from ..frames import size_text
from ..graph_rows import GraphRows, deepest
from ..spans import Span
from ..stages import graph_stages
from ..store import Snapshot
from .view import View, fact

LANES = 5  # values that the gutter draws at once; more are counted


class Prepared(NamedTuple):
    """A graph with what is worked out about it once."""

    rows: GraphRows
    inputs: str  # how many of which kind
    numbers: dict[str, Any]
    known: dict[str, dict[int, str]]  # source lines that the log carries, by file
    places: dict[str, Place]
    deepest: int  # parts of the longest module path


class StagesView(View):
    """A view of one graph of the selected compile; it reads the graph, ``_show_graph`` and ``to_node`` show it."""

    def __init__(self) -> None:
        super().__init__()
        self.graph: Graph | None = None
        self.stage: tuple[str, int] | None = None
        self._wanted: str = "dynamo"
        self._inside: list[str] = []  # subgraphs entered, outermost first
        self._depth = 0  # 0: no collapsing
        self._shown_key: tuple[object, ...] = ()
        self._numbers: dict[str, Any] = {}
        self._inputs = ""
        self._pending_node: str | None = None

    @property
    def compile(self) -> Compile | None:
        """The selected compile."""
        return self.snapshot.compile(self.compile_key) if self.snapshot else None

    # what is shown

    def take(self, snapshot: Snapshot) -> None:
        """A live compile may have more stages now."""
        self.snapshot = snapshot
        if self.compile is not None or not snapshot.compiles:  # else it is about to be told which
            self._show_stage()

    def compile_changed(self) -> None:
        """Show the same stage of another compile, where it has it."""
        self._inside = []
        self.remove_class("-diff")
        self._show_stage()

    def choose_stage(self, stage: str, index: int) -> None:
        """Show one stage."""
        self._wanted = stage
        self.stage = (stage, index)
        self._inside = []
        self._show_stage()

    def _show_stage(self) -> None:
        compile_ = self.compile
        stages = graph_stages(compile_) if compile_ else []
        if compile_ is None or not stages:
            reason = (compile_.failure or compile_.restart_reason or "no reason was logged") if compile_ else ""
            why = f"\n\nIt ended as {compile_.status}: {reason}" if compile_ else ""
            self.graph = None
            self._shown_key = ()
            self.empty(self.EMPTY + why)
            return
        if self.stage not in stages:
            self.stage = next((item for item in stages if item[0] == self._wanted), stages[0])
        key = (compile_.key, *self.stage)
        if key == self._shown_key and self.graph is not None:
            self._tell(compile_)
            return
        self._shown_key = key
        stage, index = self.stage
        store = self.scope.store
        size = next((g.size for g in compile_.graphs if (g.stage, g.index) == self.stage), 0)
        if size > 1_000_000:
            self.tell([(f"reading {size_text(size)} \u2026", "dim")])
        dynamo = stage not in ("dynamo", "pre_grad") and ("dynamo", 0) in stages

        def job() -> Prepared:
            graph = store.graph(compile_, stage, index)
            if dynamo:  # AOT numbers its inputs: give them the names that the user knows
                adopt_originals(graph, store.graph(compile_, "dynamo"))
            return prepare(graph)

        self.load(job, self._show_graph)

    def _show_graph(self, prepared: Prepared) -> None:
        raise NotImplementedError

    def to_node(self, name: str) -> None:
        """Put the cursor on a node."""
        raise NotImplementedError

    def _tell(self, compile_: Compile) -> None:
        graph, stage = self.graph, self.stage
        if graph is None or stage is None:
            return
        stages = graph_stages(compile_)
        place = f"({stages.index(stage) + 1}/{len(stages)})" if stage in stages else ""
        where = "".join(f" \u203a {name}" for name in self._inside)
        cells: list[list[Span]] = [
            [
                ("stage ", "dim"),
                (f"\u2039{stage_name(*stage)}\u203a", "accent"),
                (f" {place}", "dim"),
                (where, "strong"),
            ],
            fact("compile", f"{compile_.key} {compile_.function}"),
            fact("nodes", f"{len(graph.nodes):,}"),
        ]
        if self._inputs:
            cells.append(fact("in", self._inputs))
        if self._depth:
            cells.insert(1, [("by module, depth ", "dim"), (str(self._depth), "accent")])
        if self._numbers.get("flops"):
            cells.append(fact("FLOPs", _amount(self._numbers["flops"])))
        if self._numbers.get("bytes"):
            cells.append(fact("moves", size_text(self._numbers["bytes"])))
        if graph.problems:
            cells.insert(1, [(f"\u25b2 {count(len(graph.problems), 'line')} not understood", "warn")])
        self.tell(*cells)

    def show_node(self, stage: str, node: str) -> None:
        """Show a node of a stage, as soon as that is read."""
        self._pending_node = node
        self._wanted = stage
        self.stage = (stage, 0)
        self._inside = []
        if self._shown_key == (self.compile_key, stage, 0) and self.graph is not None:
            self._pending_node = None
            self.to_node(node)
        else:
            self._show_stage()

    def do_stage(self, step: int) -> None:
        """The next stage."""
        compile_ = self.compile
        stages = graph_stages(compile_) if compile_ else []
        if len(stages) < 2 or self.stage not in stages:
            self.notify("this compile has only one graph")
            return
        stage, index = stages[(stages.index(self.stage) + step) % len(stages)]
        self.choose_stage(stage, index)


def prepare(graph: Graph) -> Prepared:
    """What the view needs beside the graph; on a worker, because it takes a second at 50,000 nodes."""
    from fxscope.graph.cost import graph_cost

    known: dict[str, dict[int, str]] = {}
    roles: dict[str, int] = {}
    for node in graph.nodes:
        if node.source is not None:
            known.setdefault(node.source.file, {})[node.source.line] = node.source.code
        if node.op == "placeholder":
            roles[node.role or "input"] = roles.get(node.role or "input", 0) + 1
    inputs = ", ".join(f"{number} {role}{'s' if number > 1 else ''}" for role, number in roles.items())
    cost = graph_cost(graph)
    where = places(graph)
    numbers = {"flops": cost.flops, "bytes": cost.bytes}
    return Prepared(rows_of(graph), inputs, numbers, known, where, deepest(where))


def rows_of(graph: Graph) -> GraphRows:
    """The table of a graph's nodes."""
    from fxscope.graph.gutter import gutter

    return GraphRows(graph, gutter(graph, LANES))


def _amount(number: float) -> str:
    for unit in ("", "k", "M", "G", "T", "P"):
        if number < 1000 or unit == "P":
            return f"{number:.0f} {unit}".strip() if not unit else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError(number)
