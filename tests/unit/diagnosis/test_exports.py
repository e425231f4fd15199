"""Findings about an export: what it assumed, and fake kernels; never that nothing was compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.diagnosis.diagnose import diagnose
from fxscope.recording.recording import open_recording

HEAD = "V1129 11:59:38.304000 440 x.py:1] "


@pytest.mark.shared
def test_what_tlparse_calls_the_one_issue_is_the_one_finding(shared: Path) -> None:
    (finding,) = diagnose(open_recording(shared / "traces" / "tlparse" / "export.log"))
    assert finding.ids == ["export-data-dependent"]
    assert finding.title == "export decided that Eq((((-u0)//3)) + 5, 0) is False at test_draft_export.py:279"
    assert finding.code == "return z[:a]"
    assert "torch._check(not (Eq((((-u0)//3)) + 5, 0)))" in finding.fix
    assert any(note.text == "made by -u0 = neg(u0)" for note in finding.evidence)


@pytest.mark.parametrize(
    ("event", "verb"), [("missing_fake_kernel", "Register"), ("mismatched_fake_kernel", "Correct")]
)
def test_fake_kernels(event: str, verb: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f'{HEAD}{{"{event}": {{"op": "my.sort.default", "reason": "why"}}}}\n')
    (finding,) = diagnose(open_recording(tmp_path / "a.log"))
    assert finding.ids == ["export-fake-kernel"]
    assert finding.fix.startswith(f'{verb} it: @torch.library.register_fake("my::sort")')
    assert finding.cause.endswith(": why.")
