"""What a container whose length changed is: told by the function that has it, not by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fxscope.diagnosis.remedies import remedy
from fxscope.diagnosis.sharpen import _sharpen_shared
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.records import FailedGuard, Recompile

PROGRAM = """import torch

@torch.compile(
    backend="eager",
)
def step(x, kwtable, *parts, **extra):
    y = x + 1
    print(y)
    return y
"""


def told(file: Path, name: str, function: str = "step", line: int = 3, **fields: Any) -> str:
    guard = FailedGuard(entry="0/0", guard=f"len({name}) == 1", source=f"L['{name}']", kind="length", expected="1")
    recompile = Recompile(id="0/1", key="0/1", failed=[guard])
    change = Change(index=0, recompile=recompile, guard=guard, ids=("container-size",), name=name)
    frame = Frame(function=function, file=str(file), line=line, place=(str(file), line), changes=[change], **fields)
    frame.settle()
    return remedy("container-size", frame, change).fix


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("extra", "Always pass the same keywords (give the absent one a neutral value), so that extra keeps its keys"),
        ("parts", "The number of arguments in *parts (1) changes"),
        ("kwtable", "Every length of kwtable"),
    ],
)
def test_keywords_positions_and_a_dict_by_the_functions_own_text(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    assert told(tmp_path / "train.py", name).startswith(expected)
    # Behind a graph break the frame has another name and begins at the break.
    assert told(tmp_path / "train.py", name, "torch_dynamo_resume_in_step_at_8", 8).startswith(expected)


def test_without_the_file_the_name_decides(tmp_path: Path) -> None:
    absent = tmp_path / "absent.py"
    assert told(absent, "model_kwargs").startswith("Always pass the same keywords")
    assert told(absent, "kwtable").startswith("Every length of kwtable")
    assert told(absent, "").startswith("Always pass the same keywords")


def test_objects_of_two_classes_are_not_one_object_made_anew() -> None:
    text = "___check_type_id(inputs[0], 94148953973248), type=<class 'gpytorch.distributions.MultivariateNormal'>"
    guard = FailedGuard(entry="0/0", guard=text, source="L['inputs'][0]", kind="type")
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=("object-identity",), name="x")
    fix = remedy("object-identity", Frame(function="f", file="a.py", line=1, place=("a.py", 1)), change).fix
    assert fix.startswith("x is of the class MultivariateNormal in one call and of another class in others")


STATE = """class Leaky(Module):
    def forward(self, x):
        self.mem, self.seen = self.mem * 0.9 + x, 1
        return self.mem
    def reset(self):
        self.prompt = None
class Net(Module):
    def __init__(self):
        self.lif1 = Leaky()
        self.cache = self.prompt = zeros(4)
    def forward(self, x):
        self.cache = self.lif1(x + self.prompt)
        return self.cache
"""


def of_state(file: Path, name: str, kind: str) -> str:
    """The fix for a tensor of ``self`` that forward of Net, at line 11, finds with another rank or history."""
    file.write_text(STATE)
    guard = FailedGuard(entry="0/0", guard="", source="L['self'].x", kind=kind, expected="1", actual="2")
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=(), name=name)
    frame = Frame(function="forward", file=str(file), line=11, place=(str(file), 11), changes=[change])
    return remedy("grad-mode" if kind == "requires_grad" else "tensor-rank", frame, change).fix


@pytest.mark.parametrize("name", ["self.lif1.mem", "self.cache"])
def test_state_that_a_call_leaves_behind_is_detached(tmp_path: Path, name: str) -> None:
    """A spiking layer's membrane, a recurrent state: the second call meets a history of gradients."""
    assert of_state(tmp_path / "a.py", name, "requires_grad").endswith(f"{name} = {name}.detach().")
    told = of_state(tmp_path / "a.py", name, "rank")
    assert "another rank (1 -> 2) before the first call gave it its shape" in told


@pytest.mark.parametrize("name", ["self.prompt", "self.lif1.prompt", "self.lif2.mem"])
def test_what_the_calls_do_not_set_is_no_state_of_theirs(tmp_path: Path, name: str) -> None:
    """A prompt that is trained in some phases only: to detach it before each call would end its training."""
    told = of_state(tmp_path / "a.py", name, "requires_grad")
    assert told.startswith(f"{name} requires gradients in some calls only")
    assert of_state(tmp_path / "a.py", name, "rank").startswith(f"{name} has 1 dimensions in one call and 2 in another")


METRIC = """class Metric(Module):
    def __init__(self):
        self.count = 0
    def forward(self, x):
        {}
        return x * self.count
"""


@pytest.mark.parametrize(
    ("theirs", "user", "value", "told", "tried"),
    [
        ("self.count += 1", "step(x)", "0", "is kept by torchmetrics, whose own code changes it", True),
        ("self.count += 1", "step(x)", "0.5", "is kept by torchmetrics, whose own code changes it", False),
        # The user's loop sets what the package only reads, or both do: whose values they are is not known.
        ("pass", "acc.count = 3", "0", "register_buffer", True),
        ("self.count += 1", "acc.count = 3", "0", "register_buffer", True),
        ("pass", "step(x)", "0", "register_buffer", True),
    ],
)
def test_a_count_that_a_package_keeps_is_not_made_a_buffer(
    tmp_path: Path, theirs: str, user: str, value: str, told: str, tried: bool
) -> None:
    asked, file = tmp_path / "site-packages" / "torchmetrics" / "metric.py", tmp_path / "train.py"
    asked.parent.mkdir(parents=True)
    asked.write_text(METRIC.format(theirs))
    file.write_text(f"def step(x):\n    return acc(x)\nfor i in range(4):\n    {user}\n")
    guard = FailedGuard(
        entry="0/0",
        guard=f"G['acc'].count == {value}",
        source="G['acc'].count",
        kind="number",
        expected=value,
        asked_file=str(asked),
        asked_line=6,
    )
    change = Change(
        index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=("changing-attribute",), name="acc.count"
    )
    frame = Frame(function="step", file=str(file), line=1, place=(str(file), 1), changes=[change])
    frame.values = {"acc.count": ["0", "1", "2"]}
    found = remedy("changing-attribute", frame, change)
    assert told in found.fix
    assert (found.change == "config:allow_unspec_int_on_nn_module=True") == tried


def test_a_librarys_keywords_are_not_its_callers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    assert "A graph for each is as it should be" in told(tmp_path / "train.py", "extra", inner=True)
    assert "A graph for each" not in told(tmp_path / "train.py", "kwtable", inner=True)


def test_modules_of_torch_that_are_compiled_one_by_one_share_a_wrapper() -> None:
    """A size that differs between them is another module's, no question that the code asks."""
    guard = FailedGuard(
        entry="0/2", guard="size mismatch", source="L['args'][0]", kind="size", expected="16", actual="8"
    )
    recompile = Recompile(id="0/3", key="0/3")
    for file, lead in (
        ("/v/site-packages/torch/_dynamo/external_utils.py", "shared-code"),
        ("/v/site-packages/acme/a.py", "shape-expression"),
        ("/v/site-packages/acme/external_utils.py", "shape-expression"),
    ):
        change = Change(
            index=0,
            recompile=recompile,
            guard=guard,
            ids=("shape-expression", "dynamic-size"),
            name="argument 0",
            dim=2,
        )
        frame = Frame(
            function="inner", file=file, line=67, place=("a.py", 1), places=[("a.py", 1), ("a.py", 2)], changes=[change]
        )
        _sharpen_shared(frame)
        assert (change.ids[0], "shared-code" in change.ids) == (lead, True)
