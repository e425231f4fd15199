"""What the program's text says of a guarded name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fxscope.diagnosis import diagnose
from fxscope.diagnosis.frames import Change, Frame
from fxscope.diagnosis.owner import grown_at, is_plain_object
from fxscope.diagnosis.remedies_size import Remedy
from fxscope.recording.records import FailedGuard, Recompile

SOURCE = """import torch
class Plain:
    @torch.compile
    def step(self, x):
        self.seen += [x]
        return x
class Net(torch.nn.Module):
    def forward(self, x):
        h = x
        for _ in range(2):
            self.cache[len(self.cache)] = h
        return len(self.names)
acts = {}
def hook(m, i, o):
    acts["a"] = o
"""


def frame_at(path: Path, line: int) -> Frame:
    path.write_text(SOURCE)
    return Frame(function="f", file=str(path), line=line, place=(str(path), line))


def change_of(name: str, asked: tuple[str, int] = ("", 0)) -> Change:
    guard = FailedGuard(entry="0/0", guard="", asked_file=asked[0], asked_line=asked[1])
    return Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=("container-size",), name=name)


def test_a_class_without_bases_is_no_module(tmp_path: Path) -> None:
    assert is_plain_object(frame_at(tmp_path / "a.py", 3))  # a decorated method begins at its decorator
    assert not is_plain_object(frame_at(tmp_path / "a.py", 8))
    assert not is_plain_object(frame_at(tmp_path / "a.py", 14))


def test_the_statement_that_grows_a_container(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    grown = grown_at(frame_at(file, 3), change_of("self.seen"))
    assert grown is not None
    assert (grown.line, grown.code) == (5, "self.seen += [x]")
    grown = grown_at(frame_at(file, 8), change_of("self.cache"))
    assert grown is not None
    assert grown.line == 11
    assert grown_at(frame_at(file, 8), change_of("self.names")) is None
    # A hook that a library's frame calls: by the line that asked for the guard.
    elsewhere = Frame(function="inner", file="/torch/x.py", line=67, place=("", 0))
    grown = grown_at(elsewhere, change_of("acts", (str(file), 14)))
    assert grown is not None
    assert grown.line == 15


def test_a_story_of_many_recompiles_has_one_fix_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [change_of("xs") for _ in range(500)]
    story = Frame(function="f", file="", line=1, place=("", 1), changes=changes)
    made: list[str] = []

    def remedy(id_: str, frame: Frame, change: Change) -> Remedy:
        made.append(id_)
        return Remedy(fix="the fix")

    monkeypatch.setattr(diagnose, "frames", lambda context: [story])
    monkeypatch.setattr(diagnose, "remedy", remedy)
    recording: Any = SimpleNamespace(graph_breaks=[])
    diagnose.explain_records(recording)
    assert made == ["container-size"]
    assert {change.recompile.fix for change in changes} == {"the fix"}
