"""Recordings of two real NCCL ranks: right ranks, what diverged and who waited, collectives, timeline, calls and times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fxscope.diagnosis.diagnose import diagnose
from fxscope.diagnosis.ranks import compare_ranks
from fxscope.recording.many import summarize_all
from fxscope.recording.rank_summary import summarize
from fxscope.recording.recording import open_recording

DATA = Path(__file__).resolve().parents[1] / "data" / "nccl"
MODES = ("ddp-uneven", "fsdp2-uneven", "ddp-watch", "functional")


@pytest.mark.parametrize("mode", MODES)
def test_one_folder_with_the_right_ranks(mode: str) -> None:
    recording = open_recording(DATA / mode)
    assert recording.session.ranks == [0, 1]
    assert recording.session.processes == 2
    assert recording.session.exit_code == 0
    assert recording.totals.unknown_events == 0
    assert recording.totals.failures == 0
    assert [s.name for s in summarize(recording)] == ["rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("mode", "entry", "step_2", "step_3"), [("ddp-uneven", "4/1", 10.0, 8.6), ("fsdp2-uneven", "1/1", 4.2, 3.5)]
)
def test_the_step_that_differed_and_who_waited(mode: str, entry: str, step_2: float, step_3: float) -> None:
    """The waits are those that the program printed for its own steps."""
    (finding,) = compare_ranks(summarize_all(DATA / mode))
    assert finding.ids[0] == "rank-stagger"
    assert finding.title.startswith(f"rank 1 compiled {entry} {step_2:.1f} s before rank 0")
    assert "expected 64, actual 96" in finding.cause
    early, late = (e.text for e in finding.evidence)
    assert f"rank 1: {entry}" in early
    assert f"rank 0: {entry}" in late
    waits = [float(text.split("waited up to ")[1].split(" s")[0]) for text in (early, late)]
    assert waits == pytest.approx([step_2, step_3], abs=0.3)
    assert any("rank-stagger" in f.ids for f in diagnose(open_recording(DATA / mode)))


def test_a_break_on_one_rank_only() -> None:
    found = {f.ids[0]: f for f in compare_ranks(summarize_all(DATA / "ddp-watch"))}
    assert set(found) == {"rank-divergence", "rank-breaks"}
    assert found["rank-breaks"].title.startswith("rank 1 breaks the graph at ")
    assert found["rank-breaks"].line == 41  # print(f"norm {x.norm().item():.2f}")
    assert found["rank-divergence"].title.startswith("rank 1 compiles 5/0, 5/1, ")


def test_collectives_in_their_order() -> None:
    summaries = summarize_all(DATA / "functional")
    assert compare_ranks(summaries) == []
    for summary in summaries:
        assert [op.rstrip("_") for _, op in summary.collectives] == ["all_reduce", "wait_tensor"]
        assert summary.missing_waits == {}


@pytest.mark.parametrize("mode", MODES)
def test_calls_and_times_on_both_ranks(mode: str) -> None:
    for summary in summarize_all(DATA / mode):
        assert summary.calls
        assert set(summary.call_seconds) <= set(summary.calls)
        assert all(0 < seconds < 60 for seconds in summary.call_seconds.values())
    if mode == "functional":
        assert [s.calls for s in summarize_all(DATA / mode)] == [{"0/0": 5}, {"0/0": 5}]
    if mode == "ddp-uneven":
        # Lengths by step: 64 64 64 96 96 on rank 0, 64 64 96 96 96 on rank 1.
        calls = [s.calls for s in summarize_all(DATA / mode)]
        assert [c["4/0"] for c in calls] == [3, 2]
        assert [c["4/1"] for c in calls] == [2, 3]


def test_the_merged_timeline() -> None:
    events = list(open_recording(DATA / "ddp-uneven").timeline())
    json.dumps(events)
    spans = [e for e in events if e.get("ph") == "X"] or events
    assert len({e["pid"] for e in spans}) == 2
    starts = [e["ts"] for e in spans if "ts" in e]
    assert max(starts) - min(starts) < 120e6  # one clock: the run took less than a minute


def test_what_both_ranks_have_is_told_once() -> None:
    findings = diagnose(open_recording(DATA / "ddp-uneven"))
    assert len({(tuple(f.ids), f.title, f.file, f.line) for f in findings}) == len(findings)
    (dynamic,) = [f for f in findings if f.ids[0] == "dynamic-disabled"]
    assert dynamic.title.endswith(" on ranks 0, 1")
    assert {e.compile_key.split(":")[0] for e in dynamic.evidence} == {"r0", "r1"}
    assert "9.8 s" in dynamic.gain  # rank 1 lost more than rank 0's 8.5 s
