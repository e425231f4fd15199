"""What is kept of a setting where breaks of a package are told as one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fxscope.diagnosis.breaks import findings
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.recompiles import _finding
from fxscope.diagnosis.story import Frame
from fxscope.recording.records import GraphBreak

SESSION = SimpleNamespace(path="run", argv=["infer.py"], cwd=None, options={})
SETTING = "torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{})"


def logged(line: int, method: str = "info") -> GraphBreak:
    return GraphBreak(
        site=f"boxes.py:{line}",
        file="/opt/python/site-packages/acme/boxes.py",
        line=line,
        code=f"logger.{method}(x)",
        gb_id="GB0291",
        kind="logging.Logger method not supported for non-export cases",
        explanation=f"method: <bound method Logger.{method} of <Logger acme (WARNING)>>.{method}",
        context=f"method: <bound method Logger.{method} of <Logger acme (WARNING)>>.{method}",
        user_file="/home/me/infer.py",
        user_line=7,
        user_code="out = model(x)",
    )


def branch(line: int) -> GraphBreak:
    row = logged(line)
    row.gb_id, row.kind, row.code, row.context, row.explanation = (
        "GB0170",
        "Data-dependent branching",
        "if x.any():",
        "",
        "",
    )
    return row


def found(rows: list[GraphBreak]) -> list[tuple[int, bool, bool]]:
    """Of each finding: lines, and whether it names the setting of ``info`` and of ``error``."""
    recording: Any = SimpleNamespace(graph_breaks=rows, compiles=[], totals=SimpleNamespace(graphs=2), session=SESSION)
    return sorted(
        (len(each.evidence), SETTING.format("info") in each.fix, SETTING.format("error") in each.fix)
        for each in findings(Context(recording))
    )


def test_a_setting_is_the_fix_of_however_many_lines() -> None:
    assert found([logged(line) for line in (3, 5, 7, 9)]) == [(4, True, False)]
    rows = [branch(line) for line in (11, 12, 13, 14)] + [logged(line) for line in (3, 5, 7, 9)]
    assert found(rows) == [(4, False, False), (4, True, False)]
    assert found([*rows[:4], logged(3), logged(5, "error")]) == [(1, False, True), (1, True, False), (4, False, False)]


def test_a_setting_for_what_comes_then_at_the_same_line_is_kept() -> None:
    rows = [row for line in (3, 5, 7, 9) for row in (branch(line), logged(line))]
    assert found(rows) == [(8, True, False)]


@pytest.mark.parametrize("inner", [True, False])
def test_a_limit_without_reasons_says_what_it_means(inner: bool) -> None:
    file = "/opt/python/site-packages/acme/a.py"
    frame = Frame(function="forward", file=file, line=3, place=("/home/me/t.py", 3), inner=inner, refused=True)
    recording: Any = SimpleNamespace(session=SESSION, compiles=[], artifacts=[])
    fix = _finding(Context(recording), frame).fix
    assert "recompile limit" in fix.partition("\nIn acme itself:")[2 if inner else 0].lower()
    assert fix.startswith("The code there belongs to acme") == inner
