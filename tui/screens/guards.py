"""Guards: the tree of one entry, what each checks and who asked for it, with the ones that failed marked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import ComposeResult

from fxscope.recording.records import FailedGuard, Guard, Recompile

from ..guard_failures import failures
from ..spans import Cell, Span
from ..store import Snapshot
from ..widgets.document import Block, Document
from ..widgets.filtering import Field
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .pick import PickScreen
from .view import View, fact


class GuardRows:
    """Row provider over a flattened guard tree."""

    columns = (
        Column("", 2, keep=8),
        Column("type", keep=7, limit=34),
        Column("check", flex=True, keep=9),
        Column("source", keep=4, limit=36),
        Column("asked by", keep=6, limit=28, middle=True),
    )

    def __init__(
        self, guards: Sequence[tuple[Guard, int]], failed: dict[int, list[tuple[Recompile, FailedGuard]]]
    ) -> None:
        self.guards = guards
        self.failed = failed

    @property
    def fields(self) -> Mapping[str, Field]:
        """What filters can be about: ``type:tensor_match``, ``src:x`` (a name in the source), ``line:42``, ``file:model``."""

        def asked(row: int) -> tuple[str, str]:
            where = self.guards[row][0].asked
            return (str(where.line), where.site.lower()) if where else ("", "")

        return {
            "type": lambda row, word: word in self.guards[row][0].type.lower(),
            "src": lambda row, word: begins_a_name(self.guards[row][0].source.lower(), word),
            "line": lambda row, word: word == asked(row)[0],
            "file": lambda row, word: word in asked(row)[1],
        }

    def count(self) -> int:
        """Number of guards and managers."""
        return len(self.guards)

    def row(self, index: int) -> Sequence[Cell]:
        """Cells of a guard."""
        guard, depth = self.guards[index]
        failed = self.failed.get(index)
        mark: Span = ("\u2716", "bad") if failed else ("", "")
        check: list[Span] = [(guard.expression, "" if guard.type else "dim")]
        if failed:
            record, detail = failed[0]
            values = f" had {detail.expected}, got {detail.actual}" if detail.actual is not None else ""
            check = [
                (f"{values.strip()} \u2192 {record.key}" if values else f"failed \u2192 {record.key}", "bad"),
                ("  ", ""),
                *check,
            ]
            if len(failed) > 1:
                check.insert(1, (f" (+{len(failed) - 1})", "bad"))
        label = guard.type or "\u00b7"
        return (
            mark,
            [("\u2502 " * depth, "dim"), (label, "accent" if guard.type else "dim")],
            check,
            (guard.source, "name"),
            (guard.asked.site if guard.asked else "", "dim"),
        )

    def text(self, index: int) -> str:
        """Type, check, source and user line, for the filter."""
        guard, _ = self.guards[index]
        asked = f"{guard.asked.site} {guard.asked.code}" if guard.asked else ""
        return f"{guard.type} {guard.expression} {guard.source} {asked} {'failed' if index in self.failed else ''}"

    def key(self, index: int) -> object:
        """Its number."""
        return index

    def find(self, key: object) -> int | None:
        """The row of that number."""
        return key if isinstance(key, int) and key < len(self.guards) else None


class GuardsView(View):
    """The guards of the selected compile."""

    NAME = "guards"
    TERMS = "An entry runs only if all its guards hold; else the frame is recompiled."
    EMPTY = "No guards were logged for this compile.\n\nSelect another compile in the tree (t); failed and restarted ones have none."
    DEFAULT_CSS = """
    GuardsView #guards-table { height: 1fr; }
    GuardsView #guards-detail { height: 7; border-top: solid $surface-lighten-2; }
    """
    about_compile = True

    def __init__(self) -> None:
        super().__init__()
        self._all: GuardRows | None = None
        self._only_failed = False
        self._shown_key: str | None = None
        self._recompiles = -1

    def body(self) -> ComposeResult:
        """Table and detail."""
        yield VirtualTable(id="guards-table").add_class("body")
        yield Document(id="guards-detail").add_class("body")

    @property
    def table(self) -> VirtualTable:
        """The guards."""
        return self.query_one(VirtualTable)

    def take(self, snapshot: Snapshot) -> None:
        """A live run may have more recompiles."""
        self.snapshot = snapshot
        if len(snapshot.recompiles) != self._recompiles or self._all is None:
            self._recompiles = len(snapshot.recompiles)
            self.compile_changed()

    def compile_changed(self) -> None:
        """Read the guards of another compile."""
        snapshot = self.snapshot
        compile_ = snapshot.compile(self.compile_key) if snapshot else None
        if snapshot is None or compile_ is None:
            self.empty()
            return
        store = self.scope.store

        def job() -> GuardRows:
            guards = flatten(store.guards(compile_))
            return GuardRows(guards, failures(guards, snapshot, compile_.key))

        self.load(job, self._show)

    def _show(self, rows: GuardRows) -> None:
        if not rows.guards:
            self._all = None
            self.empty()
            return
        self.filled()
        self._all = rows
        self._fill()

    def _fill(self) -> None:
        rows = self._all
        if rows is None:
            return
        if self._only_failed and not rows.failed:
            self._only_failed = False
        self.table.show(rows)
        self.table.filter("failed" if self._only_failed else self.table.filter_text)
        checks = sum(1 for guard, _ in rows.guards if guard.type)
        types = len({guard.type for guard, _ in rows.guards if guard.type})
        self.tell(
            fact("entry", self.compile_key),
            fact("checks", f"{checks:,}"),
            fact("types", types),
            fact("failed later", len(rows.failed), "bad" if rows.failed else ""),
        )
        self._detail()

    def show_record(self, kind: str, index: int) -> None:
        """Go to the first guard that failed in a recompile."""
        self._seek = index
        self._seek_failed()

    _seek = -1

    def _seek_failed(self) -> None:
        rows = self._all
        if rows is None or self._seek < 0 or self.snapshot is None or self._seek >= len(self.snapshot.recompiles):
            return
        record = self.snapshot.recompiles[self._seek]
        for number, found in rows.failed.items():
            if any(item is record for item, _ in found):
                self._seek = -1
                self.table.select(number)
                self._detail()
                return

    def do_failed(self) -> None:
        """Only those that failed, and back."""
        if self._all is not None and not self._all.failed:
            self.notify("no guard of this entry failed")
            return
        self._only_failed = not self._only_failed
        self.table.filter("failed" if self._only_failed else "")

    def do_types(self) -> None:
        """Count the types; picking one filters by it."""
        if self._all is None:
            return
        counted = Counter(guard.type for guard, _ in self._all.guards if guard.type).most_common()
        most = counted[0][1] if counted else 1
        rows = [
            (name, f"{number:,}", ("\u2588" * max(1, round(20 * number / most)), "info")) for name, number in counted
        ]
        columns = (Column("type", keep=9, limit=60), Column("guards", right=True, keep=9), Column("", 20))

        def done(picked: int | None) -> None:
            if picked is not None:
                self._only_failed = False
                self.table.filter(f"type:{counted[picked][0].lower()}")

        note = "enter shows one type; / takes type:, src:, line: and file: as well"
        self.app.push_screen(PickScreen("Guards by type", Rows(columns, rows), note), done)

    def follow(self, view: LineView) -> None:
        """The detail follows."""
        if view is self.table:
            self._detail()

    def _detail(self) -> None:
        if self._seek >= 0:
            self._seek_failed()
        at, rows = self.table.selected, self._all
        if at is None or rows is None or at >= rows.count():
            return
        guard, _ = rows.guards[at]
        lines: list[Cell] = [
            [(guard.type or "no check of its own", "accent"), (f"   {guard.source}", "name")],
            guard.expression,
        ]
        if guard.asked is not None:
            lines.append(
                [("asked by ", "dim"), (guard.asked.site, "name"), (f"  {guard.asked.code.strip()}", "string")]
            )
        for record, failed in rows.failed.get(at, ()):
            had = f": had {failed.expected}, got {failed.actual}" if failed.actual is not None else ""
            lines.append([("\u2716 failed", "bad"), (f"{had} \u2192 {record.key} ({record.outcome})", "")])
        self.query_one(Document).show([Block(lines, None, 2)], keep=False)

    def source_line(self) -> tuple[str, int] | None:
        """Who asked for the guard."""
        at, rows = self.table.selected, self._all
        if at is None or rows is None:
            return None
        asked = rows.guards[at][0].asked
        return (asked.file, asked.line) if asked else None

    def data(self) -> Any:
        """The guards."""
        return [guard for guard, depth in self._all.guards if depth == 0] if self._all else None


def begins_a_name(source: str, word: str) -> bool:
    """Whether a name in a source begins so: ``x`` is found in ``L['x'].size()``, not in ``G['max']``."""
    return re.search(rf"(?<!\w){re.escape(word)}", source) is not None


def flatten(roots: Sequence[Guard]) -> list[tuple[Guard, int]]:
    """A guard tree as rows with their depth."""
    rows: list[tuple[Guard, int]] = []
    waiting = [(guard, 0) for guard in reversed(roots)]
    while waiting:
        guard, depth = waiting.pop()
        rows.append((guard, depth))
        waiting.extend((child, depth + 1) for child in reversed(guard.children))
    return rows
