"""Every sample runs by itself, has main(), and its good variant is healthy."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fxscope.diagnosis.diagnose import diagnose
from fxscope.recording.recording import open_recording

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
PARALLEL = {"two_ranks.py", "parallel_transformer.py"}  # tests/integration/test_run_program.py launches these
BIG = {"gpt2.py", "resnet50.py"}  # recorded and checked by their own tests
# Run, with and without recording, by test_parity_cases.py; and by the pages of docs/ that show them.
ELSEWHERE = {"graph_breaks.py", "limit_hit.py", "recompile_storm.py", "conv_net.py", "fused_chain.py"}
SCRIPTS = sorted(path.name for path in SAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_sample_says_what_it_shows(name: str) -> None:
    tree = ast.parse((SAMPLES / name).read_text("utf-8"))
    docstring = ast.get_docstring(tree) or ""
    assert len(docstring.split("\n")[0]) > 30
    assert "fxscope" in docstring
    assert any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in PARALLEL | BIG | ELSEWHERE])
def test_a_sample_runs_alone(name: str, tmp_path: Path) -> None:
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(SAMPLES / name)],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout


@pytest.mark.slow
def test_rewrites_give_the_same_results_in_one_graph_each(recorded: Callable[..., object]) -> None:
    bad, good = recorded(SAMPLES / "break_rewrites.py"), recorded(SAMPLES / "break_rewrites.py", "--fixed")
    lines = [
        [line for line in run.stdout.split("\n") if line and not line.startswith("mean ")]  # type: ignore[attr-defined]
        for run in (bad, good)
    ]
    assert lines[0] == lines[1]
    before, after = open_recording(bad.path), open_recording(good.path)  # type: ignore[attr-defined]
    assert before.totals.break_sites == 4
    assert (after.totals.graph_breaks, after.totals.graphs) == (0, 4)
    assert [finding.title for finding in diagnose(after) if finding.severity != "info"] == []
