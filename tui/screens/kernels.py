"""Kernels: the selected graph under several executors, measured or modelled, with their sources beside the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal

from ..spans import Cell
from ..store import Snapshot
from ..widgets.code_view import CodeView
from ..widgets.document import Block, Document, heading
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .job_view import JobView
from .overview import bar
from .passes import number_text
from .pick import PromptScreen
from .view import fact

DEFAULT = "eager,inductor"


class KernelsView(JobView):
    """The table on top; notes, sweep and sources below."""

    NAME = "kernels"
    TERMS = "measured: timed here; modelled: computed; interpreted: correct but never fast."
    EMPTY = (
        "Nothing has been measured for this graph.\n\n"
        "r  measure the selected graph under the chosen executors (in a process of its own)\n"
        "s  choose the executors: eager, inductor, triton, npu"
    )
    DEFAULT_CSS = """
    KernelsView #kernels-table { height: 2fr; min-height: 5; }
    KernelsView #kernels-below { height: 3fr; border-top: solid $surface-lighten-2; }
    KernelsView #kernels-notes { width: 1fr; }
    KernelsView #kernels-source { width: 1fr; border-left: solid $surface-lighten-2; display: none; }
    KernelsView.-source #kernels-source { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.executors = DEFAULT
        self._document: Mapping[str, Any] = {}
        self._rows: Sequence[Mapping[str, Any]] = ()

    def body(self) -> ComposeResult:
        """Table, notes, source."""
        yield VirtualTable(id="kernels-table").add_class("body")
        with Horizontal(id="kernels-below", classes="body"):
            yield Document(id="kernels-notes")
            yield CodeView(id="kernels-source")

    @property
    def table(self) -> VirtualTable:
        """The executors."""
        return self.query_one("#kernels-table", VirtualTable)

    def arguments(self) -> list[str]:
        """``fxscope bench PATH --graph ID --executors ... --json``."""
        return [
            "bench",
            self.scope.store.path,
            "--graph",
            self.graph_id() or "",
            "--executors",
            self.executors,
            "--json",
        ]

    def take(self, snapshot: Snapshot) -> None:
        """Show the answer for the selected graph."""
        first = self.snapshot is None
        self.snapshot = snapshot
        if first:
            self.show_answer()

    def compile_changed(self) -> None:
        """Show the answer for another graph."""
        self.show_answer()

    def answered(self, document: Any) -> None:
        """Show the table."""
        self._document = document
        self._rows = document.get("rows", ())
        columns = (
            Column("executor", keep=9),
            Column("kind", keep=9),
            Column("median ms", right=True, keep=9),
            Column("p10\u2013p90", right=True, keep=5),
            Column("", 16, keep=4),
            Column("GB/s", right=True, keep=6),
            Column("of peak", right=True, keep=5),
            Column("max |err|", right=True, keep=7),
            Column("launches", right=True, keep=3),
            Column("note", flex=True, keep=2),
        )
        slowest = {
            kind: max((row.get("median_ms") or 0.0 for row in self._rows if row.get("kind") == kind), default=0.0)
            for kind in ("measured", "modelled", "interpreted")
        }
        rows: list[list[Cell]] = []
        for row in self._rows:
            median = row.get("median_ms")
            kind = str(row.get("kind") or "")
            spread = f"{row['p10_ms']:.3g}\u2013{row['p90_ms']:.3g}" if row.get("p10_ms") is not None else ""
            note = row.get("error") or row.get("note") or row.get("unavailable") or ""
            rows.append(
                [
                    (str(row.get("executor", "?")), "strong"),
                    (kind, {"measured": "good", "modelled": "warn"}.get(kind, "dim")),
                    f"{median:.4g}" if median is not None else "\u2013",
                    (spread, "dim"),
                    (bar(median or 0.0, slowest.get(kind) or 0.0, 16), "info"),
                    f"{row['gbps']:,.0f}" if row.get("gbps") is not None else "",
                    f"{row['peak_share']:.0%}" if row.get("peak_share") is not None else "",
                    number_text(row.get("max_abs_err")),
                    str(row.get("launches") if row.get("launches") is not None else ""),
                    (str(note), "bad" if row.get("error") else "dim"),
                ]
            )
        self.table.show(Rows(columns, rows))
        self.tell(
            fact("graph", f"{self.compile_key}"),
            fact("executors", self.executors),
            [("bars compare rows of one kind only", "dim")],
        )
        self._notes()

    def _notes(self) -> None:
        lines: list[Cell] = []
        for name, value in self._document.items():
            label = (f"{name.replace('_', ' ')}  ", "dim")
            if name in ("schema", "rows", "listings", "sweep"):
                continue
            if isinstance(value, str | int | float):
                lines.append([label, (str(value), "")])
            elif isinstance(value, Mapping):
                lines.append([label, (_facts(value), "")])
            elif isinstance(value, Sequence):
                lines += [[label, (item if isinstance(item, str) else _facts(item), "")] for item in value]
        blocks = [heading("NOTES"), Block(lines or ["none"], None, 4)]
        sweep = self._document.get("sweep")
        if isinstance(sweep, Sequence) and sweep:
            blocks.append(heading("SWEEP", "over sizes"))
            blocks.append(Block([_facts(point) for point in sweep]))
        self.query_one(Document).show(blocks, keep=False)

    def do_executors(self) -> None:
        """Type the executors."""

        def done(value: str | None) -> None:
            if value is not None and value.strip():
                self.executors = value.strip().replace(" ", "")
                self.show_answer()
                self.do_run()

        note = "names with commas between: eager, inductor, triton, npu"
        self.app.push_screen(PromptScreen("Executors", self.executors, note), done)

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Show the source of an executor."""
        event.stop()
        at = self.table.selected
        if event.view is not self.table or at is None:
            return
        row = self._rows[at]
        listings = row.get("listings") or self._document.get("listings", {}).get(row.get("executor"))
        if not listings:
            self.notify("this executor told no source")
            return
        listing = listings[0]
        self.add_class("-source")
        code = self.query_one("#kernels-source", CodeView)
        code.show(str(listing.get("text", "")), str(listing.get("language", "python")))

    def back(self) -> bool:
        """Close the source."""
        if self.has_class("-source"):
            self.remove_class("-source")
            return True
        return False

    def source_line(self) -> tuple[str, int] | None:
        """The compiled function."""
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        return (compile_.file, compile_.line) if compile_ and compile_.file else None

    def data(self) -> Any:
        """The document."""
        return dict(self._document) or None


def _facts(value: Any) -> str:
    """A small record in one line."""
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(
        f"{key.replace('_', ' ')} {part}" for key, part in value.items() if not isinstance(part, Mapping | list)
    )
