"""A scrubbed log still diagnoses: the same findings at the same lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fxscope.diagnosis.diagnose import diagnose
from fxscope.recording.recording import open_recording
from fxscope.report.scrub import scrub
from fxscope.report.scrub_rules import TOPICS

LOGS = [
    "models/GPT2",
    "models/SwitchTransformers",
    "models/Encodec",
    "models/Mixtral",
    "h200/bert_amp",
    "h200/ranks_ddp",
]


@pytest.mark.shared
@pytest.mark.parametrize("name", LOGS)
def test_findings_survive(shared: Path, tmp_path: Path, name: str) -> None:
    original = open_recording(shared / "traces" / name)
    scrub(shared / "traces" / name, tmp_path / "out", frozenset(TOPICS))
    copy = open_recording(tmp_path / "out")
    assert copy.totals == original.totals
    before, after = (Counter((tuple(f.ids), f.line) for f in diagnose(r)) for r in (original, copy))
    assert before
    assert after == before
