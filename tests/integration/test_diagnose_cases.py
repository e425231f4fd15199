"""The shared cases of real users: every expected id, no false alarm, the right line, a fix that works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

import fxscope
from fxscope.diagnosis.diagnose import diagnose
from fxscope.diagnosis.findings import Finding, kinds
from fxscope.recording.recording import Recording
from tests.versions_of_torch import truth_of_torch

SHARED = Path(os.environ.get("FXSCOPE_SHARED", Path(__file__).resolve().parents[3] / "shared"))
CASES = SHARED / "cases"
TRUTH = truth_of_torch(json.loads((CASES / "truth.json").read_text())) if (CASES / "truth.json").exists() else {}
RUNNER = Path(__file__).resolve().parents[1] / "data" / "diagnosis" / "run_scripts.py"
pytestmark = [pytest.mark.shared, pytest.mark.slow, pytest.mark.timeout(900)]

# Ids beyond `expect`, each with its reason.
ARGUED = {
    "recompile-storm": "the limit was reached, which is what the id says",
    "break-value": "case 30: the mask's length crosses the break and is guarded in the resumed frames",
    "not-amortised": "a fact of severity info: on a slow machine the compile time of a toy exceeds its few calls",
}
# What the fix must say: the words of the fix that truth.json measured.
FIXES = {
    "01": ["register_buffer('calls'", "allow_unspec_int_on_nn_module"],
    "02": ["torch.tensor("],
    "03": ["lr=torch.tensor(0.01)"],
    "06": ["dynamic=None", "static cache"],
    "09": ["drop_last=True", "mark_dynamic"],
    "10": ["mark_unbacked"],
    "14": ["hot swap", "recompile_limit"],
    "17": ["torch.stack(list(feats.values()))"],
    "21": ["once, outside"],
    "22": ["torch.einsum", "one_hot", "GuardOnDataDependentSymNode"],
    "24": ["is_compiling()", "reorderable_logging_functions.add(print)"],
    "25": ["is_compiling()", "ignore_logging_functions.add(logging.Logger.info)"],
    "28": ["is_compiling()", "outside of the compiled function"],
    "29": ["register_fake"],
    "30": ["multiply by the mask", "capture_dynamic_output_shape_ops"],
    "34": ["self.compile("],
    "36": ["same autocast state"],
    "44": ["teach the backend"],
    "47": ["outside:", "torch.compile(opt.step)"],
    "55": ["Nothing to fix"],
    "59": ["dist.max()", "capture_scalar_outputs"],
    "66": ["allow_rnn = True", "outside"],
    "68": ["x.shape[0]", "maybe_mark_dynamic(x, 0)"],
}


@pytest.fixture(scope="module")
def runs(store: Path) -> Path:
    """All cases, as they are and fixed, recorded by one process once per test run."""
    from filelock import FileLock

    if not TRUTH:
        pytest.skip(f"{CASES} is absent")
    folder = store / "cases"
    with FileLock(str(folder) + ".lock"):
        if not (folder / "facts.json").exists():
            folder.mkdir(exist_ok=True)
            specs = [str(CASES / case["script"]) for case in TRUTH.values()]
            specs += [f"{CASES / case['script']}::--fixed" for case in TRUTH.values() if case["fixed_measured"]]
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [sys.executable, "-W", "ignore", str(RUNNER), str(folder), *specs],
                capture_output=True,
                text=True,
                timeout=800,
                env=env,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
    return folder


@lru_cache(maxsize=128)
def opened(path: Path) -> tuple[Recording, tuple[Finding, ...]]:
    recording = fxscope.open(path)
    return recording, tuple(diagnose(recording))


def of(runs: Path, number: str, fixed: bool = False) -> tuple[Recording, tuple[Finding, ...]]:
    name = TRUTH[number]["script"].removesuffix(".py") + ("--fixed" if fixed else "")
    return opened(runs / f"{name}.fxscope")


@pytest.mark.parametrize("number", list(TRUTH))
def test_ids(runs: Path, number: str) -> None:
    _, findings = of(runs, number)
    ids = {id_ for finding in findings for id_ in finding.ids}
    told = {id_ for finding in findings if finding.severity != "info" for id_ in finding.ids}
    case = TRUTH[number]
    assert set(case["expect"]) <= ids
    for alarm in case["false_alarms"]:
        assert not (told if alarm == "*" else {alarm} & ids)
    assert ids - set(case["expect"]) <= set(ARGUED)
    assert ids <= set(kinds())


@pytest.mark.parametrize("number", list(TRUTH))
def test_line(runs: Path, number: str) -> None:
    """A break names its line; a recompile the function, or the call where the function is torch's."""
    _, findings = of(runs, number)
    case = TRUTH[number]
    script = case["script"]
    for finding in findings:
        assert Path(finding.file).name == script, finding
        assert finding.code
    lines = {finding.line for finding in findings}
    for site in case["measured"]["break_sites"]:
        if site["file"] == script:
            assert site["line"] in lines
    for guard in case["measured"]["failed_guards"]:
        if guard["file"] == script:
            assert guard["line"] in lines


@pytest.mark.parametrize("number", list(FIXES))
def test_fix(runs: Path, number: str) -> None:
    _, findings = of(runs, number)
    text = "\n".join(finding.fix for finding in findings)
    for words in FIXES[number]:
        assert words in text


@pytest.mark.parametrize("number", [number for number, case in TRUTH.items() if case["fixed_measured"]])
def test_the_fixed_variant_is_clean(runs: Path, number: str) -> None:
    before, _ = of(runs, number)
    after, findings = of(runs, number, fixed=True)
    left = [finding.ids for finding in findings if finding.severity != "info"]
    # Case 03: torch's own breaks in Optimizer.step stay, as its truth says.
    assert left == ([["library-code"]] if number == "03" else [])
    measured = TRUTH[number]["fixed_measured"]
    assert after.totals.graphs == measured["graphs"]
    assert after.totals.limit_hits == 0
    assert after.totals.graph_breaks <= before.totals.graph_breaks
    assert after.totals.recompiles <= before.totals.recompiles


def test_evidence_points_at_records(runs: Path) -> None:
    lists = {"break": "graph_breaks", "recompile": "recompiles", "limit": "limit_hits", "failure": "failures"}
    seen = set()
    for number in TRUTH:
        recording, findings = of(runs, number)
        for finding in findings:
            assert finding.evidence
            for evidence in finding.evidence:
                if evidence.kind in lists:
                    assert 0 <= evidence.index < len(getattr(recording, lists[evidence.kind]))
                    seen.add(evidence.kind)
    assert seen == set(lists)


def test_records_get_cause_and_fix(runs: Path) -> None:
    from fxscope.diagnosis.diagnose import explain_records

    for number in TRUTH:
        recording, _ = of(runs, number)
        explain_records(recording)
        for record in [*recording.graph_breaks, *recording.recompiles]:
            assert record.cause in kinds()
            assert record.fix
