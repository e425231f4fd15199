"""Calls that ran eager behind the recompile limit: counted by the interpreter for one code object, and told."""

from __future__ import annotations

import json
import sys
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from fxscope.capture import eager
from fxscope.capture.launches import Entry
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.recompiles import _eager_calls
from fxscope.diagnosis.story import Frame


class Monitoring:
    """``sys.monitoring`` as far as it is used: a tool may be taken already, and events go to whoever asked for a code object."""

    events = SimpleNamespace(PY_START=1)

    def __init__(self, *taken: int) -> None:
        self.tools: dict[int, str] = dict.fromkeys(taken, "other")
        self.callback: Any = None
        self.watched: dict[CodeType, int] = {}

    def get_tool(self, number: int) -> str | None:
        return self.tools.get(number)

    def use_tool_id(self, number: int, name: str) -> None:
        assert number not in self.tools
        self.tools[number] = name

    def free_tool_id(self, number: int) -> None:
        del self.tools[number]

    def register_callback(self, number: int, event: int, callback: Any) -> None:
        assert (self.tools[number], event) == ("fxscope", 1)
        self.callback = callback

    def set_local_events(self, number: int, code: CodeType, events: int) -> None:
        assert self.tools[number] == "fxscope"
        self.watched[code] = events

    def call(self, code: CodeType) -> None:
        if self.watched.get(code):
            self.callback(code, 0)


class Recorder:
    """Takes events as the real one does."""

    def __init__(self) -> None:
        self.flushed_eager: dict[Any, int] = {}
        self.written: list[dict[str, Any]] = []

    def artifact(self, name: str, payload: dict[str, Any], envelope: dict[str, Any]) -> None:
        assert (name, envelope) == ("fxscope.eager", {})
        self.written.append(payload)


def work() -> int:
    return 1


def other() -> int:
    return 2


@pytest.fixture
def clean() -> Any:
    eager.stop_counting()
    yield
    eager.stop_counting()


def rows(recorder: Recorder) -> list[int]:
    return [row["calls"] for payload in recorder.written for row in payload["entries"]]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is part of Python since 3.12")
def test_the_interpreter_counts_one_function_alone(clean: None) -> None:
    recorder: Any = Recorder()
    assert eager.count_eager(work.__code__)
    for _ in range(3):
        work()
        other()
    eager.flush_eager(recorder, False)
    eager.flush_eager(recorder, True)  # unchanged: not written again
    assert rows(recorder) == [3]
    eager.stop_counting()
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    assert monitoring.get_tool(4) is None


def test_counting_takes_a_free_tool_and_gives_it_back(monkeypatch: pytest.MonkeyPatch, clean: None) -> None:
    monitoring = Monitoring(4)
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    recorder: Any = Recorder()
    assert eager.count_eager(work.__code__)
    assert eager.count_eager(work.__code__)  # a second hit of the same function
    assert monitoring.tools == {4: "other", 3: "fxscope"}
    for _ in range(2):
        monitoring.call(work.__code__)
        monitoring.call(other.__code__)
    eager.flush_eager(recorder, False)
    monitoring.call(work.__code__)
    eager.flush_eager(recorder, True)
    assert rows(recorder) == [2, 3]
    assert recorder.written[-1]["entries"][0]["function"] == "work"
    eager.forget_in_child()
    recorder.flushed_eager.clear()
    eager.flush_eager(recorder, True)
    assert rows(recorder) == [2, 3]  # nothing ran in the child yet
    eager.stop_counting()
    assert monitoring.tools == {4: "other"}
    assert monitoring.watched[work.__code__] == 0


def test_where_it_cannot_be_counted_it_says_so(monkeypatch: pytest.MonkeyPatch, clean: None) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(eager, "unavailable", lambda feature, reason: told.append((feature, reason)))
    monkeypatch.delattr(sys, "monitoring", raising=False)
    assert not eager.count_eager(work.__code__)
    assert "Python 3.12" in told[0][1]
    monkeypatch.setattr(sys, "monitoring", Monitoring(3, 4), raising=False)
    assert not eager.count_eager(work.__code__)
    assert "other tools" in told[1][1]


def test_calls_before_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Entry("0/0", 0, 0, work.__code__), Entry("0/1", 0, 1, work.__code__)
    monkeypatch.setattr("fxscope.capture.eager.ENTRIES", [first, second, Entry("1/0", 0, 2, other.__code__)])
    for _ in range(3):
        first.counting(work)()
    second.counting(work)()
    assert eager.calls_before(work.__code__) == 4
    assert eager.calls_before(test_calls_before_the_limit.__code__) is None


def context_with(python: str, **events: list[dict[str, Any]]) -> Any:
    texts = [(f"fxscope.{name}", json.dumps(payload)) for name, payloads in events.items() for payload in payloads]
    artifacts = [SimpleNamespace(name=name, event=index) for index, (name, _) in enumerate(texts)]
    recording: Any = SimpleNamespace(
        artifacts=artifacts, text=lambda event: texts[event][1], session=SimpleNamespace(python=python)
    )
    return Context(recording)


@pytest.mark.parametrize(
    ("python", "limit", "totals", "sentence"),
    [
        (
            "3.12.1",
            {"calls": 8, "counting": True},
            [5, 1012],
            "That was call 9; since then 1012 calls ran eager (counted).",
        ),
        ("3.13.0", {"calls": 8, "counting": True}, [], "That was call 9; no call was seen to run eager since."),
        (
            "3.11.7",
            {"calls": 8, "counting": False},
            [],
            "That was call 9; how many ran eager since cannot be known (sys.monitoring needs Python 3.12; this was 3.11.7).",
        ),
        (
            "3.11.7",
            {"calls": None, "counting": False},
            [],
            "How many ran eager since cannot be known (sys.monitoring needs Python 3.12; this was 3.11.7).",
        ),
        ("3.12.1", None, [], "How many calls that were is not in the log."),
    ],
)
def test_the_finding_says_since_when_and_for_how_many(
    python: str, limit: dict[str, Any] | None, totals: list[int], sentence: str
) -> None:
    place = {"function": "f", "file": "train.py", "line": 4}
    context = context_with(
        python,
        limit=[{**place, **limit}] if limit is not None else [],
        eager=[{"entries": [{**place, "calls": total}]} for total in totals],
    )
    frame = Frame(function="f", file="train.py", line=4, place=("train.py", 4))
    assert _eager_calls(context, frame) == sentence


def test_processes_add_up() -> None:
    """A forked child counts from zero into a log of its own."""
    place = {"function": "f", "file": "train.py", "line": 4}
    texts = {1: 5, 2: 9, (1 << 32) | 1: 20}  # two flushes of one log, one of another
    recording: Any = SimpleNamespace(
        artifacts=[SimpleNamespace(name="fxscope.eager", event=event) for event in texts],
        text=lambda event: json.dumps({"entries": [{**place, "calls": texts[event]}]}),
    )
    assert Context(recording).eager_calls["train.py", 4].eager == 29
