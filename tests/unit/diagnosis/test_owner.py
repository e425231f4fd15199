"""What the program's text says of a guarded name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fxscope.diagnosis import diagnose
from fxscope.diagnosis.owner import begun_at, grown_at, is_enum, own_constant, set_at
from fxscope.diagnosis.remedies_size import Remedy
from fxscope.diagnosis.remedies_value import changing_attribute
from fxscope.diagnosis.story import Change, Frame
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


MODULES = """import enum
import torch
class Block(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads, self.seen = heads, 0
        self.table = None
    def forward(self, x):
        if x.shape[0] > self.seen:
            self.seen = x.shape[0]
        return x
class Other(torch.nn.Module):
    def __init__(self):
        self.heads = 3
    def grow(self):
        self.heads = 4
class Mode(enum.IntEnum):
    A = 1
def run(blocks):
    def inner(x):
        return x
    blocks.seen = 3
    return inner
"""


def module_frame(path: Path, line: int = 8) -> Frame:
    path.write_text(MODULES)
    return Frame(function="forward", file=str(path), line=line, place=(str(path), line))


def test_attributes_that_differ_between_objects_only(tmp_path: Path) -> None:
    frame = module_frame(tmp_path / "a.py")
    assert not own_constant(frame, change_of("self.seen"))
    assert own_constant(frame, change_of("self.table"))
    assert own_constant(frame, change_of("self.heads"))  # Other.heads is another one
    assert not own_constant(frame, change_of("self.absent"))
    assert is_enum(frame.file, "Mode")
    assert not is_enum(frame.file, "Block")


def test_where_an_attribute_is_set(tmp_path: Path) -> None:
    frame = module_frame(tmp_path / "a.py")
    made = set_at(frame, change_of("self.seen"))
    assert made is not None
    assert (made[0].line, made[0].code, made[1]) == (10, "self.seen = x.shape[0]", "x.shape[0] > self.seen")
    assert set_at(frame, change_of("self.table")) is None
    assert begun_at(frame, change_of("self.table")) == ("self.table = None", "None")
    assert begun_at(frame, change_of("self.heads")) == ("self.heads = 3", "3")
    # What the function around a compiled one does is not compiled.
    assert set_at(module_frame(tmp_path / "a.py", 20), change_of("blocks.seen")) is None


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ("self.step = 1 if cfg.n >= 2 else 0", "torch.tensor(1 if cfg.n >= 2 else 0)"),
        ("self.step: int = 3", "after:\n    self.register_buffer('step', torch.tensor(3))"),
        ("self.step: int", "Where self.step is set first"),
        ("self.step = None", "Where self.step is set first"),
        ("self.step = self.n = 0", "Where self.step is set first"),
    ],
)
def test_a_buffer_is_made_of_the_whole_value(tmp_path: Path, begun: str, expected: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        f"class Net(torch.nn.Module):\n    def __init__(self, cfg):\n        {begun}\n    def forward(self, x):\n        return x\n"
    )
    frame = Frame(function="forward", file=str(file), line=4, place=(str(file), 4))
    guard = FailedGuard(entry="0/0", guard="", kind="value", expected="2")
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=(), name="self.step")
    assert expected in changing_attribute(frame, change).fix
