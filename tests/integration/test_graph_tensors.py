"""Tensors kept by ``--save-tensors`` go back into the rebuilt graph, and the outputs are those of the program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fxscope.graph.execute import run
from fxscope.graph.inputs import make_inputs
from fxscope.graph.load import load_graph
from fxscope.graph.rebuild import rebuild
from fxscope.graph.recorded import recorded_tensors
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
