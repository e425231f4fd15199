"""What people and scripts see: diagnose, diff, annotate, explain, notebooks."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

import fxscope
from fxscope.diagnosis.compare import compare
from fxscope.diagnosis.diagnose import diagnose
from fxscope.diagnosis.findings import kinds, severity_rank
from fxscope.errors import CheckFailed, UsageError

Problems = Callable[[str], tuple[Path, dict[str, Any]]]
pytestmark = pytest.mark.timeout(900)


def run(verb: str, *arguments: str | Path) -> Any:
    command = importlib.import_module(f"fxscope.cli.{verb}").command
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def schema_of(verb: str) -> Any:
    return importlib.import_module(f"fxscope.cli.{verb}").json_schema()


def test_diagnose_json(problems: Problems) -> None:
    folder, _ = problems("breaks")
    result = run("diagnose", folder / "custom_context", "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema_of("diagnose"))
    assert document["schema"] == "fxscope.diagnose/1"
    (finding,) = document["findings"]
    assert finding["ids"] == ["print", "context-manager", "frame-skipped"]
    assert (finding["category"], finding["severity"], finding["function"]) == ("breaks", "high", "f")
    assert finding["evidence"][0]["kind"] == "break"


def test_diagnose_text(problems: Problems) -> None:
    folder, _ = problems("recompiles")
    text = run("diagnose", folder / "global_int").stdout
    assert text.startswith("1. HIGH  7 recompiles of f: COUNTER (0, 1, 2, 3, ... (8 values))")
    for label in ("where:", "cause:", "fix:", "gain:", "verify:", "evidence:"):
        assert label in text
    assert "Nothing is wrong" in run("diagnose", folder / "global_int.fixed").stdout
    assert "Nothing is wrong" in run("diagnose", folder / "int_argument", "--severity", "low").stdout


def test_a_terminal_is_not_played_with(problems: Problems) -> None:
    from rich.console import Console

    from fxscope.diagnosis.findings import Finding
    from fxscope.report.findings import print_findings

    console = Console(width=60, record=True, file=io.StringIO())
    print_findings(
        console,
        [Finding(ids=["print"], category="breaks", severity="high", title="\x1b]0;evil\x07 [bold]x", fix="[/red]")],
    )
    text = console.export_text()
    assert "\x1b" not in text
    assert "[bold]x" in text
    assert "[/red]" in text


def test_worst_first(problems: Problems) -> None:
    folder, facts = problems("recompiles")
    mixed = 0
    for name in facts:
        if (folder / name).is_dir() and list((folder / name).iterdir()):
            ranks = [severity_rank(finding.severity) for finding in diagnose(fxscope.open(folder / name))]
            assert ranks == sorted(ranks)
            mixed += len(set(ranks)) > 1
    assert mixed > 0


def test_diff_tells_the_fix_from_the_problem(problems: Problems) -> None:
    folder, _ = problems("breaks")
    found = compare(fxscope.open(folder / "print_shape"), fxscope.open(folder / "print_shape.fixed"))
    (delta,) = found.graph_breaks
    assert (delta.change, delta.cause, delta.before, delta.after) == ("gone", "print", 1, 0)
    assert found.recompiles == []
    assert any(graph.change == "changed" for graph in found.graphs)
    same = compare(fxscope.open(folder / "print_shape"), fxscope.open(folder / "print_shape"))
    assert (same.graph_breaks, same.recompiles, same.graphs) == ([], [], [])
    assert same.same_graphs == 2


def test_diff_command(problems: Problems) -> None:
    folder, _ = problems("recompiles")
    good, bad = folder / "global_int.fixed", folder / "global_int"
    result = run("diff", good, bad, "--fail-on", "new-recompiles")
    assert isinstance(result.exception, CheckFailed)
    assert (
        "new    f (recompiles_values.py): COUNTER [changing-global] 0 -> 7" in result.stdout
    )  # refused ones are limit hits
    assert "new     f (recompiles_values.py) 7 graphs (0/1, 0/2, 0/3, ... 0/7): 3 nodes each" in result.stdout
    assert run("diff", bad, good, "--fail-on", "new-recompiles,new-breaks,new-limit-hits").exception is None
    assert isinstance(run("diff", bad, good, "--fail-on", "nonsense").exception, UsageError)
    assert isinstance(run("diff", bad, good, "--fail-on", "slower:x").exception, UsageError)
    document = json.loads(run("diff", good, bad, "--json").stdout)
    jsonschema.validate(document, schema_of("diff"))
    assert document["schema"] == "fxscope.diff/1"


def test_guards_that_a_change_adds_are_counted(problems: Problems) -> None:
    folder, _ = problems("recompiles")
    found = compare(fxscope.open(folder / "plain_object_flag"), fxscope.open(folder / "plain_object_flag.fixed"))
    assert any(graph.guards_added or graph.guards_removed for graph in found.graphs)


def test_annotate(problems: Problems, tmp_path: Path) -> None:
    folder, facts = problems("breaks")
    line = facts["print_shape"]["here"][0]
    text = run("annotate", folder / "print_shape").stdout
    (marked,) = [row for row in text.splitlines() if f" {line} " in row]
    assert marked.split()[0] == "B1"
    assert "^ break x1 GB0059 print:" in text
    result = run("annotate", folder / "print_shape", "breaks_calls.py", "--html", tmp_path / "a.html")
    assert result.exception is None
    page = (tmp_path / "a.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    assert "http" not in page.split("</style>")[0]
    assert isinstance(run("annotate", folder / "print_shape", "nosuch.py").exception, UsageError)
    document = json.loads(run("annotate", folder / "print_shape", "--json").stdout)
    jsonschema.validate(document, schema_of("annotate"))


def test_annotate_marks_the_line_that_failed(problems: Problems) -> None:
    folder, facts = problems("breaks")
    line = facts["operator_without_backward"]["here"][0]
    text = run("annotate", folder / "operator_without_backward").stdout
    (marked,) = [row for row in text.splitlines() if f" {line} " in row]
    assert marked.split()[0] == "F1"
    assert "^ failure in backend: BackendCompilerFailed: RuntimeError: Trying to backward through" in text


def test_annotate_marks_recompiles_at_the_function(problems: Problems) -> None:
    folder, facts = problems("recompiles")
    text = run("annotate", folder / "global_int").stdout
    (marked,) = [row for row in text.splitlines() if f" {facts['global_int']['here'][0]} " in row]
    assert "R8" in marked


def test_the_pages_are_those_of_the_tables() -> None:
    """``python -m fxscope.diagnosis.pages docs`` writes them anew."""
    from fxscope.diagnosis.pages import findings_page, graph_breaks_page
    from fxscope.diagnosis.registry import entries

    docs = Path(__file__).resolve().parents[3] / "docs"
    assert (docs / "findings.md").read_text() == findings_page()
    assert (docs / "graph_breaks.md").read_text() == graph_breaks_page()
    for id_ in kinds():
        assert f"| `{id_}` |" in findings_page()
    for id_ in entries():
        assert f"| {id_} |" in graph_breaks_page()


def test_findings_in_a_notebook_are_escaped() -> None:
    from fxscope.diagnosis.findings import Finding
    from fxscope.diagnosis.html import findings_table

    text = findings_table(
        [Finding(ids=["print"], category="breaks", severity="high", title="<script>x</script>", file="a.py", line=1)]
    )
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "Nothing is wrong" in findings_table([])


def test_explain_takes_several_calls() -> None:
    import torch

    def scale(x: Any, factor: str) -> Any:
        y = x * len(factor)
        if y.sum() > 0:
            return y + 1
        return y

    torch._dynamo.reset()
    found = fxscope.explain(scale, torch.ones(3), "a", calls=[(torch.ones(3), "b" * i) for i in range(2, 5)])
    ids = {id_ for finding in found.findings for id_ in finding.ids}
    assert {"data-dependent-branch", "changing-number"} <= ids
    assert found.error is None
    assert "torch.where(y.sum() > 0, y + 1, y)" in str(found)
    assert "<table>" in found._repr_html_()


def test_explain_reports_a_failure() -> None:
    import torch

    def wrong(x: Any) -> Any:
        return x @ torch.ones(7, 7)

    torch._dynamo.reset()
    found = fxscope.explain(wrong, torch.ones(3, 3))
    assert found.error is not None
    assert "user-error" in {id_ for finding in found.findings for id_ in finding.ids}
    assert "The calls ended with" in str(found)


def test_a_recording_diagnoses_itself(problems: Problems) -> None:
    folder, _ = problems("breaks")
    recording = fxscope.open(folder / "print_shape")
    assert [finding.ids for finding in recording.diagnose()] == [["print"]]
    assert "print" in recording._repr_html_()


def test_the_table_of_try_fits_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fxscope.cli.try_ import _print_table
    from fxscope.diagnosis.trial import Judged, Outcome

    monkeypatch.setenv("COLUMNS", "80")
    name = "config:allow_unspec_int_on_nn_module=True"
    base = Outcome(change="as it is", exit_code=0, graphs=123, recompiles=77, compile_seconds=123.4, seconds=567.8)
    changed = Outcome(change=name, exit_code=0, graphs=123, graph_breaks=456, compile_seconds=99.9, seconds=456.7)
    _print_table(
        base, [Judged(verdict="changed results", reasons=["output line 1"], outcome=changed)], reproducible=True
    )
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "567.8" in lines[1]
    assert f"{name}: output line 1" in lines
