"""The terminal page, the summary line and the JSON of real recordings."""

from __future__ import annotations

import html
import io
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from rich.console import Console

import fxscope
from fxscope.recording.records import FailedGuard
from fxscope.report.cost import line_costs
from fxscope.report.document import ReportDocument, encode_document, report_document
from fxscope.report.html import render_html
from fxscope.report.summary import seconds, summary_line
from fxscope.report.terminal import describe_guard, print_report, short_path
from fxscope.words import count

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"
NAMES = sorted(path.name for path in TRACES.glob("*.xz"))


def page(name: str, *, width: int = 80, everything: bool = False) -> str:
    out = io.StringIO()
    print_report(
        fxscope.open(TRACES / f"{name}.log.xz"),
        Console(file=out, width=width, markup=False, highlight=False, emoji=False),
        everything=everything,
    )
    return out.getvalue()


def test_page_says_what_happened() -> None:
    text = page("branches")
    assert "4 frames, 3 compiles, 3 graphs, 2 graph breaks, 0 recompiles" in text
    assert "1× logs.py:4 in f  GB0170" in text
    assert "if x.sum() > 0:" in text
    assert "capture_scalar_outputs=False — frame skipped" in " ".join(text.split())
    assert "Where compile time went" in text


def test_limit_and_failures() -> None:
    text = page("fullgraph")
    assert "recompile_limit of 8 hit" in text
    assert "1/8 L['x'].size(0): expected 9, got 10  [1/7]  (+7 older)" in text
    assert "Unsupported in fullgraph" in text
    assert 'at fullgraph.py:5  print("hi")' in text


def test_caches() -> None:
    assert "aot_autograd hit" in page("warm_cache")
    assert "3× fx_graph miss  full_miss" in page("cold_cache")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = page(name.removesuffix(".log.xz"), width=width)
    assert all(len(line) <= width for line in text.split("\n"))
    assert "\x1b" not in text


def test_nothing_is_cut_silently(shared: Path) -> None:
    recording = fxscope.open(shared / "traces" / "models" / "Encodec")
    for everything in (False, True):
        out = io.StringIO()
        print_report(recording, Console(file=out, width=100, markup=False), everything=everything)
        text = out.getvalue()
        assert ("more recompiles: --all shows them" in text) is not everything
        assert ("more compiles: --all shows them" in text) is not everything
        if everything:
            assert all(f"{row.key} " in text for row in recording.recompiles)


@pytest.mark.parametrize("name", NAMES)
def test_document_follows_its_schema(name: str) -> None:
    document = json.loads(encode_document(report_document(fxscope.open(TRACES / name))))
    jsonschema.validate(document, msgspec.json.schema(ReportDocument))
    assert document["schema"] == "fxscope.report/1"


def test_document_has_what_scripts_rely_on() -> None:
    document = json.loads(encode_document(report_document(fxscope.open(TRACES / "fullgraph.log.xz"))))
    assert {"argv", "torch", "python", "exit_code", "processes"} <= document["session"].keys()
    assert document["totals"].keys() == {
        *("frames", "compiles", "graphs", "graph_breaks", "break_sites", "recompiles", "limit_hits", "failures"),
        *("compile_seconds", "events", "unknown_events"),
    }
    assert {
        *("id", "attempt", "rank", "process", "function", "file", "line", "status", "nodes", "guards", "seconds"),
        *("stages", "calls"),
    } <= document["compiles"][0].keys()
    first = document["recompiles"][0]
    assert {"id", "function", "file", "line", "outcome", "failed", "cause", "fix"} <= first.keys()
    assert {"entry", "guard", "source", "kind", "expected", "actual", "asked_file", "asked_line"} <= first["failed"][
        0
    ].keys()
    assert document["limit_hits"] == [
        {
            "id": "1/8",
            "rank": None,
            "function": "g",
            "file": "/home/user/program/fullgraph.py",
            "line": 9,
            "limit": "recompile_limit",
            "value": 8,
        }
    ]
    assert {"id", "phase", "type", "message", "file", "line"} <= document["failures"][0].keys()
    breaks = json.loads(encode_document(report_document(fxscope.open(TRACES / "branches.log.xz"))))["graph_breaks"]
    assert {
        *(
            "site",
            "file",
            "line",
            "function",
            "code",
            "gb_id",
            "kind",
            "count",
            "compile_ids",
            "user_file",
            "user_line",
        ),
        *("reason", "hints", "skipped_frame", "cause", "fix"),
    } <= breaks[0].keys()


def test_costs_count_every_attempt_once() -> None:
    recording = fxscope.open(TRACES / "nested_breaks.log.xz")
    costs = line_costs(recording)
    assert sum(cost.seconds for cost in costs) <= sum(row.seconds or 0.0 for row in recording.compiles) + 1e-9
    assert [cost.site for cost in costs] == ["nested.py:5", "nested.py:10", "nested.py:9"]


def test_summary_lines() -> None:
    assert summary_line(fxscope.open(TRACES / "warm_cache.log.xz")) == (
        "2 graphs in 2.4 s of compile time; no graph breaks, no recompiles"
    )
    assert summary_line(fxscope.open(TRACES / "fullgraph.log.xz")).startswith(
        "2 compiles failed, first at fullgraph.py:5"
    )
    assert summary_line(fxscope.open(TRACES / "branches.log.xz")).startswith("2 lines cost ")


def test_words() -> None:
    assert [count(1, "graph"), count(2, "graph"), count(0, "process"), count(3, "graph break")] == [
        *("1 graph", "2 graphs", "0 processes", "3 graph breaks")
    ]
    assert [seconds(value) for value in (0.0, 2e-5, 0.038, 1.04, 41.2, 192.0)] == [
        *("0 s", "20 us", "38 ms", "1.0 s", "41 s", "3 min 12 s")
    ]


def test_short_paths() -> None:
    assert short_path("/home/me/train.py") == "train.py"
    assert short_path("/v/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py") == "torch/…/eval_frame.py"
    assert short_path("C:\\v\\site-packages\\tqdm\\std.py") == "tqdm/std.py"


def test_guards_in_words() -> None:
    size = FailedGuard(entry="0/0", guard="g", source="L['x']", kind="size", expected="4", actual="6", index=1)
    assert describe_guard(size) == "L['x'].size(1): expected 4, got 6  [0/0]"
    kind = FailedGuard(entry="", guard="g", source="L['m']", kind="type", expected="<class 'a.b.Net'>")
    assert describe_guard(kind) == "L['m']: expected Net"
    asked = FailedGuard(
        entry="0/1", guard="2 <= x.size()[0]", source="x", kind="shape", asked_file="/home/me/a.py", asked_line=3
    )
    assert describe_guard(asked) == "2 <= x.size()[0]  asked at a.py:3  [0/1]"


@pytest.mark.parametrize("name", ["branches", "fullgraph"])
def test_the_page_holds_every_finding_that_diagnose_gives(name: str) -> None:
    recording = fxscope.open(TRACES / f"{name}.log.xz")
    findings = recording.diagnose()
    assert findings
    text = html.unescape(render_html(recording))
    for found in findings:
        for part in (found.title, found.cause, found.fix, found.verify, ", ".join(found.ids)):
            assert part in text
    assert f"Findings: {len(findings)}, worst first" in text


def test_a_page_without_findings_has_no_section_for_them() -> None:
    recording = fxscope.open(TRACES / "cold_cache.log.xz")
    assert recording.diagnose() == []
    assert 'id="findings"' not in render_html(recording)
