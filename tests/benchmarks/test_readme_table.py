"""The figures of README's table, measured with the commands that it names: ``python -m pytest -m bench -s tests/benchmarks/test_readme_table.py``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.big_log import write_big_log
from tests.benchmarks.test_reading_speed import REPORT, TLPARSE, cpu_seconds, interleaved, source

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1500)]
ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "graph_breaks.py"
EXPLAIN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from graph_breaks import Model
told = torch._dynamo.explain(Model())(torch.randn(32, 64))
print(told.graph_break_count, sum("generic_jump" in reason.reason for reason in told.break_reasons))
"""


def row(name: str) -> list[str]:
    """Cells of one row of README's table."""
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_each_tool_says_of_the_sample(tmp_path: Path) -> None:
    env = {**os.environ, "TORCH_TRACE": str(tmp_path / "trace"), "TORCH_LOGS": "graph_breaks,recompiles"}
    logs = subprocess.run([sys.executable, str(SAMPLE)], env=env, capture_output=True, text=True, check=True).stderr
    messages = len(re.findall(r"Graph break in user code at", logs))
    short = len(re.findall(r"Graph break \(user stack suppressed", logs))
    recompiles = len(re.findall(r"Recompiling function", logs))
    totals = json.loads(subprocess.check_output([*REPORT, "--json", str(tmp_path / "trace")]))["totals"]
    (log,) = (tmp_path / "trace").iterdir()
    subprocess.run([TLPARSE, str(log), "-o", str(tmp_path / "out"), "--no-browser"], check=True, capture_output=True)
    page = (tmp_path / "out" / "failures_and_restarts.html").read_text()
    restarts = page.split("<tr>")[2:]  # behind the heads of the columns
    lined = sum("graph_breaks.py" in each for each in restarts)
    told = subprocess.check_output(
        [sys.executable, "-c", EXPLAIN, str(SAMPLE.parent)], text=True, stderr=subprocess.DEVNULL
    ).split()[-2:]
    cells = {
        "fxscope": f"{totals['graph_breaks']} events at {totals['break_sites']} lines",
        "tlparse": f"{len(restarts)} restarts, {lined} with their line",
        "TORCH_LOGS": f"{messages} messages, {short} more of one line",
        "explain": f"{told[0]} of 1 call, {told[1]} of them `generic_jump TensorVariable()`",
    }
    print(f"\n{cells}\nrecompiles: fxscope {totals['recompiles']}, TORCH_LOGS {recompiles}")
    assert row("breaks of the sample")[1:5] == list(cells.values())
    assert (totals["recompiles"], recompiles) == (1, 1)
    assert f"{totals['graph_breaks']} break events at {totals['break_sites']} lines, 1 recompile" in (
        ROOT / "README.md"
    ).read_text().replace("\n", " ")


@pytest.mark.shared
def test_seconds_of_a_report(shared: Path, tmp_path: Path) -> None:
    """CPU seconds of both on one log, medians of three pairs in turns; README has what this prints on an idle machine."""
    size = write_big_log(source(shared), tmp_path / "big.log", 100)
    peer = [TLPARSE, str(tmp_path / "big.log"), "-o", str(tmp_path / "out"), "--overwrite", "--no-browser"]
    theirs, ours = interleaved(lambda: cpu_seconds(peer), lambda: cpu_seconds([*REPORT, str(tmp_path / "big.log")]), 3)
    print(f"\n{size / 1e6:.0f} MB: fxscope report {ours:.2f}, tlparse {theirs:.2f} s CPU")
    told = row(f"report of {size / 1e6:.0f} MB")
    assert theirs / ours >= 0.7 * float(told[2]) / float(told[1])
