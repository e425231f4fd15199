"""The package of docs/plugins.md, installed: a pass, a target and a finding of third parties, each in under 40 lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text("utf-8")
PARTS = re.findall(r"<!-- plugin -->\n```python\n(.*?)```", PAGE, re.DOTALL)
GROUPS = re.findall(r'\[project\.entry-points\."([\w.]+)"\]\n([\w-]+) = "([\w:]+)"', PAGE)


def install(site: Path, source: str) -> None:
    """What pip would write for the package."""
    (site / "fxscope_example.py").write_text(source)
    info = site / "fxscope_example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fxscope-example\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{name} = {value}\n" for group, name, value in GROUPS))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "\n".join(PARTS))
    return folder


@pytest.fixture(scope="module")
def chain(recorded: Callable[..., object]) -> str:
    return str(recorded(ROOT / "samples" / "fused_chain.py").path)  # type: ignore[attr-defined]


def _json(site: Path, *args: str) -> dict:  # type: ignore[type-arg]
    env = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "fxscope", *args, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_each_is_short() -> None:
    assert len(GROUPS) == len(PARTS) == 3
    assert all(len([line for line in part.split("\n") if line.strip()]) < 40 for part in PARTS)


@pytest.mark.slow
def test_the_pass(site: Path, chain: str) -> None:
    (step,) = _json(site, "passes", chain, "--graph", "0/0", "--pipeline", "relu-to-clamp")["steps"]
    assert step["pass"] == "relu-to-clamp"
    assert [match["applied"] for match in step["matches"]] == [True]
    assert step["max_abs_diff"] == 0.0
    assert "clamp" in json.dumps(step["diff"])


@pytest.mark.slow
def test_the_target(site: Path, chain: str) -> None:
    rows = {
        row["executor"]: row
        for row in _json(site, "bench", chain, "--graph", "0/0", "--executors", "eager,lookup")["rows"]
    }
    assert rows["lookup"]["kind"] == "measured"
    assert rows["lookup"]["max_abs_err"] < 1e-5
    assert rows["lookup"]["median_ms"] > 0


def test_the_finding(site: Path, chain: str) -> None:
    findings = _json(site, "diagnose", chain)["findings"]
    mine = [f for f in findings if f["ids"] == ["example-wide-graph"]]
    assert mine
    assert mine[0]["title"].endswith("tensors")


def test_a_plugin_that_raises_costs_only_itself(tmp_path: Path, chain: str) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, "def wide_graphs(recording):\n    raise RuntimeError('boom')\n")
    findings = _json(site, "diagnose", chain)["findings"]
    (failed,) = [f for f in findings if f["ids"] == ["plugin-failed"]]
    assert failed["severity"] == "info"
    assert "'wide-graphs' failed: RuntimeError: boom" in failed["title"]
