"""Timeline: where compile time went, per compile and phase."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from textual.app import ComposeResult

from fxscope.recording.records import Compile, ShapeEvent

from ..compile_text import SHADES, Phase, compile_blocks, shapes_by_compile
from ..frames import function_title, glyph, seconds_text
from ..spans import Cell, Span
from ..store import Snapshot
from ..widgets.document import Document
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, VirtualTable
from .view import View, fact

CELLS = 40


class TimelineRows:
    """Row provider over compiles; their bars are made where they are seen."""

    columns = (
        Column("compile", keep=9),
        Column("function", keep=6, limit=34),
        Column("at", right=True, keep=4),
        Column("seconds", right=True, keep=8),
        Column("dynamo", right=True, keep=3),
        Column("aot", right=True, keep=3),
        Column("inductor", right=True, keep=3),
        Column("when", CELLS, keep=5),
    )

    def __init__(self, compiles: Sequence[Compile], recompiled: Set[str], start: float, end: float) -> None:
        self.compiles = compiles
        self._recompiled = recompiled
        self._span = (start, end)
        self._rows = {compile_.key: number for number, compile_ in enumerate(compiles)}

    def count(self) -> int:
        """Number of compiles."""
        return len(self.compiles)

    def row(self, index: int) -> Sequence[Cell]:
        """Cells of a compile."""
        compile_ = self.compiles[index]
        sign, style = glyph(compile_, compile_.key in self._recompiled)
        return (
            [(f"{sign} ", style), (compile_.key, "strong")],
            function_title(compile_.function),
            f"+{seconds_text(compile_.started - self._span[0])}" if compile_.started else "",
            (seconds_text(compile_.seconds), "strong"),
            *(seconds_text(compile_.phases.get(name)) for name in ("dynamo", "aot", "inductor")),
            when(compile_, *self._span),
        )

    def text(self, index: int) -> str:
        """Key, function and status, for the filter."""
        compile_ = self.compiles[index]
        return f"{compile_.key} {compile_.function} {compile_.status}"

    def key(self, index: int) -> object:
        """The compile's key."""
        return self.compiles[index].key

    def find(self, key: object) -> int | None:
        """The row of a compile."""
        return self._rows.get(str(key))


class TimelineView(View):
    """A row per compile with a bar of its phases, placed in time; below, what is known of the one under the cursor."""

    NAME = "timeline"
    TERMS = "\u2588 dynamo traces  \u2593 aot splits  \u2592 inductor makes kernels  \u2591 backward"
    EMPTY = "No compile has finished yet.\n\nEach compile appears here with the time that its phases took."
    DEFAULT_CSS = """
    TimelineView #timeline-table { height: 3fr; }
    TimelineView #timeline-detail { height: 2fr; border-top: solid $surface-lighten-2; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._phases: Mapping[str, list[Phase]] = {}
        self._shapes: Mapping[str, list[ShapeEvent]] = {}
        self._loaded = -1

    def body(self) -> ComposeResult:
        """Table and detail."""
        yield VirtualTable(id="timeline-table").add_class("body")
        yield Document(id="timeline-detail").add_class("body")

    @property
    def table(self) -> VirtualTable:
        """The compiles."""
        return self.query_one(VirtualTable)

    def take(self, snapshot: Snapshot) -> None:
        """Draw the bars."""
        self.snapshot = snapshot
        timed = [compile_ for compile_ in snapshot.compiles if compile_.seconds is not None or compile_.phases]
        if not timed:
            self.empty(snapshot.error)
            return
        self.filled()
        start = min((compile_.started for compile_ in timed if compile_.started), default=0.0)
        end = max(compile_.started + (compile_.seconds or 0.0) for compile_ in timed)
        self.table.show(TimelineRows(timed, {record.key for record in snapshot.recompiles}, start, end))
        slowest = max(timed, key=lambda compile_: compile_.seconds or 0.0)
        self.tell(
            fact("compile time", f"{snapshot.totals.compile_seconds:.1f} s"),
            fact("of", seconds_text(max(end - start, 0.0))),
            fact("slowest", f"{slowest.key} {slowest.function} {seconds_text(slowest.seconds)}"),
        )
        if self._loaded != len(snapshot.compiles):
            self._loaded = len(snapshot.compiles)
            store = self.scope.store

            def job() -> tuple[Mapping[str, list[Phase]], Mapping[str, list[ShapeEvent]]]:
                return nest(store.timeline(), snapshot.session.ranks), shapes_by_compile(store.shapes())

            self.load(job, self._take_events, group="events")
        self._detail()

    def _take_events(self, found: tuple[Mapping[str, list[Phase]], Mapping[str, list[ShapeEvent]]]) -> None:
        self._phases, self._shapes = found
        self._detail()

    def here(self) -> Compile | None:
        """The compile under the cursor."""
        at = self.table.selected
        return self.snapshot.compile(str(self.table.provider.key(at))) if self.snapshot and at is not None else None

    def compile_changed(self) -> None:
        """Put the cursor on the selected compile."""
        at = self.table.provider.find(self.compile_key)
        if at is not None:
            self.table.select(at, tell=False)
            self._detail()

    def follow(self, view: LineView) -> None:
        """The detail follows."""
        if view is self.table:
            self._detail()

    def _detail(self) -> None:
        compile_ = self.here()
        if compile_ is None:
            return
        id_ = compile_.id.split("#")[0]
        phases = self._phases.get(_phase_key(id_, compile_.rank)) or self._phases.get(id_) or []
        blocks = compile_blocks(compile_, phases, self._shapes.get(compile_.key, ()))
        self.query_one(Document).show(blocks, keep=False)

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Select the compile."""
        event.stop()
        compile_ = self.here()
        if event.view is self.table and compile_ is not None:
            self.scope.select_compile(compile_.key)
            self.scope.goto("graph")

    def source_line(self) -> tuple[str, int] | None:
        """The compiled function."""
        compile_ = self.here()
        return (compile_.file, compile_.line) if compile_ and compile_.file else None

    def data(self) -> Any:
        """Seconds per compile and phase."""
        if self.snapshot is None:
            return None
        return [
            {"id": c.key, "function": c.function, "started": c.started, "seconds": c.seconds, "phases": c.phases}
            for c in self.snapshot.compiles
        ]


