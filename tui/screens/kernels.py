"""Kernels: the selected graph under several executors, measured or modelled, with their sources beside the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal

from fxscope.recording.lookup import parse_stage

from ..bench_text import blocks
from ..fusions import fusion_blocks, read_fusions
from ..graph_rows import node_text
from ..npu_text import npu_blocks, op_rows
from ..spans import Cell
from ..totals_text import bar
from ..widgets.document import Document
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .job_view import JobView
from .kernel_sources import KernelSources
from .passes import number_text
from .pick import PickScreen, PromptScreen
from .view import fact

DEFAULT = "eager,inductor"
STATUS = {"wrong": "\u2716 wrong: beyond tolerance, not timed", "failed": "\u2716 failed", "missing": "\u2298 missing"}


class KernelsView(JobView):
    """The table on top; traffic, sweep and partition below, or two sources side by side."""

    NAME = "kernels"
    TERMS = "measured: timed here; modelled: computed; interpreted: correct but never fast."
    EMPTY = (
        "Nothing has been measured for this graph.\n\n"
        "r  measure the selected graph under the chosen executors (in a process of its own)\n"
        "s  choose the executors: eager, inductor, triton, npu\n"
        "S  choose the stage of the graph; i one island of triton's or the NPU's\n"
        "u  what each op costs on the NPU, and when (modelled)\n"
        "w  choose sizes for a sweep: where launches decide, and where bandwidth does"
    )
    DEFAULT_CSS = """
    KernelsView #kernels-table { height: 2fr; min-height: 5; max-height: 10; }
    KernelsView #kernels-below { height: 3fr; border-top: solid $surface-lighten-2; }
    KernelsView #kernels-notes { width: 1fr; }
    KernelsView #kernels-sources { width: 1fr; display: none; }
    KernelsView.-npu #kernels-table { height: 1fr; max-height: 100%; }
    KernelsView.-npu #kernels-below { height: 1fr; }
    KernelsView.-source #kernels-sources { display: block; }
    KernelsView.-source #kernels-notes, KernelsView.-source #kernels-table { display: none; }
    KernelsView.-source #kernels-below { border-top: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.executors = DEFAULT
        self.sizes = ""
        self.island: int | None = None  # only this one of the last executor's target
        self._npu = False  # the NPU's report instead of the comparison
        self._document: Mapping[str, Any] = {}
        self._rows: Sequence[Mapping[str, Any]] = ()

    def body(self) -> ComposeResult:
        """Table, notes, two sources."""
        yield VirtualTable(id="kernels-table").add_class("body")
        with Horizontal(id="kernels-below", classes="body"):
            yield Document(id="kernels-notes")
            yield KernelSources(id="kernels-sources")

    @property
    def table(self) -> VirtualTable:
        """The executors."""
        return self.query_one("#kernels-table", VirtualTable)

    @property
    def sources(self) -> KernelSources:
        """One source beside its nodes."""
        return self.query_one(KernelSources)

    def arguments(self) -> list[str]:
        """``fxscope bench PATH --graph ID --executors ... --json``, or ``fxscope npu report PATH --graph ID --json``."""
        return ["npu", "report", *self.graph_arguments(), "--json"] if self._npu else self._bench(self.island)

    def _bench(self, island: int | None) -> list[str]:
        chosen = ["--executors", self.executors, *(["--sweep", self.sizes] if self.sizes else [])]
        chosen += ["--island", str(island)] if island is not None else []
        return ["bench", *self.graph_arguments(), *chosen, "--sources", "--json"]

    def compile_changed(self) -> None:
        """Show the answer for another graph."""
        self.remove_class("-source")
        self.island = None
        self.show_answer()

    def answered(self, document: Any) -> None:
        """Show the table."""
        self.set_class(document.get("command") == "report", "-npu")
        if document.get("command") == "report":
            self._show_report(document)
        else:
            self._show_comparison(document)

    def _show_report(self, document: Mapping[str, Any]) -> None:
        self._document, self._rows = document, ()
        self.table.show(op_rows(document))
        self.tell(
            [("modelled on ", "dim"), (str(document.get("machine", "?")), "accent")],
            fact("graph", f"{self.compile_key} {self.stage if self.stage in self.stages() else ''}"),
            fact("runs there", f"{document.get('coverage', 0):.0%} of the nodes"),
            [("esc back to the comparison", "dim")],
        )
        self.query_one(Document).show(npu_blocks(document), keep=False)

    def _show_comparison(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._rows = document.get("rows", ())
        columns = (
            Column("executor", keep=9),
            Column("kind", keep=9),
            Column("median ms", right=True, keep=9),
            Column("p10\u2013p90", right=True, keep=5),
            Column("", 16, keep=4),
            Column("speed-up", right=True, keep=6),
            Column("GB/s", right=True, keep=6),
            Column("of peak", right=True, keep=6),
            Column("max |err|", right=True, keep=7),
            Column("launches", right=True, keep=7),
            Column("note", flex=True, keep=8),
        )
        slowest = {
            kind: max((row.get("median_ms") or 0.0 for row in self._rows if row.get("kind") == kind), default=0.0)
            for kind in ("measured", "modelled", "interpreted")
        }
        self.table.show(Rows(columns, [_cells(row, slowest) for row in self._rows]))
        self._tell_comparison()
        notes = self.query_one(Document)
        notes.show(blocks(document), keep=False)
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        if compile_ is not None:
            store, name = self.scope.store, compile_.id
            # The log of a program that still runs is read as far as it goes.
            self.load(
                lambda: (read_fusions(store.output().decode("utf-8", "replace"), name), store.script()),
                lambda found: notes.show([*blocks(document), *fusion_blocks(*found)]),
                group="fusions",
            )

    def _tell_comparison(self) -> None:
        """The line above the table."""
        document = self._document
        self.tell(
            fact("graph", f"{document.get('graph', self.compile_key)} {document.get('stage', '')}"),
            *(
                [fact("island", f"{self.island} of {self.executors.split(',')[-1]}", "accent")]
                if self.island is not None
                else []
            ),
            fact("on", document.get("device", "?")),
            [("bars and speed-ups compare rows of one kind only", "dim")],
        )

    def do_npu(self) -> None:
        """What each op costs on the NPU, and when."""
        if self.job is not None:
            self.notify("one runs already; x cancels it")
            return
        self._npu = True
        self.remove_class("-source")
        if tuple(self.arguments()) in self.answers:
            self.show_answer()
        else:
            super().do_run()

    def do_run(self) -> None:
        """Measure."""
        if self.job is None:
            self._npu = False
        super().do_run()

    def do_island(self) -> None:
        """Choose one island of the last executor's target, or the whole graph again."""
        target = self.executors.split(",")[-1]
        whole = self.answers.get(tuple(self._bench(None))) or {}
        islands = ((whole.get("partitions") or {}).get(target) or {}).get("islands") or []
        if not islands:
            self.notify(f"no islands: measure with triton or npu as the last executor first (now {target})")
            return
        rows: list[Sequence[Cell]] = [["whole", ("the whole graph", "strong"), "", ""]]
        rows += [
            [
                str(island["index"]),
                (", ".join(map(str, island["nodes"])), ""),
                f"{len(island['nodes'])}",
                (str(island.get("dropped") or ""), "warn"),
            ]
            for island in islands
        ]
        columns = (
            Column("island", keep=9),
            Column("nodes", flex=True, keep=8),
            Column("", right=True),
            Column("dropped"),
        )

        def done(picked: int | None) -> None:
            if picked is None:
                return
            self.island = int(islands[picked - 1]["index"]) if picked else None
            self._npu = False
            self.show_answer()
            if tuple(self.arguments()) not in self.answers:
                self.do_run()

        self.app.push_screen(PickScreen(f"Islands of {target}", Rows(columns, rows), "enter measures one"), done)

    def do_executors(self) -> None:
        """Type the executors."""
        self._ask("Executors", "executors", "names with commas between: eager, inductor, triton, npu", needed=True)

    def do_sweep(self) -> None:
        """Type the sizes."""
        self._ask(
            "Sizes of a sweep", "sizes", "sizes of the first axis with commas between, e.g. 1,4,16,64; empty for none"
        )

    def _ask(self, title: str, name: str, note: str, *, needed: bool = False) -> None:
        def done(value: str | None) -> None:
            if value is not None and (value.strip() or not needed):
                setattr(self, name, value.strip().replace(" ", ""))
                self.island = None
                self.show_answer()
                self.do_run()

        self.app.push_screen(PromptScreen(title, getattr(self, name), note), done)

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Show the source of an executor beside the nodes."""
        event.stop()
        at = self.table.selected
        if event.view is not self.table or at is None or self._npu:
            return
        name = str(self._rows[at].get("executor"))
        listings = (self._document.get("listings") or {}).get(name) or []
        if not listings:
            self.notify(f"{name} told no source")
        elif len(listings) == 1:
            self._show_source(name, listings[0])
        else:
            rows = Rows((Column("source", flex=True),), [(str(listing.get("title", "")),) for listing in listings])

            def done(picked: int | None) -> None:
                if picked is not None:
                    self._show_source(name, listings[picked])

            self.app.push_screen(PickScreen(f"Sources of {name}", rows), done)

    def _show_source(self, name: str, listing: Mapping[str, Any]) -> None:
        store, stage = self.scope.store, parse_stage(str(self._document.get("stage", "dynamo")))
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        if compile_ is None:
            return
        known = self._document.get("nodes") or {}
        lowered = known.get(name) or (next(iter(known.values()), None) if name == "inductor" else None)
        written = (self._document.get("listings") or {}).get("inductor") or []
        inductor = written[0] if written and name != "inductor" else None

        def show(nodes: Mapping[str, str]) -> None:
            self.add_class("-source")
            self.sources.show(listing, nodes, inductor)
            below = ", Inductor's kernel for them below" if self.sources.has_class("-inductor") else ""
            self.tell(
                fact("source", f"{name}: {listing.get('title', '')}"),
                [(f"nodes left{below}, source right; esc back", "dim")],
            )

        def read() -> Mapping[str, str]:
            if lowered:
                return dict(lowered)
            graph = store.graph(compile_, *stage)
            return {node.name: node_text(node) for node in graph.nodes if node.op not in ("placeholder", "get_attr")}

        self.load(read, show, group="source")

    def follow(self, view: LineView) -> None:
        """Mark the nodes that a line of the source computes."""
        self.sources.follow(view)

    def back(self) -> bool:
        """Close the sources."""
        if self.has_class("-source"):
            self.remove_class("-source")
            self._tell_comparison()
            self.table.focus()
            return True
        if self._npu and self.job is None:
            self._npu = False
            self.show_answer()
            return True
        return False

    def source_line(self) -> tuple[str, int] | None:
        """The compiled function."""
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        return (compile_.file, compile_.line) if compile_ and compile_.file else None

    def data(self) -> Any:
        """The document."""
        return dict(self._document) or None


def rate_text(value: float | None) -> str:
    """GB/s with three digits, never as a power."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cells(row: Mapping[str, Any], slowest: Mapping[str, float]) -> list[Cell]:
    """One row of the table."""
    median, kind, status = row.get("median_ms"), str(row.get("kind") or ""), str(row.get("status") or "ok")
    spread = f"{row['p10_ms']:.3g}\u2013{row['p90_ms']:.3g}" if row.get("p10_ms") is not None else ""
    note = " ".join(part for part in (STATUS.get(status, ""), str(row.get("note") or "")) if part)
    return [
        (str(row.get("executor", "?")), "strong"),
        (kind, {"measured": "good", "modelled": "warn"}.get(kind, "dim")),
        f"{median:.4g}" if median is not None else "\u2013",
        (spread, "dim"),
        (bar(median or 0.0, slowest.get(kind) or 0.0, 16), "info"),
        f"{row['speedup']:.2f}\u00d7" if row.get("speedup") is not None else "",
        rate_text(row.get("gbps")),
        f"{row['peak_share']:.0%}" if row.get("peak_share") is not None else "",
        number_text(row.get("max_abs_err")),
        str(row.get("launches") if row.get("launches") is not None else ""),
        (note, "dim" if status == "ok" else "bad"),
    ]
