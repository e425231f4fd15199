"""``fxscope export`` on recordings of real machines and on fresh ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fxscope.cli.export import command
from fxscope.errors import FxscopeError, MissingError, UsageError
from fxscope.graph.diff import diff_graphs
from fxscope.graph.load import load_graph, recorded_symbols
from fxscope.graph.parse import parse_graph
from fxscope.recording.recording import open_recording

PROGRAM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(13, 8)
        self.lin = torch.nn.Linear(8, 8)

    def forward(self, ids):
        x = self.lin(self.embed(ids))
        x[:, 0] += 1
        return torch.nn.functional.dropout(x, 0.25, True).relu().sum(-1)

torch.manual_seed(0)
model = Model()
step = torch.compile(model, backend="aot_eager")
for length in (5, 7):
    step(torch.randint(0, 13, (2, length))).sum().backward()
"""


def export(*args: str | Path) -> str:
    """Standard output of one export; errors are raised as they are."""
    result = CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False, standalone_mode=False)
    return result.output


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Any]) -> Path:
    """A recording made by this installation."""
    script = tmp_path_factory.getbasetemp().parent / "graph_export_program.py"
    script.write_text(PROGRAM)
    made = recorded(script)
    assert made.exit_code == 0, made.stderr
    return made.path


@pytest.mark.shared
def test_every_format_of_one_graph(shared: Path, tmp_path: Path) -> None:
    log = shared / "traces/h200/gpt2"
    dot = export("dot", log, "--graph", "1/0", "--collapse", "3", "--sources")
    assert dot.startswith("digraph fxscope {")
    table = export("table", log, "--graph", "1/0")
    assert len(table.splitlines()) == 258
    fx = export("fx", log, "--graph", "1/0")
    assert len(parse_graph(fx).nodes) == 257
    document = json.loads(export("json", log, "--graph", "1/0", "--stage", "forward"))
    assert (document["schema"], document["id"], document["stage"]) == ("fxscope.export/1", "1/0_1", "forward")
    assert len(document["graph"]["nodes"]) == 385
    import jsonschema

    from fxscope.cli.export import json_schema

    jsonschema.validate(document, json_schema())
    file = tmp_path / "g.dot"
    assert export("dot", log, "--graph", "1/0", "--collapse", "3", "--sources", "-o", file) == ""
    assert file.read_text() == dot


