"""Rows of recompiles: what a row shares with the one before is said once."""

from __future__ import annotations

from fxscope_tui.screens.recompiles import RecompileRows, Row
from fxscope_tui.spans import plain

from fxscope.recording.records import FailedGuard, Recompile


def recompile(key: str, function: str, entries: int = 1) -> Recompile:
    failed = [FailedGuard(entry=f"0/{n}", guard="x == 4", kind="size", source="L['x']") for n in range(entries)]
    return Recompile(id=key, key=key, function=function, file="/home/me/net.py", line=12, failed=failed)


def test_a_frame_and_a_recompile_are_named_once():
    records = [recompile("0/1", "f"), recompile("0/2", "f", 2), recompile("1/1", "g")]
    rows = RecompileRows([Row(record, each, n) for n, record in enumerate(records) for each in record.failed], {})
    assert [[plain(cell) for cell in rows.row(n)[:3]] for n in range(rows.count())] == [
        ["f net.py:12", "0/1", "0/0"],
        ["", "0/2", "0/0"],
        ["", "", "0/1"],
        ["g net.py:12", "1/1", "0/0"],
    ]
    assert [plain(rows.row(n)[-1]) for n in range(4)] == ["\u21bb compiled", "\u21bb compiled", "", "\u21bb compiled"]
    assert [rows.find(rows.key(n)) for n in range(4)] == [0, 1, 2, 3]
    assert [rows.find(key) for key in (None, (9, 1), (0, 7), 3)] == [None] * 4
    assert "L['x']" in rows.text(2)
