"""The sum of test outcomes from several runs: what scripts/version_matrix.py writes into docs/versions.md."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

SUITE = """
import pytest

@pytest.fixture
def breaks():
    yield
    raise RuntimeError("afterwards")

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("mail", ["a@b"])
def test_mail(mail): pass
def test_fails(): assert not PASSES
def test_needs(): pytest.skip("no such thing here")
def test_tears(breaks): pass
"""


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return _module("version_matrix")


def _run(folder: Path, commit: str, passes: bool, done: str) -> str:
    (folder / "tests" / "unit" / "graph").mkdir(parents=True, exist_ok=True)
    (folder / "tests" / "unit" / "graph" / "test_it.py").write_text(SUITE.replace("PASSES", str(not passes)))
    (folder / "done").write_text(done)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "kept_results", "-p", "no:cacheprovider", "-n", "1"]
    names = {"RESULTS": folder / "results.jsonl", "COMMIT": commit, "DONE": folder / "done"}
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**outer, "PYTHONPATH": str(SCRIPTS), **{f"FXSCOPE_{name}": str(value) for name, value in names.items()}}
    command += ["--dist", "loadgroup", "tests"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False).stdout


def test_two_runs_make_one_row(tmp_path: Path, matrix: ModuleType) -> None:
    name = "tests/unit/graph/test_it.py::test_"
    tests = [f"{name}{test}" for test in ("mail[a@b]", "fails", "needs", "tears")] + ["tests/tui/test_a.py::test_b"]
    _run(tmp_path, "aaa", passes=False, done="")
    results = matrix.kept_results.read(tmp_path / "results.jsonl")
    first = matrix.summed("2.14.1", "3.12", tests, results, [])
    assert first[3:9] == ("aaa", "1", "2", "1", "1", "all of unit/graph; none of tui")
    assert first.notes == "unit/graph/test_it.py::test_fails; unit/graph/test_it.py::test_tears"
    assert results[f"{name}needs"].reason == "Skipped: no such thing here"
    assert results[f"{name}tears"].reason.endswith("RuntimeError: afterwards")

    said = _run(tmp_path, "bbb", passes=True, done=f"{tests[0]}\n{tests[2]}\n")
    assert "1 passed, 1 error" in said or "2 passed, 1 error" in said
    row = matrix.summed("2.14.1", "3.12", tests[:4], matrix.kept_results.read(tmp_path / "results.jsonl"), ["stopped"])
    assert row[3:] == ("aaa to bbb", "2", "1", "1", "0", "all", "unit/graph/test_it.py::test_tears; stopped")


def test_a_torn_line_is_a_test_that_has_not_run(
    tmp_path: Path, matrix: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is stopped while it writes; another goes on with the file."""
    results = tmp_path / "results.jsonl"
    monkeypatch.setenv("FXSCOPE_RESULTS", str(results))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def report(test: str) -> None:
        told = SimpleNamespace(nodeid=test, when="call", passed=True, outcome="passed", longrepr=None)
        matrix.kept_results.pytest_runtest_logreport(told)

    report("a")
    report("b")
    results.write_bytes(results.read_bytes()[:-20])
    assert list(matrix.kept_results.read(results)) == ["a"]
    report("c")
    assert list(matrix.kept_results.read(results)) == ["a", "c"]


def test_a_row_takes_the_place_of_its_pair_and_prose_stays(tmp_path: Path, matrix: ModuleType) -> None:
    page = tmp_path / "versions.md"

    def row(torch: str, passed: str) -> object:
        return matrix.Row(torch, "3.12", "2026-11-30", "abc", passed, "0", "0", "0", "all", "a | b")

    matrix.write([row("2.14.1", "1"), row("2.9.0", "2")], page)
    page.write_text(page.read_text() + "\n## Differences\n\n| 2.14.1 | not a row |\n")
    matrix.write([row("2.14.1", "3")], page)
    lines = page.read_text().splitlines()
    assert [line for line in lines if line.startswith("| 2.")] == [
        "| 2.9.0 | 3.12 | 2026-11-30 | abc | 2 | 0 | 0 | 0 | all | a \\| b |",
        "| 2.14.1 | 3.12 | 2026-11-30 | abc | 3 | 0 | 0 | 0 | all | a \\| b |",
        "| 2.14.1 | not a row |",
    ]
    assert lines[-3] == "## Differences"
