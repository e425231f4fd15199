"""Which stage of the compiler changes the results, from the outcomes of the rungs."""

from __future__ import annotations

from typing import Any

import pytest

from fxscope.cli.rerun import Rerunner
from fxscope.cli.stages import climb
from fxscope.diagnosis.stages import AS_IT_IS, BY_DESIGN, LADDER, REFERENCE
from fxscope.diagnosis.trial import Change, Outcome, parse_change

RUNGS = [rung.change for rung in LADDER[1:]]


class Fake(Rerunner):
    """Prints ``eager`` on every rung but those that are given."""

    def __init__(self, **outcomes: Any) -> None:
        self.outcomes, self.ran = outcomes, list[str]()

    def run(self, name: str, change: Change | None = None) -> Outcome:
        self.ran.append(name)
        found = {"output": "loss 0.5\n", "exit_code": 0, **self.outcomes.get(name, {})}
        return Outcome(change=name, recording="out/a b.fxscope", **found)


CHANGED = {"output": "loss 0.7\n"}
CRASHED = {"exit_code": 1, "problem": "BackendCompilerFailed: no"}


def test_the_same_results_need_two_runs() -> None:
    fake = Fake(**{AS_IT_IS: {"output": "loss 0.50004\n"}})
    document = climb(fake, ["x.py"])
    assert fake.ran == [REFERENCE, AS_IT_IS]
    assert document.conclusion.change is None
    assert "same with torch.compile as without" in document.conclusion.sentence


@pytest.mark.parametrize("first", range(len(RUNGS)))
@pytest.mark.parametrize("how", [CHANGED, CRASHED])
def test_the_first_stage_that_differs_is_named(first: int, how: dict[str, Any]) -> None:
    document = climb(Fake(**dict.fromkeys([*RUNGS[first:], *(rung.change for rung in BY_DESIGN)], how)), ["x.py"])
    assert document.conclusion.change == RUNGS[first]
    assert LADDER[first + 1].adds in document.conclusion.sentence
    assert ("fails" in document.conclusion.sentence) == (how is CRASHED)
    if how is CHANGED:
        assert document.conclusion.advice == LADDER[first + 1].means
    else:
        assert document.conclusion.advice == "fxscope diagnose 'out/a b.fxscope' says why."
    assert [step.result for step in document.stages[:first]] == ["same"] * first


def test_a_rung_that_differs_by_itself_is_not_the_stage() -> None:
    odd = {"backend:aot_eager_decomp_partition": CHANGED, "backend:eager": CRASHED}
    odd.update(dict.fromkeys([AS_IT_IS, *(rung.change for rung in BY_DESIGN)], CHANGED))
    document = climb(Fake(**odd), ["x.py"])
    assert document.conclusion.change == "backend:aot_eager_decomp_partition"


@pytest.mark.parametrize("rung", BY_DESIGN, ids=lambda rung: rung.change)
def test_random_numbers_and_rounding_are_told_from_faults(rung: Any) -> None:
    others = {each.change: CHANGED for each in BY_DESIGN if each is not rung}
    document = climb(Fake(**{AS_IT_IS: CHANGED}, **others), ["x.py"])
    assert document.conclusion.change == rung.change
    assert document.conclusion.advice == rung.means


def test_a_program_that_varies_by_itself_is_not_compared() -> None:
    fake = Fake(**{AS_IT_IS: CHANGED, "disable, again": {"output": "loss 0.9\n"}})
    document = climb(fake, ["x.py"])
    assert document.conclusion.change is None
    assert "Seed" in document.conclusion.advice
    assert len(fake.ran) == 3


def test_a_program_that_fails_in_eager_too_is_the_same() -> None:
    document = climb(Fake(**{REFERENCE: {"exit_code": 1}, AS_IT_IS: {"exit_code": 1}}), ["x.py"])
    assert document.stages[-1].result == "same"
    assert "fails both times (exit code 1)" in document.conclusion.sentence


def test_every_rung_is_a_change_that_try_knows() -> None:
    for rung in (*LADDER, *BY_DESIGN):
        assert rung.change == AS_IT_IS or parse_change(rung.change).name == rung.change
