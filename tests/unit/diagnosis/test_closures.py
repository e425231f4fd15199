"""Names of closed-over variables, and remedies that look at the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.diagnosis.closures import closed_over
from fxscope.diagnosis.remedies import remedy
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.records import FailedGuard, Recompile

SOURCE = """import torch
def make(scale, bias):
    return lambda x: (x * scale + bias).sin()
def deep(a):
    def middle(z):
        def inner(x):
            return x * z * a
        return inner
    return middle
STEP = 3
def plain(x):
    return x * STEP
"""


@pytest.mark.parametrize(
    ("line", "cell", "name"), [(3, 0, "bias"), (3, 1, "scale"), (7, 0, "a"), (7, 1, "z"), (3, 5, ""), (12, 0, "")]
)
def test_cells_are_in_alphabetical_order(tmp_path: Path, line: int, cell: int, name: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(SOURCE)
    source = f"L['f'].__closure__[{cell}].cell_contents"
    assert closed_over(FailedGuard(entry="0/0", guard="", source=source, asked_file=str(file), asked_line=line)) == name
    scope: dict[str, object] = {}
    if name and line == 3:  # as Python itself has it
        exec(SOURCE.replace("import torch", ""), scope)
        assert scope["make"](1, 2).__code__.co_freevars[cell] == name  # type: ignore[operator]


def test_any_other_guard_has_its_own_name() -> None:
    assert closed_over(FailedGuard(entry="0/0", guard="", source="L['x']", asked_file="a.py", asked_line=1)) == ""


def frame(path: str, name: str, ids: tuple[str, ...], source: str, expected: str) -> tuple[Frame, Change]:
    guard = FailedGuard(entry="0/0", guard="", source=source, expected=expected)
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=ids, name=name)
    return Frame(function="step", file=path, line=1, place=(path, 1), changes=[change]), change


def test_the_first_learning_rate_is_the_programs(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("opt = SGD(model.parameters(), lr=0.1, momentum=0.9)\n")
    story, change = frame(
        str(file),
        "self.param_groups[0]['lr']",
        ("changing-number",),
        "L['self'].param_groups[0]['lr']",
        "0.09000000000000001",
    )
    assert "lr=torch.tensor(0.1)" in remedy("changing-number", story, change).fix
    file.write_text("opt = SGD(model.parameters(), lr=0.1)\nother = SGD(model.parameters(), lr=0.2)\n")
    story, change = frame(
        str(tmp_path / "gone.py"),
        "self.param_groups[0]['lr']",
        ("changing-number",),
        "L['self'].param_groups[0]['lr']",
        "0.09000000000000001",
    )
    assert "lr=torch.tensor(0.09)" in remedy("changing-number", story, change).fix


def test_strings_are_not_stacked() -> None:
    story, change = frame("", "names", ("container-size",), "L['names']", "1")
    assert "torch.stack(names)" in remedy("container-size", story, change).fix
    story.strings = frozenset(["names"])
    fix = remedy("container-size", story, change).fix
    assert "stack" not in fix
    assert "ids or lengths" in fix


def test_the_optimizers_first_step_asks_for_nothing() -> None:
    name = "self.state[list(dict.keys(self.state))[0]]"
    story, change = frame("/lib/torch/optim/sgd.py", name, ("container-size",), "L['self'].state", "0")
    assert "one recompile and no more" in remedy("container-size", story, change).fix
