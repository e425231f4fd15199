"""The verdicts of ``fxscope try``."""

from __future__ import annotations

from typing import Any

import pytest

from fxscope.diagnosis.trial import Outcome, judge, output_difference, parse_change
from fxscope.errors import UsageError


def outcome(**fields: Any) -> Outcome:
    return Outcome(**{"change": "x", "exit_code": 0, "graphs": 2, "output": "loss 0.5\n", **fields})


BASE = outcome(graph_breaks=2, recompiles=3)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (outcome(graph_breaks=2, recompiles=3), "same"),
        (outcome(graph_breaks=0, recompiles=3), "better"),
        (outcome(graph_breaks=2, recompiles=4), "worse"),
        (outcome(graph_breaks=0, recompiles=4), "mixed"),
        (outcome(graph_breaks=0, recompiles=3, output="loss 0.50004\n"), "better"),
        (outcome(graph_breaks=0, recompiles=3, output="loss 0.6\n"), "changed results"),
        (outcome(graph_breaks=0, recompiles=3, exit_code=1, problem="RuntimeError: x"), "fails"),
        (outcome(graph_breaks=2, recompiles=3, graphs=0), "worse"),
        (outcome(graph_breaks=2, recompiles=3, compile_seconds=1.9), "same"),
        (outcome(graph_breaks=2, recompiles=3, compile_seconds=20.0), "worse"),
    ],
)
def test_verdict(found: Outcome, verdict: str) -> None:
    assert judge(BASE, found).verdict == verdict


def test_a_program_that_varies_by_itself_is_not_compared() -> None:
    assert (
        judge(BASE, outcome(graph_breaks=0, recompiles=3, output="loss 0.6\n"), reproducible=False).verdict == "better"
    )


def test_a_failing_program_that_runs_is_better() -> None:
    assert judge(outcome(exit_code=1, output=""), outcome(output="done\n")).verdict == "better"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"exit_code": 124, "problem": "stopped after 5 s"}, {"exit_code": 124, "problem": "stopped after 5 s"}),
        ({"exit_code": 1}, {"exit_code": 1}),
        ({"exit_code": 1, "graph_breaks": 3}, {"exit_code": 124}),  # fewer breaks, but it came less far
    ],
)
def test_two_runs_that_fail_are_not_the_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    judged = judge(outcome(**before), outcome(**after))
    assert judged.verdict == "fails"
    assert f"exit code {after['exit_code']}, as it is {before['exit_code']}" in judged.reasons[0]
    assert after.get("problem", "") in [*judged.reasons[:2], ""]


def test_output_difference_names_the_line() -> None:
    assert output_difference("a 1.0\nb 2\n", "a 1.0001\nb 2\n") is None
    assert "line 2" in str(output_difference("a 1.0\nb 2\n", "a 1.0\nb 3\n"))
    assert output_difference("a\n", "a\nb\n") == "output has 1 line -> 2"
    assert output_difference("x nan inf\n", "x nan inf\n") is None


def test_changes() -> None:
    assert parse_change("dynamic").options == ("--dynamic",)
    assert parse_change("limit:64").options[:2] == ("--config", "recompile_limit=64")
    assert parse_change("config:allow_rnn=True").options == ("--config", "allow_rnn=True")
    assert parse_change("backend:aot_eager").options == ("--backend", "aot_eager")
    assert parse_change("mark-dynamic:x:0").environment == {"TORCH_COMPILE_DYNAMIC_SOURCES": "L['x']:0"}
    assert parse_change("mark-unbacked:L['y']").environment == {"TORCH_COMPILE_UNBACKED_SOURCES": "L['y']"}
    for wrong in ("nonsense", "limit:x", "config:x", "mode:", "dynamic:1"):
        with pytest.raises(UsageError, match="mark-dynamic"):
            parse_change(wrong)
