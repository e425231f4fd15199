"""Budgets, baselines, and what CI systems read: JUnit XML, SARIF against the official schema, GitHub annotations."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from click.testing import CliRunner

import fxscope
from fxscope.cli.check import command
from fxscope.diagnosis.budget import Baseline, Budget, Violation, baseline_of, load_baseline, save_baseline, violations
from fxscope.diagnosis.diagnose import diagnose, explain_records
from fxscope.diagnosis.findings import Finding
from fxscope.diagnosis.story import Change, Frame
from fxscope.errors import CheckFailed, UnreadableError, UsageError
from fxscope.recording.records import Compile, FailedGuard, Recompile, Totals
from fxscope.report.github import annotation, failure
from fxscope.report.junit import junit
from fxscope.report.sarif import sarif

Problems = Callable[[str], tuple[Path, dict[str, Any]]]
SCHEMA = Path(__file__).resolve().parents[2] / "data" / "sarif-2.1.0-rtm.5.json.xz"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def printing(problems: Problems) -> Path:
    return problems("breaks")[0] / "print_shape"


@pytest.fixture
def storm(problems: Problems) -> Path:
    return problems("recompiles")[0] / "global_int"


def run(*arguments: str | Path) -> tuple[BaseException | None, str]:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    return result.exception, result.stdout


def test_within_and_beyond_a_budget(printing: Path) -> None:
    recording = fxscope.open(printing)
    assert violations(recording, Budget(max_graph_breaks=1, max_recompiles=0)) == []
    (violation,) = violations(recording, Budget(max_graph_breaks=0))
    assert violation.rule == "max-graph-breaks"
    assert violation.file.endswith("breaks_calls.py")
    assert "print" in violation.details[0]
    (violation,) = violations(recording, Budget(max_compile_seconds=0.0))
    assert violation.rule == "max-compile-seconds"
    (violation,) = violations(recording, Budget(fail_on="medium"))
    assert violation.rule == "print"
    assert violations(recording, Budget(fail_on="high")) == []


def test_the_command_fails_with_one_line(printing: Path, storm: Path) -> None:
    error, output = run(printing, "--max-graph-breaks", "0")
    assert isinstance(error, CheckFailed)
    assert error.exit_code == 1
    assert "FAIL  max-graph-breaks: 1 graph break at 1 site, allowed 0" in output
    error, output = run(printing, "--max-graph-breaks", "1")
    assert error is None
    assert "ok    max-graph-breaks" in output
    error, _ = run(storm)
    assert isinstance(error, CheckFailed)
    error, _ = run(storm, "--max-recompiles", "3")
    assert "7 recompiles, allowed 3" in str(error)


def test_json_is_one_document(printing: Path) -> None:
    from fxscope.cli.check import json_schema

    error, output = run(printing, "--max-graph-breaks", "0", "--json")
    assert isinstance(error, CheckFailed)
    document = json.loads(output)
    assert document["schema"] == "fxscope.check/1"
    assert document["passed"] is False
    jsonschema.validate(document, json_schema())


def test_baseline_round_trip(printing: Path, storm: Path, tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    error, _ = run(printing, "--baseline", file, "--update-baseline")
    assert error is None
    baseline = load_baseline(file)
    assert baseline == baseline_of(fxscope.open(printing))
    assert [each.count for each in baseline.graph_breaks] == [1]
    assert run(printing, "--baseline", file)[0] is None
    error, output = run(storm, "--baseline", file)
    assert isinstance(error, CheckFailed)
    assert "7 recompiles of f (recompiles_values.py) by changing-global, known 0" in output  # one more was refused
    assert "f x7 and 1 refused: G['COUNTER'] == 6 [changing-global]. Pass COUNTER" in output
    save_baseline(file, baseline_of(fxscope.open(storm)))
    error, output = run(printing, "--baseline", file)
    assert "new graph break at breaks_calls.py" in output
    (violation,) = violations(fxscope.open(printing), Budget(), load_baseline(file))
    report = fxscope.open(printing)
    explain_records(report)
    first = (report.graph_breaks[0].fix or "").split("\n")[0]
    assert first
    assert violation.details == (first,)


def test_a_baseline_does_not_mind_moved_lines(printing: Path) -> None:
    recording = fxscope.open(printing)
    baseline = baseline_of(recording)
    for found in recording.graph_breaks:
        found.line += 7
        found.user_line += 7
    assert violations(recording, Budget(), baseline) == []


def test_a_run_that_compiles_nothing_passes_no_baseline_that_knows_graphs(printing: Path, tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text("{}")
    (violation,) = violations(fxscope.open(tmp_path), Budget(), baseline_of(fxscope.open(printing)))
    assert violation.message == "nothing was compiled, known 2 graphs"


def session(folder: Path, exit_code: int | None) -> Path:
    folder.mkdir()
    (folder / "session.json").write_text(json.dumps({"exit_code": exit_code, "state": "ended"}))
    return folder


def copied(source: Path, folder: Path, exit_code: int) -> Path:
    """The logs of a recording, as those of a program with this exit code."""
    session(folder, exit_code)
    for log in source.glob("*.log*"):
        (folder / log.name).write_bytes(log.read_bytes())
    return folder


def test_a_program_that_failed_passes_only_where_that_is_allowed(printing: Path, tmp_path: Path) -> None:
    failed = copied(printing, tmp_path / "failed", 3)
    error, output = run(failed, "--max-graph-breaks", "1")
    assert isinstance(error, CheckFailed)
    assert "FAIL  program: the program failed with exit code 3" in output
    assert "ok    max-graph-breaks" in output
    assert run(failed, "--max-graph-breaks", "1", "--allow-failed")[0] is None
    assert run(copied(printing, tmp_path / "fine", 0), "--max-graph-breaks", "1")[0] is None
    error, _ = run(failed, "--baseline", tmp_path / "b.json", "--update-baseline")
    assert "no baseline written" in str(error)
    assert not (tmp_path / "b.json").exists()


def test_a_failure_of_torch_compile_is_named(problems: Problems) -> None:
    failing = problems("breaks")[0] / "no_fake"
    error, output = run(failing, "--max-graph-breaks", "9", "--allow-nothing")
    assert isinstance(error, CheckFailed)
    assert "FAIL  program: torch.compile failed: 1 failure" in output
    assert "breaks_modules.py:" in output
    assert run(failing, "--max-graph-breaks", "9", "--allow-nothing", "--allow-failed")[0] is None


def test_nothing_compiled_passes_only_where_that_is_meant(tmp_path: Path) -> None:
    nothing = session(tmp_path / "nothing", 0)
    error, output = run(nothing, "--max-graph-breaks", "0")
    assert isinstance(error, CheckFailed)
    assert "FAIL  compiled: no graph was compiled" in output
    assert "--allow-nothing" in str(error)
    assert run(nothing, "--max-graph-breaks", "0", "--allow-nothing")[0] is None


def test_two_files_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function ``forward`` in two files ``model.py``: each cause at the one that has it."""
    stories = []
    for folder, cause in (("a", "changing-global"), ("b", "changing-number")):
        guard = FailedGuard(entry="0/0", guard=f"guard of {folder}")
        recompile = Recompile(id="0/1", key="0/1", outcome="compiled")
        change = Change(index=0, recompile=recompile, guard=guard, ids=(cause,), name="")
        place = (f"/{folder}/model.py", 3)
        stories.append(Frame(function="forward", file=place[0], line=3, place=place, changes=[change]))
    monkeypatch.setattr("fxscope.diagnosis.budget.frames", lambda context: stories)
    monkeypatch.setattr("fxscope.diagnosis.budget.explain_records", lambda recording: None)
    recording: Any = SimpleNamespace(graph_breaks=[], totals=Totals())
    found = violations(recording, Budget(), Baseline())
    assert [(each.file, f"guard of {each.file[1]}" in each.details[0]) for each in found] == [
        ("/a/model.py", True),
        ("/b/model.py", True),
    ]