@pytest.mark.shared
def test_the_timeline_of_all_ranks(shared: Path) -> None:
    document = json.loads(export("perfetto", shared / "traces/h200/ranks_ddp"))
    events = document["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"rank 0", "rank 1"}
    for event in events:
        assert isinstance(event["name"], str)
        assert event["ph"] in ("X", "i", "I", "C", "M")
        assert isinstance(event["ts"], (int, float))
        assert event["ph"] != "X" or event["dur"] >= 0
    assert any(event["name"] == "recompile 4/1" for event in events)


@pytest.mark.shared
def test_a_diff_is_highlighted(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = shared / "traces/h200/resnet50"
    result = CliRunner().invoke(
        command, ["dot", str(log), "--graph", "0/1", "--against", "0/0", "--highlight", "diff"], standalone_mode=False
    )
    assert "176 changed (176 in size only)" in result.stderr
    assert 'label="only its size differs"' in result.stdout
    assert 'label="added"' in result.stdout
    with pytest.raises(UsageError, match="needs another graph"):
        export("dot", log, "--graph", "0/1", "--highlight", "diff")


@pytest.mark.shared
def test_graph_breaks_are_highlighted(shared: Path) -> None:
    log = shared / "traces/models/Encodec"
    recording = open_recording(log)
    marked = 0
    for compile_ in recording.compiles[:40]:
        if any(text.stage == "dynamo" for text in compile_.graphs):
            out = CliRunner().invoke(command, ["dot", str(log), "--graph", compile_.key, "--highlight", "breaks"])
            assert out.exit_code == 0, out.output
            marked += "graph break:" in out.stdout
    assert marked


@pytest.mark.shared
def test_one_of_several_graphs_of_a_stage_is_named_in_two_ways(shared: Path) -> None:
    """DDP split this compile into four."""
    log = shared / "traces/h200/ranks_ddp"
    of = ("table", log, "--graph", "r0:4/0", "--stage")
    second = export(*of, "joint#1")
    assert second == export(*of, "joint", "--index", "1") == export(*of, "joint#1", "--index", "1")
    assert second not in (export(*of, "joint"), export(*of, "joint#2"))
    drawn = ("dot", log, "--graph", "r0:4/0", "--stage", "joint#1", "--highlight", "diff", "--against-stage")
    assert "color" in (same := export(*drawn, "joint"))  # the number of --stage holds for both
    assert 'label="added"' not in same
    assert 'label="added"' in export(*drawn, "joint#2")
    assert "joint#1" in export("repro", log, "--graph", "r0:4/0", "--stage", "joint#1")


@pytest.mark.shared
def test_what_is_asked_wrongly_is_said_in_one_line(shared: Path, tmp_path: Path) -> None:
    log = shared / "traces/h200/gpt2"
    for args, message in (
        (["dot", log], "several graphs to choose from: 1/0_1 (forward, 257 nodes)"),
        (["dot", log, "--graph", "9/9"], "no compile '9/9'"),
        (["json", log, "--graph", "1/0", "--stage", "inference"], "has no stage 'inference'; it has: dynamo"),
        (["json", log, "--graph", "1/0", "--stage", "forward.code"], "is generated code, not a graph"),
        (["json", log, "--graph", "1/0", "--stage", "joint#b"], "stage joint#b: after # comes which of several"),
        (["json", log, "--graph", "1/0", "--stage", "joint#1", "--index", "0"], "name two graphs"),
        (["dot", log, "--graph", "1/0", "--around", "tanhh"], "no node tanhh in graph"),
        (["dot", log, "--graph", "1/0", "-o", tmp_path / "no" / "dir"], "cannot write"),
    ):
        with pytest.raises(FxscopeError) as error:
            export(*args)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.shared
def test_without_graphviz_the_package_is_named(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingError, match="apt-get install graphviz") as error:
        export("svg", shared / "traces/h200/gpt2", "--graph", "3/0")
    assert error.value.exit_code == 4


@pytest.mark.shared
def test_export_needs_no_torch(shared: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from fxscope.cli.export import command\n"
        "for form in ('dot', 'json', 'fx', 'repro', 'table'):\n"
        f"    command.main([form, {str(shared / 'traces/h200/gpt2')!r}, '--graph', '3/0'], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def run_repro(file: Path, *args: str) -> list[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(file), *args],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=env,
        cwd=file.parent,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def same_numbers(line: str, value: Any) -> bool:
    total = float(line.rpartition(" ")[2])
    return abs(total - value.double().abs().sum().item()) <= 1e-4 * max(1.0, total)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("log", "graph", "stage"),
    [("gpt2", "1/0", "forward"), ("bert_amp", "0/1", "dynamo"), ("gpt2", "3/0", "backward")],
)
def test_a_repro_runs_alone_and_gives_what_the_rebuilt_graph_gives(
    shared: Path, tmp_path: Path, log: str, graph: str, stage: str
) -> None:
    import torch

    from fxscope.graph.execute import run
    from fxscope.graph.inputs import make_inputs
    from fxscope.graph.rebuild import rebuild

    path = shared / "traces/h200" / log
    file = tmp_path / "repro.py"
    export("repro", path, "--graph", graph, "--stage", stage, "-o", file)
    assert "fxscope" not in file.read_text().replace("fxscope.graph", "")
    printed = run_repro(file)
    recording = open_recording(path)
    compile_ = recording.find(graph)
    symbols = recorded_symbols(recording, compile_)
    records = load_graph(recording, compile_, stage)
    outputs = run(rebuild(records, symbols=symbols), make_inputs(records, symbols=symbols))
    assert len(printed) == len(outputs)
    for line, value in zip(printed, outputs, strict=True):
        if isinstance(value, torch.Tensor) and torch.isfinite(value.double()).all():
            assert f"{value.dtype} {list(value.shape)}" in line
            assert same_numbers(line, value), line


def test_a_fresh_recordings_graphs_parse_and_repros_run(fresh: Path, tmp_path: Path) -> None:
    recording = open_recording(fresh)
    checked = 0
    for compile_ in recording.compiles:
        for text in compile_.graphs:
            if text.stage.endswith(".code"):
                continue
            graph = parse_graph(recording.text(text.event), stage=text.stage)
            assert graph.problems == []
            if text.stage == "dynamo":
                assert len(graph.nodes) == compile_.nodes
                assert {node.source.code for node in graph.nodes if node.source} >= {"x[:, 0] += 1"}
            checked += 1
    assert checked >= 4
    file = tmp_path / "repro.py"
    last = [each for each in recording.compiles if any(text.stage == "dynamo" for text in each.graphs)][-1]
    export("repro", fresh, "--graph", last.key, "-o", file)
    assert len(run_repro(file, "--backend", "aot_eager")) == 2
    first = recording.find("0/0")
    assert last.key != first.key  # the second length made a second entry
    diff = diff_graphs(load_graph(recording, first), load_graph(recording, last))
    assert diff.besides_sizes() == []


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    "case",
    ["case_17_dict_size_varies", "case_36_autocast_toggle"],
)
def test_graphs_of_recorded_cases_parse(shared: Path, recorded: Callable[..., Any], case: str) -> None:
    made = recorded(shared / "cases" / f"{case}.py")
    recording = open_recording(made.path)
    count = 0
    for compile_ in recording.compiles:
        for text in compile_.graphs:
            if not text.stage.endswith(".code"):
                assert parse_graph(recording.text(text.event), stage=text.stage).problems == []
                count += 1
    assert count
