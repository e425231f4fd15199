"""Islands of recorded programs on a card: launched, and as near to float64 as eager."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu" / "bench_triton_islands.py"


@pytest.mark.shared
@pytest.mark.parametrize("log", ["bert_amp", "gpt2", "resnet50"])
def test_islands_are_right(log: str, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "islands.json"
    command = [
        sys.executable,
        str(BENCH),
        str(shared / "traces" / "h200"),
        "--logs",
        log,
        "--timed",
        "0",
        "--seconds",
        "200",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (entry,) = json.loads(out.read_text())
    assert entry["failed"] == []
    assert len(entry["checked"]) == entry["islands"] > 0
    assert [row for row in entry["checked"] if not row["right"]] == []
