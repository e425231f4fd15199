"""Breaks: by site, with the source line, the reason, the fix, and which graphs each split."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal

from fxscope.recording.records import GraphBreak
from fxscope.words import count

from ..frames import site
from ..spans import Cell
from ..store import Snapshot, SourceFile
from ..widgets.code_view import Mark
from ..widgets.document import Block, Document, heading
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .source_pane import SourcePane
from .view import View, fact


class BreaksView(View):
    """Sites on top, the one under the cursor below: words left, source right."""

    NAME = "breaks"
    TERMS = "A graph break ends a graph; its line runs in plain Python. Site: its line."
    EMPTY = "No graph breaks.\n\nEvery compiled frame so far is one graph."
    DEFAULT_CSS = """
    BreaksView #breaks-table { height: 2fr; min-height: 4; }
    BreaksView #breaks-below { height: 3fr; border-top: solid $surface-lighten-2; }
    BreaksView #breaks-story { width: 1fr; }
    BreaksView #breaks-source { width: 1fr; border-left: solid $surface-lighten-2; display: none; }
    BreaksView.-wide #breaks-source { display: block; }
    """

    def body(self) -> ComposeResult:
        """Table, story, source."""
        yield VirtualTable(id="breaks-table").add_class("body")
        with Horizontal(id="breaks-below", classes="body"):
            yield Document(id="breaks-story")
            yield SourcePane(id="breaks-source")

    @property
    def table(self) -> VirtualTable:
        """The sites."""
        return self.query_one(VirtualTable)

    def take(self, snapshot: Snapshot) -> None:
        """List the sites."""
        self.snapshot = snapshot
        if not snapshot.graph_breaks:
            self.empty(snapshot.error)
            return
        self.filled()
        columns = (
            Column("count", right=True, keep=8),
            Column("site", keep=9, limit=36, middle=True),
            Column("line", flex=True, keep=7),
            Column("kind", keep=6, limit=40),
            Column("cause", keep=5, limit=24),
            Column("function", keep=2, limit=28),
        )
        rows = [
            (
                f"{item.count}\u00d7",
                [(item.site, "name"), (" \u21b7 frame skipped", "warn") if item.skipped_frame else ("", "")],
                (item.code.strip(), "string"),
                item.kind or item.reason.split("\n", 1)[0],
                (item.cause or "", "accent"),
                (item.function, "dim"),
            )
            for item in snapshot.graph_breaks
        ]
        keys = [(item.site, item.kind, number) for number, item in enumerate(snapshot.graph_breaks)]
        self.table.show(Rows(columns, rows, keys))
        total = snapshot.totals
        skipped = sum(item.skipped_frame for item in snapshot.graph_breaks)
        cells = [
            fact("break events", sum(item.count for item in snapshot.graph_breaks)),
            fact("sites", total.break_sites),
        ]
        if skipped:
            cells.append([(f"\u21b7 {skipped} gave up the whole frame", "warn")])
        self.tell(*cells)
        self._story()

    def here(self) -> GraphBreak | None:
        """The break under the cursor."""
        at = self.table.selected
        return (
            self.snapshot.graph_breaks[at]
            if self.snapshot and at is not None and at < len(self.snapshot.graph_breaks)
            else None
        )

    def show_record(self, kind: str, index: int) -> None:
        """Put the cursor on a break."""
        self.table.select(index)
        self._story()

    def follow(self, view: LineView) -> None:
        """The story follows."""
        if view is self.table:
            self._story()

    def _story(self) -> None:
        item = self.here()
        if item is None:
            return
        lines: list[Cell] = [
            [("  ", ""), (item.site, "name"), (f"  {item.function}", "dim"), (f"  {item.gb_id or ''}", "dim")]
        ]
        if item.code.strip():
            lines.append([("  \u25b6 ", "accent"), (item.code.strip(), "string")])
        if item.user_line and (item.user_file, item.user_line) != (item.file, item.line):
            lines.append(
                [
                    ("  called from ", "dim"),
                    (site(item.user_file, item.user_line), "name"),
                    (f"  {item.user_code.strip()}", "string"),
                ]
            )
        blocks = [Block([[("BREAK", "accent"), (f"   {item.kind}", "strong")], *lines])]
        reason = item.explanation or item.reason
        if reason:
            blocks.append(Block(["", [("why   ", "dim"), (" ".join(reason.split()), "")]], None, 6))
        if item.context:
            blocks.append(Block([[("what  ", "dim"), (" ".join(item.context.split())[:600], "")]], None, 6))
        effect = "the whole frame ran without compiling" if item.skipped_frame else "the frame was split in two"
        blocks.append(Block([[("then  ", "dim"), (f"{effect}; {count(item.count, 'event')}", "")]], None, 6))
        if item.fix:
            blocks.append(Block(["", *_fix_lines(item.fix)], None, 6))
        if item.hints:
            blocks.append(
                Block(
                    [
                        "",
                        [("torch's hints, untested", "dim")],
                        *[[("  - ", "dim"), (" ".join(hint.split()), "dim")] for hint in item.hints],
                    ],
                    None,
                    4,
                )
            )
        blocks.append(heading("GRAPHS THAT IT ENDED", "enter goes to one"))
        for key in dict.fromkeys(item.compile_keys or item.compile_ids):
            compile_ = self.snapshot.compile(key) if self.snapshot else None
            facts = f"  {compile_.function}  {count(compile_.nodes or 0, 'op')}" if compile_ else ""
            blocks.append(Block([[("  ", ""), (key, "strong"), (facts, "dim")]], ("compile", key)))
        if item.stack:
            blocks.append(heading("STACK", "outermost first"))
            blocks.append(
                Block(
                    [
                        [("  ", ""), (f"{frame.site:<28} ", "name"), (frame.code.strip(), "string")]
                        for frame in item.stack
                    ],
                    None,
                    6,
                )
            )
        story = self.query_one(Document)
        story.show(blocks, keep=False)
        known = {frame.line: frame.code for frame in item.stack if frame.file == item.file}
        known[item.line] = item.code
        marks = {item.line: Mark("\u2702", "bad", f"{item.count} breaks" if item.count > 1 else "break")}
        if self.has_class("-wide"):
            self.query_one(SourcePane).follow(item.file, item.line, self._read_source, known, marks)

    def _read_source(self, path: str, done: Any) -> None:
        store = self.scope.store

        def job() -> SourceFile:
            return store.source(path)

        self.load(job, done, group="source")

    def on_resize(self) -> None:
        """Source beside the story where there is room."""
        wide = self.size.width >= 90
        if wide != self.has_class("-wide"):
            self.set_class(wide, "-wide")
            self.call_after_refresh(self._story)

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Go to the graph."""
        event.stop()
        story = self.query_one(Document)
        key = story.key
        if event.view is story and isinstance(key, tuple):
            self._open(str(key[1]))
        elif event.view is self.table:
            item = self.here()
            keys = (item.compile_keys or item.compile_ids) if item else []
            if keys:
                self._open(keys[0])

    def _open(self, key: str) -> None:
        if self.snapshot is None or self.snapshot.compile(key) is None:
            self.notify(f"{key} left no compile record")
            return
        self.scope.select_compile(key)
        self.scope.goto("graph")

    def source_line(self) -> tuple[str, int] | None:
        """The breaking line."""
        item = self.here()
        return (item.file, item.line) if item else None

    def data(self) -> Any:
        """The breaks."""
        return list(self.snapshot.graph_breaks) if self.snapshot else None


def _fix_lines(fix: str) -> list[Cell]:
    """The lines of a fix under its label."""
    return [[("fix   " if not number else "      ", "good"), (line, "")] for number, line in enumerate(fix.split("\n"))]
