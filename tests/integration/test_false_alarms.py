"""Healthy programs get no finding that asks for a change: the samples' good variants, and ordinary training and inference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fxscope
from fxscope.diagnosis.diagnose import diagnose

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "diagnosis"
HEALTHY = sorted(path.stem for path in (DATA / "healthy").glob("*.py"))
# As other tests record them, so that each runs once.
SAMPLES = [
    ("break_rewrites.py", ("--fixed",), ()),
    ("conv_net.py", (), ("--save-tensors",)),
    ("fused_chain.py", (), ()),
    ("resnet50.py", ("--size", "32"), ("--backend", "eager")),
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def alarms(path: Path) -> list[tuple[str, str, list[str]]]:
    """Findings of severity medium or high: what a user would take for a fault."""
    return [
        (finding.severity, finding.site, finding.ids)
        for finding in diagnose(fxscope.open(path))
        if finding.severity in ("high", "medium")
    ]


@pytest.fixture(scope="module")
def healthy(store: Path) -> Path:
    """The ordinary programs, recorded by one process once per test run."""
    from filelock import FileLock

    folder = store / "healthy"
    with FileLock(str(folder) + ".lock"):
        if not (folder / "facts.json").exists():
            folder.mkdir(exist_ok=True)
            done = subprocess.run(
                [
                    sys.executable,
                    "-W",
                    "ignore",
                    str(DATA / "run_scripts.py"),
                    str(folder),
                    *(str(DATA / "healthy" / f"{name}.py") for name in HEALTHY),
                ],
                capture_output=True,
                text=True,
                timeout=600,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", HEALTHY)
def test_an_ordinary_program_is_left_alone(healthy: Path, name: str) -> None:
    assert json.loads((healthy / "facts.json").read_text())[name] is None  # it ran to its end
    recording = fxscope.open(healthy / f"{name}.fxscope")
    assert recording.totals.graphs > 0
    assert alarms(healthy / f"{name}.fxscope") == []


@pytest.mark.parametrize(("script", "arguments", "options"), SAMPLES, ids=[sample[0] for sample in SAMPLES])
def test_a_good_sample_is_left_alone(
    recorded: Callable[..., Any], script: str, arguments: tuple[str, ...], options: tuple[str, ...]
) -> None:
    run = recorded(ROOT / "samples" / script, *arguments, options=options)
    assert run.exit_code == 0, run.stderr[-2000:]
    assert fxscope.open(run.path).totals.graphs > 0
    assert alarms(run.path) == []
