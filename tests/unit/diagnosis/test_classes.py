"""A buffer is advised only where the program's text proves a module; where it does not, both ways are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.diagnosis.classes import kind_of
from fxscope.diagnosis.remedies import remedy
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.records import FailedGuard, Recompile

NET = """
class Net{bases}:
    def __init__(self):
        self.n = 0
        self.part = Part()
        self.parts = [Part()]
    @property
    def step(self, x):
        self.n += 1
        return x
class Part(nn.Linear): pass
"""


def frame_of(folder: Path, above: str, bases: str) -> Frame:
    file = folder / "models" / "net.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(above + NET.format(bases=bases))
    line = file.read_text().split("\n").index("    @property") + 1  # a decorated method begins at its decorator
    return Frame(function="step", file=str(file), line=line, place=(str(file), line))


def told(frame: Frame, name: str, values: list[str]) -> tuple[str, str]:
    """Fix and change for a number that takes these values."""
    guard = FailedGuard(entry="0/0", guard="", kind="number", expected=values[0])
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=(), name=name)
    frame.values = {name: values}
    found = remedy("changing-attribute", frame, change)
    return found.fix, found.change


@pytest.mark.parametrize(
    ("above", "bases", "kind"),
    [
        ("", "", "plain"),
        ("", "(object)", "plain"),
        ("class Base(ABC): pass", "(Base)", "plain"),
        ("", "(nn.Module)", "module"),
        ("", "(torch.nn.Module)", "module"),
        ("from torch.nn import Module", "(Module)", "module"),
        ("import torch.nn as N", "(ABC, N.Linear)", "module"),
        ("class Base(torch.nn.Module): pass", "(Base)", "module"),
        ("from .base import Base", "(Base)", "module"),
        ("from ..shared.base import Plain as Base", "(Base)", "plain"),
        ("from shared.base import Base", "(Base)", "module"),
        ("import shared.base", "(shared.base.Base)", "module"),
        ("from elsewhere import Base", "(Base)", "unknown"),
        ("from .base import Absent", "(Absent)", "unknown"),
        ("from flax import linen as nn", "(nn.Module)", "unknown"),
        ("from . import base", "(base.Base)", "module"),
        ("from .. import base", "(base.Base)", "plain"),
        ("from .. import shared", "(shared.base.Base)", "module"),
        ("", "(nn.Parameter)", "unknown"),
        ("", "(nn.UninitializedBuffer)", "unknown"),
        ("", "(make_base())", "unknown"),
        ("class Base(Net): pass", "(Base)", "plain"),  # no program that runs, but read all the same
    ],
)
def test_what_a_class_is(tmp_path: Path, above: str, bases: str, kind: str) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.py").write_text(
        "from torch import nn\nclass Base(nn.Module): pass\nclass Plain: pass\n"
    )
    frame = frame_of(tmp_path, above, bases)
    (tmp_path / "base.py").write_text("class Base: pass\n")
    (tmp_path / "models" / "base.py").write_text("import torch\nclass Base(torch.nn.Sequential): pass\n")
    assert kind_of(frame) == kind


def test_parts_are_what_makes_them(tmp_path: Path) -> None:
    frame = frame_of(tmp_path, "", "")
    assert [kind_of(frame, owner) for owner in ("self", "self.part", "self.parts", "acc")] == [
        "plain",
        "module",
        "unknown",
        "unknown",
    ]
    frame.file = str(tmp_path / "of another machine.py")
    assert kind_of(frame) == "unknown"


BUFFER = "self.register_buffer('n', torch.tensor(0))"
TENSOR = "self.n = torch.tensor(0)"


@pytest.mark.parametrize("values", [["0", "1"], ["0", "1", "2", "3"]])
def test_a_module_gets_a_buffer(tmp_path: Path, values: list[str]) -> None:
    fix, change = told(frame_of(tmp_path, "", "(nn.Module)"), "self.n", values)
    assert f"after:\n    {BUFFER}\n" in fix
    assert TENSOR not in fix
    assert "Without an edit: torch._dynamo.config.allow_unspec_int_on_nn_module" in fix
    assert change == "config:allow_unspec_int_on_nn_module=True"


@pytest.mark.parametrize("values", [["0", "1"], ["0", "1", "2", "3"]])
def test_an_object_that_may_be_a_module_is_told_both(tmp_path: Path, values: list[str]) -> None:
    fix, change = told(frame_of(tmp_path, "from elsewhere import Base", "(Base)"), "self.n", values)
    assert f"after (where the class is an nn.Module):\n    {BUFFER}\nafter (in any other class):\n    {TENSOR}\n" in fix
    assert "If self is an nn.Module, without an edit: torch._dynamo" in fix
    assert change == "config:allow_unspec_int_on_nn_module=True"


@pytest.mark.parametrize(("values", "change"), [(["0", "1"], "dynamic"), (["0", "1", "2", "3"], "")])
def test_a_plain_object_never_gets_a_buffer(tmp_path: Path, values: list[str], change: str) -> None:
    """Nor where it takes many values: then Python decides by it, so it did not become dynamic."""
    fix, tried = told(frame_of(tmp_path, "", "(object)"), "self.n", values)
    assert f"after:\n    {TENSOR}\n" in fix
    assert "register_buffer" not in fix
    assert "nn_module" not in fix
    assert ("costs one recompile, after which it is dynamic" in fix) == bool(change)
    assert tried == change


def test_where_the_first_value_is_not_found_both_are_told_on_the_owner(tmp_path: Path) -> None:
    fix, _ = told(frame_of(tmp_path, "", ""), "acc.count", ["0", "1", "2"])
    assert (
        "make it a tensor: acc.register_buffer('count', torch.tensor(0)) where acc is an nn.Module, else acc.count = torch.tensor(0);"
        in fix
    )
    fix, _ = told(frame_of(tmp_path, "", ""), "self.part.count", ["0", "1", "2"])
    assert "make it a buffer: self.part.register_buffer('count', torch.tensor(0));" in fix


@pytest.mark.parametrize(("bases", "buffer"), [("(nn.Module)", True), ("", False), ("(Base)", False)])
def test_what_is_made_late_is_a_buffer_of_modules_only(tmp_path: Path, bases: str, buffer: bool) -> None:
    frame = frame_of(tmp_path, "", bases)
    guard = FailedGuard(entry="0/0", guard="", kind="none", expected="None")
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=(), name="self.n")
    fix = remedy("none-or-tensor", frame, change).fix
    assert "until the compiled code makes it" in fix
    assert ("register_buffer" in fix) == buffer
