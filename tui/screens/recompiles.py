"""Recompiles: per frame which entries failed which guards, and the story in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from textual.app import ComposeResult

from fxscope.recording.records import Compile, FailedGuard, LimitHit, Recompile
from fxscope.words import count

from ..frames import seconds_text, site
from ..spans import Cell, plain
from ..store import Snapshot
from ..widgets.document import Block, Document, heading
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, VirtualTable
from .view import View, fact


class Row(NamedTuple):
    """One row: an entry that did not match, of one recompile."""

    record: Recompile
    failed: FailedGuard | None
    number: int  # of the record


class RecompileRows:
    """Row provider over the failed entries, in order of frames; cells are made for what is in sight."""

    columns = (
        Column("frame", keep=7, limit=34, middle=True),
        Column("recompile", keep=9),
        Column("entry", keep=8),
        Column("kind", keep=3, limit=12),
        Column("source", keep=6, limit=30),
        Column("had", keep=9, limit=20),
        Column("got", keep=9, limit=20),
        Column("guard", flex=True, keep=2),
        Column("asked by", keep=1, limit=26, middle=True),
        Column("then", keep=5),
    )

    def __init__(self, rows: Sequence[Row], compiles: Mapping[str, Compile]) -> None:
        self.rows = rows
        self.compiles = compiles

    def count(self) -> int:
        """Number of failed entries."""
        return len(self.rows)

    def row(self, index: int) -> Sequence[Cell]:
        """Cells of a failed entry; what it shares with the row before is left out."""
        record, failed = self.rows[index].record, self.rows[index].failed
        before = self.rows[index - 1].record if index else None
        frame: Cell = ""
        if before is None or _frame(before) != _frame(record):
            frame = [(record.function, "strong"), (f" {site(record.file, record.line)}", "dim")]
        first = before is not record
        return (
            frame,
            record.key if first else "",
            failed.entry if failed else "",
            (failed.kind if failed else "", "accent"),
            failed.source or "" if failed else "",
            (failed.expected or "", "good") if failed else "",
            (failed.actual or "", "bad") if failed else "",
            failed.guard if failed else ("no guard was logged", "dim"),
            (site(failed.asked_file, failed.asked_line or 0) if failed and failed.asked_file else "", "name"),
            _then(record, self.compiles.get(record.key)) if first else "",
        )

    def text(self, index: int) -> str:
        """All cells, for the filter."""
        return " ".join(plain(cell) for cell in self.row(index))

    def key(self, index: int) -> object:
        """Its record, and which row of all it is."""
        return self.rows[index].number, index

    def find(self, key: object) -> int | None:
        """The row with that key."""
        at = key[1] if isinstance(key, tuple) else -1
        return at if 0 <= at < len(self.rows) and self.key(at) == key else None


class RecompilesView(View):
    """A row per failed entry; below, the story of the frame under the cursor."""

    NAME = "recompiles"
    TERMS = "No cached entry's guards matched a call. Past the limit, calls run uncompiled."
    EMPTY = "No recompiles.\n\nEvery call so far matched the guards of an entry that was already compiled."
    DEFAULT_CSS = """
    RecompilesView #recompiles-table { height: 3fr; min-height: 4; }
    RecompilesView #recompiles-story { height: 2fr; border-top: solid $surface-lighten-2; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Row] = []
        self._frames: list[tuple[int, str, int, str]] = []  # of the records

    def body(self) -> ComposeResult:
        """Table and story."""
        yield VirtualTable(id="recompiles-table").add_class("body")
        yield Document(id="recompiles-story").add_class("body")

    @property
    def table(self) -> VirtualTable:
        """The failed entries."""
        return self.query_one(VirtualTable)

    def take(self, snapshot: Snapshot) -> None:
        """List what failed."""
        self.snapshot = snapshot
        if not snapshot.recompiles and not snapshot.limit_hits:
            self._rows, self._frames = [], []
            self.empty(snapshot.error)
            return
        self.filled()
        records = snapshot.recompiles
        self._frames = frames = [_frame(record) for record in records]
        order = sorted(range(len(records)), key=lambda number: (frames[number], records[number].started, number))
        compiles = {compile_.key: compile_ for compile_ in snapshot.compiles}
        self._rows = [Row(records[n], failed, n) for n in order for failed in (records[n].failed or [None])]  # type: ignore[list-item]
        self.table.show(RecompileRows(self._rows, compiles))
        totals = snapshot.totals
        self.tell(
            fact("recompiles", totals.recompiles),
            fact("frames", len(set(frames))),
            fact("limit hits", totals.limit_hits, "bad" if totals.limit_hits else ""),
        )
        self._story()

    def here(self) -> Row | None:
        """The row under the cursor."""
        at = self.table.selected
        return self._rows[at] if at is not None and at < len(self._rows) else None

    def show_record(self, kind: str, index: int) -> None:
        """Put the cursor on a recompile, or on the frame of a limit hit."""
        if kind == "limit" and self.snapshot and index < len(self.snapshot.limit_hits):
            hit = self.snapshot.limit_hits[index]
            rows = [n for n, row in enumerate(self._rows) if (row.record.file, row.record.line) == (hit.file, hit.line)]
        else:
            rows = [number for number, row in enumerate(self._rows) if row.number == index]
        if rows:
            self.table.select(rows[-1] if kind == "limit" else rows[0])
            self._story()

    def follow(self, view: LineView) -> None:
        """The story follows."""
        if view is self.table:
            self._story()

    def _story(self) -> None:
        row, snapshot = self.here(), self.snapshot
        if snapshot is None:
            return
        if row is None:  # limit hits alone
            lines: list[Cell] = [_limit_line(hit) for hit in snapshot.limit_hits]
            self.query_one(Document).show([Block([("LIMIT", "accent"), *lines])], keep=False)
            return
        record = row.record
        same = [
            item
            for item, frame in zip(snapshot.recompiles, self._frames, strict=True)
            if frame == self._frames[row.number]
        ]
        compiled = sum(item.outcome == "compiled" for item in same)
        entries = sum(
            compile_.file == record.file
            and compile_.line == record.line
            and compile_.function == record.function
            and compile_.rank == record.rank
            and compile_.status in ("ok", "empty")
            for compile_ in snapshot.compiles
        )
        again = {item.key for item in same}
        seconds = sum(compile_.seconds or 0.0 for compile_ in snapshot.compiles if compile_.key in again)
        lines = [
            [
                ("  ", ""),
                (f"{record.function}", "strong"),
                (f" ({site(record.file, record.line)})", "name"),
                (f" was compiled again {count(compiled, 'time')}", ""),
                (f", {seconds:.1f} s of compiling" if seconds else "", ""),
                (f"; {entries} entries are cached", ""),
                (f"; {len(same) - compiled} refused" if len(same) > compiled else "", "bad"),
            ]
        ]
        for source, kinds in _by_source(same).items():
            values = " \u2192 ".join(
                dict.fromkeys(value for failed in kinds for value in (failed.expected, failed.actual) if value)
            )
            asked = next((failed for failed in kinds if failed.asked_file), None)
            where = f", asked for by {site(asked.asked_file or '', asked.asked_line or 0)}" if asked else ""
            lines.append(
                [
                    ("  ", ""),
                    (source or kinds[0].guard, "accent"),
                    (f"  {kinds[0].kind}, failed {len(kinds)}\u00d7{where}", "dim"),
                ]
                + ([(f"   {values[:200]}", "")] if values else [])
            )
        lines += [_limit_line(hit) for hit in snapshot.limit_hits if (hit.file, hit.line) == (record.file, record.line)]
        blocks = [Block([("STORY", "accent"), *lines], None, 6)]
        finding = next(
            (
                finding
                for finding in snapshot.findings
                if any(item.kind == "recompile" and item.index == row.number for item in finding.evidence)
            ),
            None,
        )
        if finding is not None and finding.cause:
            blocks.append(Block(["", [("  ", ""), (finding.cause, "")]], None, 2))
        elif record.cause:
            blocks.append(Block([[("  cause ", "dim"), (record.cause, "")]], None, 8))
        fix = (finding.fix if finding is not None else "") or record.fix or ""
        if fix:
            blocks.append(
                Block(
                    [
                        "",
                        *[
                            [("  fix   " if not n else "        ", "good"), (line, "")]
                            for n, line in enumerate(fix.split("\n"))
                        ],
                    ],
                    None,
                    8,
                )
            )
        if row.failed is not None:
            blocks.append(heading("GUARD", "as logged"))
            blocks.append(Block([[("  ", ""), (row.failed.guard, "string")]], None, 4))
        self.query_one(Document).show(blocks, keep=False)

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Go to the guards of the entry."""
        event.stop()
        row = self.here()
        if event.view is not self.table or row is None or self.snapshot is None:
            return
        entry = row.failed.entry if row.failed else row.record.key
        prefix = row.record.key[: len(row.record.key) - len(row.record.id)]
        for key in (f"{prefix}{entry}", entry, row.record.key):
            found = next(
                (c.key for c in reversed(self.snapshot.compiles) if c.key == key or c.key.startswith(f"{key}_")), None
            )
            if found:
                self.scope.select_compile(found)
                self.scope.goto("guards", "failed", row.number)
                return
        self.notify(f"the entry {entry} left no compile record")

    def source_line(self) -> tuple[str, int] | None:
        """Who asked for the guard, else the function."""
        row = self.here()
        if row is None:
            return None
        if row.failed is not None and row.failed.asked_file:
            return row.failed.asked_file, row.failed.asked_line or 1
        return (row.record.file, row.record.line) if row.record.file else None

    def data(self) -> Any:
        """Recompiles and limit hits."""
        if self.snapshot is None:
            return None
        return {"recompiles": self.snapshot.recompiles, "limit_hits": self.snapshot.limit_hits}


def _then(record: Recompile, compile_: Compile | None) -> Cell:
    if record.outcome == "refused":
        return ("\u2298 refused", "bad")
    return (
        "\u21bb " + (seconds_text(compile_.seconds) if compile_ and compile_.seconds is not None else "compiled"),
        "warn",
    )


def _frame(record: Recompile) -> tuple[int, str, int, str]:
    return (-1 if record.rank is None else record.rank, record.file, record.line, record.function)


def _by_source(records: list[Recompile]) -> dict[str, list[FailedGuard]]:
    """Failed guards by what they check, the most frequent first."""
    found: dict[str, list[FailedGuard]] = {}
    for record in records:
        for failed in record.failed[:1]:  # the newest entry; the older ones repeat it
            found.setdefault(failed.source or failed.guard, []).append(failed)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _limit_line(hit: LimitHit) -> Cell:
    value = f" of {hit.value}" if hit.value is not None else ""
    return [
        ("  \u2298 ", "bad"),
        (f"{hit.limit.replace('_', ' ')}{value} reached", "bad"),
        (
            f" by {hit.function} ({site(hit.file, hit.line)}): calls that match no entry run without compiling from then on",
            "",
        ),
    ]
