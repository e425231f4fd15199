"""Recording changes nothing: every case behaves as without us, and compiles as often as torch says it does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.versions_of_torch import truth_of_torch

ROOT = Path(__file__).resolve().parents[2]
TRUTH = Path(os.environ.get("FXSCOPE_SHARED", ROOT.parent / "shared")) / "cases" / "truth.json"
CASES = truth_of_torch(json.loads(TRUTH.read_text())) if TRUTH.exists() else {}
SAMPLES = ["graph_breaks.py", "recompile_storm.py", "limit_hit.py"]


def settled(text: str, *folders: Path) -> str:
    """Output without what differs between any two runs: times, process ids, addresses, temporary folders."""
    for folder in folders:
        text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"\b([VIWE])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ", r"\1 ", text)
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"__compiled_fn_\w+", "__compiled_fn", text)
    return re.sub(r"\d+\.\d+ ?(ms|us|s)\b", "TIME", text)


def plain(script: Path, folder: Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=280, check=False
    )


@pytest.mark.shared
@pytest.mark.parametrize("case", CASES)
def test_a_case_compiles_as_often_as_without_us(
    case: str, shared: Path, recorded: Callable[..., Any], log_events: Callable[[Path], list[tuple[dict, str]]]
) -> None:
    truth = CASES[case]["measured"]
    run = recorded(shared / "cases" / CASES[case]["script"])
    counts: Counter[str] = Counter()
    for log in run.path.glob("*.log"):
        for envelope, _ in log_events(log):
            counts[envelope.get("artifact", {}).get("name") or next(iter(envelope))] += 1
    assert run.exit_code == truth["exit_code"], run.stderr
    assert {
        "graphs": counts["dynamo_output_graph"],
        "break_events": counts["dynamo_graph_break_reason"],
        "recompile_records": counts["recompile_reasons"],
        "limit_hits": counts["fxscope.limit"],
    } == {name: truth[name] for name in ("graphs", "break_events", "recompile_records", "limit_hits")}
    assert counts["fxscope.failure"] == (truth["exception"] is not None)
    assert counts["fxscope.graph"] >= counts["dynamo_output_graph"]


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_case_prints_and_ends_as_without_us(
    case: str, shared: Path, recorded: Callable[..., Any], tmp_path: Path
) -> None:
    script = shared / "cases" / CASES[case]["script"]
    run, without = recorded(script), plain(script, tmp_path)
    assert run.exit_code == without.returncode
    ours, theirs = settled(run.stdout, run.path.parent), settled(without.stdout, tmp_path)
    if "manual_seed" not in script.read_text():  # random weights: any two runs print other numbers
        ours, theirs = (re.sub(r"-?\d+\.\d+(e-?\d+)?", "NUMBER", text) for text in (ours, theirs))
    assert ours == theirs
    assert settled(run.stderr, run.path.parent) == settled(without.stderr, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_prints_and_ends_as_without_us(sample: str, recorded: Callable[..., Any], tmp_path: Path) -> None:
    script = ROOT / "samples" / sample
    run, without = recorded(script), plain(script, tmp_path)
    assert (run.exit_code, without.returncode) == (0, 0)
    assert settled(run.stdout) == settled(without.stdout)
    assert settled(run.stderr, run.path.parent) == settled(without.stderr, tmp_path)
