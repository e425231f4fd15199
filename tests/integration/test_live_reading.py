"""A recording that is read while its program runs ends in what is read of it afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fxscope
from fxscope.report.document import encode_document, report_document

PROGRAM = """
import torch
@torch.compile(backend="eager", dynamic=False)
def f(x):
    return x.sin() + 1
for size in range(2, 8):
    f(torch.ones(size))
"""


@pytest.mark.slow
def test_live_recording(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    folder = tmp_path / "run.fxscope"
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(folder), str(script)]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + 200
        while not (folder / "session.json").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        recording = fxscope.open(folder)
        states, counts = [recording.session.state], [recording.totals.compiles]
        while process.poll() is None:
            assert time.monotonic() < deadline
            if recording.refresh():
                states.append(recording.session.state)
                counts.append(recording.totals.compiles)
            time.sleep(0.005)
    recording.refresh()
    assert process.returncode == 0
    assert states[0] == "live"
    assert recording.session.state == "ended"
    assert counts == sorted(counts)
    assert recording.totals.compiles == 6
    live = json.loads(encode_document(report_document(recording)))
    after = json.loads(encode_document(report_document(fxscope.open(folder))))
    assert live == after
