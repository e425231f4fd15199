"""Tensors kept by ``--save-tensors`` go back into the rebuilt graph, and the outputs are those of the program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fxscope.cli import export as export_verb
from fxscope.errors import UnreadableError
from fxscope.graph.execute import run
from fxscope.graph.inputs import make_inputs
from fxscope.graph.load import load_graph
from fxscope.graph.rebuild import rebuild
from fxscope.graph.recorded import recorded_tensors
from fxscope.passes.recorded import load
from fxscope.recording.recording import open_recording

PROGRAM = """
import json
import torch

def f(x, ids):
    return torch.nn.functional.embedding(ids, x).tanh() * torch.tensor([1.0, 2.0, 3.0])

torch.manual_seed(0)
x, ids = torch.randn(5, 3), torch.tensor([4, 0, 2])
print(json.dumps(torch.compile(f, backend="eager")(x, ids).tolist()))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Any]) -> Any:
    script = tmp_path_factory.getbasetemp().parent / "graph_tensors_program.py"
    script.write_text(PROGRAM)
    return recorded(script, options=("--save-tensors",))


def test_a_graph_runs_on_the_recorded_tensors(saved: Any) -> None:
    pytest.importorskip("safetensors")
    recording = open_recording(saved.path)
    compile_ = recording.find("0/0")
    inputs, constants = recorded_tensors(recording, compile_)
    assert len(inputs) == 2
    graph = load_graph(recording, compile_)
    outputs = run(rebuild(graph, constants=constants), make_inputs(graph, tensors=inputs))
    expected = json.loads(saved.stdout.strip().splitlines()[-1])
    assert [[pytest.approx(value, rel=1e-6) for value in row] for row in expected] == outputs[0].tolist()


def expected_of(saved: Any) -> list[list[float]]:
    found: list[list[float]] = json.loads(saved.stdout.strip().splitlines()[-1])
    return found


def test_passes_and_bench_probe_with_the_programs_own_values(saved: Any) -> None:
    found = load(saved.path, "0/0", bind=True)
    assert "inputs are the program's own, of its first call (--save-tensors)" in found.notes
    assert not any("made up" in note for note in found.notes)  # the constant is the recorded one, too
    outputs = run(found.module, found.inputs)
    assert outputs[0].tolist() == [pytest.approx(row, rel=1e-6) for row in expected_of(saved)]


def test_a_repro_runs_on_the_recorded_values(saved: Any, tmp_path: Path) -> None:
    file = tmp_path / "repro.py"
    done = CliRunner().invoke(export_verb.command, ["repro", str(saved.path), "--graph", "0/0", "-o", str(file)])
    assert done.exit_code == 0, done.output
    sums = []
    for more in ([], ["--tensors", ""]):
        ran = subprocess.run(
            [sys.executable, str(file), *more], capture_output=True, text=True, timeout=240, check=True
        )
        sums.append(float(ran.stdout.rsplit(" ", 1)[1]))
    want = sum(abs(value) for row in expected_of(saved) for value in row)
    assert sums[0] == pytest.approx(want, rel=1e-5)
    assert sums[1] != pytest.approx(want, rel=1e-2)  # made up


def test_recorded_values_that_cannot_be_read_are_a_note(saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(recording: Any, compile_: Any) -> Any:
        raise UnreadableError("cannot read the recorded tensors x: torn")

    monkeypatch.setattr("fxscope.graph.recorded.recorded_tensors", broken)
    found = load(saved.path, "0/0")
    assert found.notes[-1] == "cannot read the recorded tensors x: torn; inputs are made up"


def test_a_file_outside_the_recording_is_not_opened(
    saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = open_recording(saved.path)
    compile_ = recording.find("0/0")
    outside = tmp_path / "x.safetensors"
    outside.write_bytes(b"")
    real = recording.text

    def lying(event: int) -> str:
        text = real(event)
        return json.dumps({"tensors": str(outside)}) if '"tensors"' in text else text

    monkeypatch.setattr(recording, "text", lying)
    assert recorded_tensors(recording, compile_) == ({}, {})