def test_what_is_as_allowed_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds, limit hits and failures: as many as allowed pass, more do not, and the slowest five compiles are named."""
    monkeypatch.setattr("fxscope.diagnosis.budget.frames", lambda context: [])
    monkeypatch.setattr("fxscope.diagnosis.budget.explain_records", lambda recording: None)
    seconds = [0.1, 0.6, None, 0.5, 0.2, 0.7, 0.4]
    compiles = [
        Compile(id=f"{at}/0", key=f"{at}/0", function="f", file="/a/m.py", line=at, seconds=each)
        for at, each in enumerate(seconds)
    ]
    totals = Totals(compile_seconds=2.5, limit_hits=1, failures=2)
    recording: Any = SimpleNamespace(compiles=compiles, graph_breaks=[], totals=totals)
    assert violations(recording, Budget(max_compile_seconds=2.5), Baseline(limit_hits=1, failures=2)) == []
    slow, limit, failed = violations(recording, Budget(max_compile_seconds=2.4), Baseline())
    assert slow.message == "2.5 s of compiling, allowed 2.4 s"
    assert slow.details == tuple(f"{at}/0 f (m.py:{at}): {seconds[at]} s" for at in (5, 1, 3, 6, 4))
    assert (limit.message, failed.message) == ("1 limit hit, known 0", "2 failures, known 0")


def test_bad_baselines(printing: Path, tmp_path: Path) -> None:
    error, _ = run(printing, "--baseline", tmp_path / "none.json")
    assert isinstance(error, UnreadableError)
    assert "--update-baseline" in str(error)
    (tmp_path / "bad.json").write_text('{"schema": "other/1"}')
    error, _ = run(printing, "--baseline", tmp_path / "bad.json")
    assert isinstance(error, UnreadableError)
    error, _ = run(printing, "--update-baseline")
    assert isinstance(error, UsageError)


def test_junit(printing: Path, tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    run(printing, "--max-graph-breaks", "0", "--max-recompiles", "0", "--junit", file)
    suite = ET.parse(file).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    cases = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert cases["max-recompiles"] is None
    failure = cases["max-graph-breaks"]
    assert failure is not None
    assert "is_compiling" in str(failure.text)


def test_junit_takes_any_text() -> None:
    from fxscope.diagnosis.budget import Violation

    text = junit(
        "a\x00b<&>\ud800", ["r"], [Violation(rule="r", message="\x1b[31m<b>\x08\uffff\ufffe", details=("]]>",))]
    )
    ET.fromstring(text)


def sarif_schema() -> Any:
    return json.loads(lzma.decompress(SCHEMA.read_bytes()))


@pytest.mark.parametrize(
    ("script", "files"),
    [
        ("breaks", ("breaks_calls", "breaks_data", "breaks_modules")),
        ("recompiles", ("recompiles_objects", "recompiles_shapes", "recompiles_state", "recompiles_values")),
    ],
)
def test_sarif_is_valid(problems: Problems, script: str, files: tuple[str, ...]) -> None:
    folder, facts = problems(script)
    findings = [
        finding
        for name in facts
        if (folder / name).is_dir() and list((folder / name).iterdir())
        for finding in diagnose(fxscope.open(folder / name))
    ]
    assert len(findings) > 30
    document = json.loads(sarif(findings, root=str(Path(__file__).resolve().parents[3])))
    jsonschema.Draft4Validator(sarif_schema()).validate(document)
    (run_,) = document["runs"]
    rules = [rule["id"] for rule in run_["tool"]["driver"]["rules"]]
    uris = set()
    for result in run_["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        for location in result.get("locations", []):
            uris.add(location["physicalLocation"]["artifactLocation"]["uri"])
    assert {f"tests/data/diagnosis/{name}.py" for name in files} <= uris


def test_sarif_of_nothing_is_valid_too() -> None:
    jsonschema.Draft4Validator(sarif_schema()).validate(json.loads(sarif([])))


def test_a_drive_is_no_scheme_of_an_uri() -> None:
    finding = Finding(
        ids=["print"], category="breaks", severity="high", title="t", file="C:\\w\\a b.py", line=3, function="f"
    )

    def uri(root: str) -> str:
        (result,) = json.loads(sarif([finding], root))["runs"][0]["results"]
        return str(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])

    assert uri("") == "file:///C:/w/a%20b.py"
    assert uri("C:\\w") == "a%20b.py"


def test_github_annotation_is_escaped() -> None:
    finding = Finding(
        ids=["print"], category="breaks", severity="high", title="50% of\nit", file="/repo/a,b:c.py", line=3, fix="x\ny"
    )
    assert (
        annotation(finding, "/repo") == "::error file=a%2Cb%3Ac.py,line=3,title=fxscope%3A print::50%25 of%0Ait. x%0Ay"
    )
    finding = Finding(ids=["print"], category="breaks", severity="info", title="t")
    assert annotation(finding) == "::notice title=fxscope%3A print::t. "


def test_what_failed_is_an_error_of_github(storm: Path, tmp_path: Path) -> None:
    violation = Violation(rule="baseline", message="new", details=("", "mend it"), file="/repo/a.py", line=3)
    assert failure(violation, "/repo") == "::error file=a.py,line=3,title=fxscope%3A baseline::new%0Amend it"
    error, output = run(storm, "--max-recompiles", "0", "--github")
    assert isinstance(error, CheckFailed)
    assert output.splitlines()[0].startswith("::error file=")
    assert "title=fxscope%3A max-recompiles::7 recompiles, allowed 0%0A" in output
    _, output = run(storm, "--github")  # each finding that fails is told once
    assert output.count("title=fxscope%3A recompile-storm") == 1


def test_files_are_written_by_the_command(printing: Path, tmp_path: Path) -> None:
    error, output = run(printing, "--max-graph-breaks", "9", "--sarif", tmp_path / "a.sarif", "--github")
    assert error is None
    jsonschema.Draft4Validator(sarif_schema()).validate(json.loads((tmp_path / "a.sarif").read_text()))
    assert output.startswith("::warning file=")
