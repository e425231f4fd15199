"""Draft export: what it had to assume, where, and how the expression came about."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.recording.export import read_export
from fxscope.recording.recording import open_recording


@pytest.mark.shared
def test_a_draft_export(shared: Path) -> None:
    recording = open_recording(shared / "traces" / "tlparse" / "export.log")
    report = read_export(recording)
    assert report is not None
    assert [i.kind for i in report.issues] == [
        "guard",
        "guard",
        "data-dependent",
        "guard",
        "guard",
        "guard",
        "guard",
        "guard",
    ]
    assert all(i.line is not None and i.line.file.endswith("test_draft_export.py") for i in report.issues)
    decision = report.issues[2]
    assert (decision.expression, decision.result) == ("Eq((((-u0)//3)) + 5, 0)", "False")
    assert decision.line is not None
    assert (decision.line.line, decision.line.code) == (279, "return z[:a]")
    assert decision.variables["a"] == "(((-u0)//3)) + 5"
    assert decision.sources == {"s0": "L['args'][0][1].size()[0]"}
    assert [(s.method, s.result, s.line and s.line.line) for s in decision.history][:4] == [
        ("symbol", "u0", 269),
        ("neg", "-u0", 270),
        ("int_floordiv", "((-u0)//3)", 271),
        ("add", "(((-u0)//3)) + 5", 272),
    ]
    (program,) = report.programs
    assert recording.text(program).startswith("ExportedProgram:")


@pytest.mark.shared
def test_guards_of_torch_compile_are_no_export(shared: Path) -> None:
    assert read_export(open_recording(shared / "traces" / "h200" / "gpt2")) is None


def test_missing_fake_kernels_repeat_once(tmp_path: Path) -> None:
    line = 'V1129 11:59:38.304000 440 x.py:1] {"missing_fake_kernel": {"op": "my::sort", "reason": "no fake impl"}}\n'
    (tmp_path / "a.log").write_text(line * 3)
    report = read_export(open_recording(tmp_path / "a.log"))
    assert report is not None
    assert [(i.kind, i.op, i.reason, i.count) for i in report.issues] == [
        ("missing-fake-kernel", "my::sort", "no fake impl", 3)
    ]
