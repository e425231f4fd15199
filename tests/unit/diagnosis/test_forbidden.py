"""Recompiles that raise: told with the story that led to them, or read from the text of the exception."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fxscope
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.forbidden import guard_in, is_forbidden, join_forbidden
from fxscope.diagnosis.sharpen import sharpen
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.records import Compile, FailedGuard, Failure, Recompile
from fxscope.source import SourceLine
from tests.versions_of_torch import TORCH

STANCE = """import torch
@torch.compile(backend="eager")
def f(x, scale):
    return x * scale
f(torch.ones(4), 2)
with torch.compiler.set_stance("fail_on_recompile"):
    f(torch.ones(4), 3)
"""


def test_the_guard_stands_in_the_exception() -> None:
    guard = guard_in(
        "Recompiling function f in /a/b.py:4\n    triggered by the following guard failure(s):\n"
        "    - 0/1: tensor 'x' size mismatch at index 0. expected 4, actual 5\n    - 0/0: other"
    )
    assert (guard.entry, guard.kind, guard.expected, guard.actual) == ("0/1", "size", "4", "5")
    assert guard_in("nothing of that kind").guard == ""
    assert is_forbidden(Failure(id="", phase="dynamo", type="RecompileError", message="", file="", line=0))
    assert not is_forbidden(Failure(id="", phase="dynamo", type="RuntimeError", message="Detected", file="", line=0))


def test_a_stance_that_forbids_recompiles(tmp_path: Path) -> None:
    """Torch writes nothing of it into its log: the recorder does."""
    script = tmp_path / "stance.py"
    script.write_text(STANCE)
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", "run.fxscope", "stance.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    (finding,) = fxscope.open(str(tmp_path / "run.fxscope")).diagnose()
    assert finding.ids == ["changing-number", "recompile-error"]
    # Where torch 2.11 tells no line, it is the one that asked.
    assert (finding.line, finding.function, finding.severity) == (2 if TORCH > (2, 11) else 4, "f", "high")
    assert "stance.py:4" in finding.cause
    assert "dynamic=True" in finding.fix


@pytest.mark.parametrize(
    ("file", "ids"), [("/usr/lib/threading.py", ("thread-race",)), ("/a/main.py", ("other-guard",))]
)
def test_threads_that_compile_the_same_at_once(file: str, ids: tuple[str, ...]) -> None:
    compile_ = Compile(id="0/1", key="0/1", stack=[SourceLine(file=file, line=1, function="run", code="")])
    guard = FailedGuard(entry="0/0", guard="Unexpected recompilation: runtime guards failed even though they passed")
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=("other-guard",), name="")
    frame = Frame(function="f", file="/a/main.py", line=3, place=("/a/main.py", 3), changes=[change])
    context: Any = SimpleNamespace(by_key={"0/1": compile_}, shapes={})
    sharpen(context, frame)
    assert change.ids == ids


def test_one_story_is_told_once_however_often_it_was_caught() -> None:
    message = (
        "Recompiling function f in /a/b.py:4\n    triggered by the following guard failure(s):\n    - 0/0: x == {}"
    )
    other = message.replace("/b.py:4", "/c.py:9")
    failures = [
        Failure(id="0/1", phase="dynamo", type="RecompileError", message=message.format(n), compile_key=key)
        for n, key in enumerate(("0/1", "0/1", "0/1", "", "", ""))
    ]
    failures.append(Failure(id="", phase="dynamo", type="RecompileError", message=other.format(7)))
    session = SimpleNamespace(argv=["a.py"], options={}, cwd=None)
    recording: Any = SimpleNamespace(failures=failures, session=session, compiles=[])
    story = Finding(
        ids=["changing-number"],
        category="recompiles",
        severity="medium",
        title="f recompiled",
        cause="Why.",
        evidence=[Evidence(kind="recompile", text="", compile_key="0/1")],
        cost=5.0,
    )
    found = join_forbidden(Context(recording), [story])
    assert [finding.title for finding in found[:1]] == ["f recompiled; RecompileError ended the call"]
    assert (found[0].ids, found[0].cost) == (["changing-number", "recompile-error"], 1005.0)
    assert found[0].cause.count("RecompileError was raised") == 1
    assert [e.index for e in found[0].evidence if e.kind == "failure"] == [0, 1, 2]
    assert [(each.file, each.line, [e.index for e in each.evidence]) for each in found[1:]] == [
        ("/a/b.py", 4, [3, 4, 5]),
        ("/a/c.py", 9, [6]),
    ]