def when(compile_: Compile, start: float, end: float) -> list[Span]:
    """A compile's phases as a bar placed between the first start and the last end."""
    length = max(end - start, 1e-9)
    scale = CELLS / length
    begin = min(CELLS - 1, int((compile_.started - start) * scale)) if compile_.started else 0
    total = compile_.seconds or sum(compile_.phases.values())
    width = max(1, min(CELLS - begin, round(total * scale)))
    spans: list[Span] = [("\u00b7" * begin, "dim")]
    left = width
    whole = max(sum(compile_.phases.values()), 1e-9)
    for name, seconds in compile_.phases.items():
        shade, style = SHADES.get(name, ("\u2588", "dim"))
        cells = min(left, round(width * seconds / whole))
        if cells:
            spans.append((shade * cells, style))
            left -= cells
    if left:
        spans.append(("\u2588" * left, "info"))
    spans.append(("\u00b7" * (CELLS - begin - width), "dim"))
    return spans


def _phase_key(compile_id: str, rank: int | None) -> str:
    return compile_id if rank is None else f"r{rank}:{compile_id}"


def nest(events: list[dict[str, Any]], ranks: Collection[int] = ()) -> dict[str, list[Phase]]:
    """Complete trace events as (depth, name, seconds) in order of their start, by rank (their ``pid``) and compile id."""
    by_compile: dict[str, list[tuple[float, float, str]]] = {}
    for event in events:
        args = event.get("args")
        key = args.get("compile_id") if isinstance(args, dict) else None
        if event.get("ph") == "X" and isinstance(key, str) and isinstance(event.get("dur"), (int, float)):
            pid = event.get("pid")
            key = _phase_key(key, pid if pid in ranks else None)
            by_compile.setdefault(key, []).append((float(event["ts"]), float(event["dur"]), str(event.get("name"))))
    nested: dict[str, list[Phase]] = {}
    for key, found in by_compile.items():
        found.sort(key=lambda item: (item[0], -item[1]))
        ends: list[float] = []
        rows = nested.setdefault(key, [])
        for ts, dur, name in found:
            while ends and ts >= ends[-1]:
                ends.pop()
            rows.append((len(ends), name, dur / 1e6))
            ends.append(ts + dur)
    return nested
