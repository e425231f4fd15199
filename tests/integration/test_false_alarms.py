"""Healthy programs get no finding that asks for a change: ordinary training and inference, the samples' good variants, and the
programs of all integration tests, whose faults are those that they were written for.
"""

from __future__ import annotations

import ast
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
from tests.versions_of_torch import TORCH

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "diagnosis"
HEALTHY = sorted(path.stem for path in (DATA / "healthy").glob("*.py"))
# As other tests record them, so that each runs once.
SAMPLES = [
    ("break_rewrites.py", ("--fixed",), ()),
    ("conv_net.py", (), ("--save-tensors",)),
    ("fused_chain.py", (), ()),
    ("resnet50.py", ("--size", "32"), ("--backend", "eager")),
    ("gpt2.py", ("--layers", "1", "--width", "32", "--lengths", "16", "24", "32"), ()),
    ("resnet50.py", ("--blocks", "1", "1", "0", "0", "--size", "32"), ()),
]
# Findings of the programs that integration tests record: what each does on purpose, and nothing else.
ON_PURPOSE = {
    "try.COUNTER": [["recompile-storm", "changing-attribute", "recompile-limit"]],
    "try.SPLIT": [["dynamic-output-shape", "data-dependent-value", "break-value"]],
    "live_reading.PROGRAM": [["recompile-storm", "dynamic-disabled"]],  # dynamic=False and six sizes
}
# True breaks of an older torch, which the program has no part in.
OLDER = {"encoder_training": ((2, 13), [["unsupported-tensor"]])}  # the encoder's fast path where a size is dynamic
NOT_HERE = {
    "run_failures.FAILURES": "fails in eight ways; the test says which",
    "run_faults.KILLED": "kills its own processes",
    "run_faults.TOOLS": "calls nothing by itself: the test appends the call",
    "run_ranks.LOADERS": "starts workers by its own script; the test reads their recordings",
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def programs() -> dict[str, str]:
    """Source of every program that a module of integration tests holds as a constant and compiles something."""
    found = {}
    for file in sorted((ROOT / "tests" / "integration").glob("test_*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            value = node.value.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) else None
            if isinstance(value, str) and "import torch" in value and "torch.compile(" in value:
                found[f"{file.stem.removeprefix('test_')}.{ast.unparse(node.targets[0])}"] = value
    return found


PROGRAMS = {name: source for name, source in programs().items() if name not in NOT_HERE}


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
            for name, source in PROGRAMS.items():
                (folder / f"{name}.py").write_text(source)
            done = subprocess.run(
                [
                    sys.executable,
                    "-W",
                    "ignore",
                    str(DATA / "run_scripts.py"),
                    str(folder),
                    *(str(DATA / "healthy" / f"{name}.py") for name in HEALTHY),
                    *(str(folder / f"{name}.py") for name in PROGRAMS),
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
    version, older = OLDER.get(name, ((0, 0), []))
    found = [ids for _, _, ids in alarms(healthy / f"{name}.fxscope")]
    assert found == (older if version > TORCH else [])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_tests_has_no_fault_but_its_own(healthy: Path, name: str) -> None:
    assert json.loads((healthy / "facts.json").read_text())[name] is None
    found = [ids for _, _, ids in alarms(healthy / f"{name}.fxscope")]
    assert found == ON_PURPOSE.get(name, [])


def test_every_program_that_is_left_out_exists() -> None:
    assert set(NOT_HERE) | set(ON_PURPOSE) <= set(programs())


@pytest.mark.parametrize(("script", "arguments", "options"), SAMPLES, ids=[sample[0] for sample in SAMPLES])
def test_a_good_sample_is_left_alone(
    recorded: Callable[..., Any], script: str, arguments: tuple[str, ...], options: tuple[str, ...]
) -> None:
    run = recorded(ROOT / "samples" / script, *arguments, options=options)
    assert run.exit_code == 0, run.stderr[-2000:]
    assert fxscope.open(run.path).totals.graphs > 0
    # transformers logs inside of GPT-2's forward: a true break, in a library.
    argued = "library-code" if script == "gpt2.py" else None
    assert [alarm for alarm in alarms(run.path) if argued not in alarm[2]] == []
