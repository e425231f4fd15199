"""How findings name the program in the commands that they offer: so that they can be copied."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fxscope.diagnosis.context import Context
from fxscope.source import SourceLine


def context(argv: list[str], cwd: str | None = None, *stacks: tuple[SourceLine, ...], **options: Any) -> Context:
    recording: Any = SimpleNamespace(
        session=SimpleNamespace(path="my run", argv=argv, cwd=cwd, options=options),
        compiles=[SimpleNamespace(stack=stack) for stack in stacks],
    )
    return Context(recording)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["train.py", "--name", "a b"], "train.py --name 'a b'"),
        (["-m", "package.train", "--steps", "3"], "-m package.train --steps 3"),
        (["torchrun", "--nproc-per-node", "2", "train.py"], "-- torchrun --nproc-per-node 2 train.py"),
        (["accelerate", "launch", "train.py"], "-- accelerate launch train.py"),
    ],
)
def test_a_recorded_command_line_is_named_as_it_was_given(argv: list[str], named: str) -> None:
    assert context(argv).try_command("dynamic") == f"fxscope try --what dynamic {named}"
    again = f"fxscope run --headless {named} && fxscope check --max-graph-breaks 0"
    assert context(argv).check_command("--max-graph-breaks 0") == again


def test_a_script_without_a_suffix_is_no_launcher(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("import torch\n")
    assert context(["train", "-v"], str(tmp_path)).script == "train -v"


def test_a_bare_log_names_the_script_by_its_stacks() -> None:
    library = SourceLine(file="/venv/lib/python3.12/site-packages/torch/x.py", line=1, function="<module>", code="")
    script = SourceLine(file="/home/me/my runs/train.py", line=9, function="<module>", code="")
    inner = SourceLine(file="/home/me/model.py", line=4, function="forward", code="")
    assert context([], None, (inner,), (library, script, inner)).script == "'/home/me/my runs/train.py'"
    assert context([], None, (inner,)).script == "SCRIPT"


def test_a_program_from_standard_input_cannot_be_named() -> None:
    typed = SourceLine(file="<stdin>", line=9, function="<module>", code="")
    assert context(["-", "--epochs", "1"]).try_command("dynamic") == "fxscope try --what dynamic SCRIPT"
    assert context([], None, (typed,)).script == "SCRIPT"


def test_a_notebook_is_recorded_again_by_its_cells() -> None:
    """Nobody can start its kernel by hand: the command compares what the cells have recorded since."""
    kernel = context(["/venv/lib/site-packages/ipykernel_launcher.py", "-f", "/tmp/tmp1.json"])
    assert kernel.diff_command() == "fxscope diff 'my run'"
    assert kernel.check_command("--max-recompiles 0") == "fxscope check --max-recompiles 0"
    assert kernel.try_command("dynamic") == "fxscope try --what dynamic SCRIPT"


def test_a_run_that_is_compared_has_the_options_of_the_first() -> None:
    """Another backend breaks, recompiles and fails otherwise; what is only watched is no part of it."""
    settings = {"recompile_limit": 64, "inductor.cpp.simdlen": None, "log_file_name": "a b"}
    asked = context(
        ["train.py"], None, backend="aot_eager", mode=None, dynamic=False, config=settings, save_tensors=True
    )
    options = (
        "--backend aot_eager --no-dynamic --config recompile_limit=64 --config inductor.cpp.simdlen=None "
        "--config 'log_file_name=a b' train.py"
    )
    assert asked.try_command("limit:64") == f"fxscope try --what limit:64 {options}"
    again = f"fxscope run --headless {options} && fxscope "
    assert asked.check_command("--fail-on low") == f"{again}check --fail-on low"
    assert asked.diff_command() == f"{again}diff 'my run'"
    assert asked.measure_command() == "fxscope diagnose --measure 'my run'"
    assert context(["train.py"], None, config="torn", dynamic="?").try_command("dynamic").endswith("dynamic train.py")
