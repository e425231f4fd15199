"""The recorded models and foreign logs of ../shared/traces: no break lost, and the known facts hold."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fxscope
from fxscope.graph.parse import parse_graph
from fxscope.recording.recording import Recording

TRACES = Path(os.environ.get("FXSCOPE_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "traces"
MODELS: dict[str, Any] = (
    json.loads((TRACES / "models" / "truth.json").read_text()) if (TRACES / "models").is_dir() else {}
)
LOGS = sorted(
    str(path.relative_to(TRACES))
    for path in TRACES.rglob("*")
    if path.is_file() and path.name.endswith((".log", ".log.xz", "_log.txt")) and path.stat().st_size
)

pytestmark = pytest.mark.shared


def break_events(recording: Recording) -> int:
    """Break events of a log, counted without the builder."""
    found = 0
    for number, name in recording.events():
        if name == "artifact":
            found += recording.event(number).value["name"] == "dynamo_graph_break_reason"
    return found


@pytest.mark.parametrize("model", sorted(MODELS))
def test_models_match_truth(model: str) -> None:
    truth = MODELS[model]
    recording = fxscope.open(TRACES / "models" / model)
    sites: Counter[tuple[str, int]] = Counter()
    kinds: Counter[str] = Counter()
    for row in recording.graph_breaks:
        sites[os.path.basename(row.file), row.line] += row.count
        kinds[row.kind] += row.count
    assert sites == {(site["file"], site["line"]): site["count"] for site in truth["break_sites"]}
    assert kinds == truth["reasons"]
    assert recording.totals.graphs == truth["graphs"]
    assert recording.totals.graph_breaks == truth["break_events"] == break_events(recording)
    assert len(recording.recompiles) == truth["recompile_records"]
    assert recording.totals.limit_hits == truth["limit_hits"]
    assert sum(row.status == "skipped" for row in recording.compiles) == truth["frames_skipped"]
    assert all(hit.function and hit.line and hit.value == 8 for hit in recording.limit_hits)
    # Every break lies in a library; the line that the user can change is in the program.
    assert {os.path.basename(row.user_file) for row in recording.graph_breaks} <= {"run_model.py"}


@pytest.mark.parametrize("log", LOGS)
def test_every_log_reads(log: str) -> None:
    recording = fxscope.open(TRACES / log)
    totals = recording.totals
    assert totals.events > 0
    assert totals.graph_breaks == sum(row.count for row in recording.graph_breaks) == break_events(recording)
    assert totals.unknown_events == 0
    for row in recording.compiles:
        assert row.status != "unfinished"
        assert row.function
        assert not row.file.startswith("<string ")
        assert abs(sum(row.phases.values()) - (row.seconds or 0.0)) < 1e-6 or not row.phases
        for text in row.graphs:
            assert recording.text(text.event).strip()
    assert all(
        guard.kind != "other" or "KeyError" in guard.guard for row in recording.recompiles for guard in row.failed
    )


def test_corrupted_payload_is_told_and_reading_goes_on() -> None:
    damaged = fxscope.open(TRACES / "tlparse" / "simple_corrupted_json.log")
    whole = fxscope.open(TRACES / "tlparse" / "simple.log")
    assert damaged.totals == whole.totals
    wrong = [number for number, _ in damaged.events() if not damaged.intact(number)]
    assert len(wrong) == 1
    assert all(whole.intact(number) for number, _ in whole.events())


def test_messy_folder() -> None:
    recording = fxscope.open(TRACES / "tlparse" / "multi_rank_messy_input")
    assert recording.session.ranks == [0, 1]
    assert recording.totals.compiles == 2
    assert {row.key for row in recording.compiles} == {"r0:0/0", "r1:0/0"}


def test_stripped_lines_stay_in_their_payload() -> None:
    recording = fxscope.open(TRACES / "tlparse" / "export.log")
    assert recording.totals.events == 60
    number, name = list(recording.events())[-1]
    assert name == "exported_program"
    text = recording.text(number)
    assert "slice_1:" in text
    assert "\n\n             # File: " in text
    assert any("cut off or damaged" in note for note in recording.session.notes)


def test_file_name_beats_rank_field() -> None:
    recording = fxscope.open(TRACES / "tlparse" / "multi_rank_schedule")
    assert recording.session.ranks == [0, 1, 2]
    assert {row.rank for row in recording.compiles} == {0, 1, 2}


def test_old_guards_and_missing_rank() -> None:
    recording = fxscope.open(TRACES / "tlparse" / "comp_metrics.log")
    assert [row.id for row in recording.compiles] == ["0/0", "0/0_1", "1/0", "1/0_1", "2/0"]
    assert all(row.rank is None for row in recording.compiles)
    guards = recording.guards(recording.find("0/0"))
    assert {"TENSOR_MATCH", "DEFAULT_DEVICE", "HASATTR"} <= {guard.type for guard in guards}


def test_three_runs_under_one_id() -> None:
    recording = fxscope.open(TRACES / "tlparse" / "cache_hit_miss.log")
    assert [row.id for row in recording.compiles] == ["0/0", "1/0", "0/0#2", "1/0#2", "0/0#3", "1/0#3"]
    assert [recording.find(name).caches.get("fx_graph") for name in ("1/0", "1/0#2", "1/0#3")] == [
        "miss",
        "hit",
        "miss",
    ]
    # The hit has no post-grad graph, but code all the same.
    assert "forward.post_grad" not in recording.find("1/0#2").stages
    assert "forward.code" in recording.find("1/0#2").stages
    bypass = [event for event in recording.cache_events if event.outcome == "bypass"]
    assert len(bypass) == 3
    assert all(event.reason for event in bypass)


def test_bare_text_reasons() -> None:
    recording = fxscope.open(TRACES / "h200" / "gpt2")
    assert len(recording.recompiles) == 4
    failed = recording.recompiles[0].failed[0]
    assert (failed.entry, failed.kind, failed.index, failed.expected, failed.actual) == ("0/0", "size", 1, "64", "96")


def test_gpt2_forward_and_backward() -> None:
    recording = fxscope.open(TRACES / "h200" / "gpt2")
    row = recording.find("1/0")
    order = ["dynamo", "pre_grad", "joint", "forward", "backward", "forward.post_grad", "forward.code"]
    assert row.stages == [*order, "backward.post_grad", "backward.code"]
    forward, backward = (recording.text(recording.graph(row, f"{side}.code").event) for side in ("forward", "backward"))
    assert "tangents_1" in backward
    assert "tangents_1" not in forward
    assert row.phases["backward"] == pytest.approx(4.5, abs=0.5)
    site = recording.graph_breaks[0]
    assert site.gb_id == "GB0291"
    assert (os.path.basename(site.user_file), site.user_line) == ("h200_traces.py", 12)
    assert site.hints == ["Add the logging method to `torch._dynamo.config.ignore_logging_functions`."]


def test_ddp_ranks() -> None:
    recording = fxscope.open(TRACES / "h200" / "ranks_ddp")
    assert recording.session.ranks == [0, 1]
    first = {row.rank: row.started for row in recording.recompiles if row.function == "forward"}
    assert first[1] < first[0]  # rank 1 gets the new length one step earlier
    row = recording.find("r1:4/0")
    assert sum(text.stage == "forward" for text in row.graphs) == 4  # one per DDP bucket
    assert sum(text.stage == "backward.code" for text in row.graphs) == 4
    assert [text.index for text in row.graphs if text.stage == "forward"] == [0, 1, 2, 3]
    # Autograd runs the backwards from the last bucket to the first; each belongs to its own forward.
    for bucket in range(4):
        names = []
        for stage in ("backward", "backward.post_grad"):
            graph = parse_graph(recording.text(recording.graph(row, stage, bucket).event))
            names.append([node.name for node in graph.nodes if node.op == "placeholder"])
        assert names[0] == names[1] != []
    # The ranks compile at the same time, so the clock shows less than the sum.
    assert recording.totals.compile_seconds < sum(row.seconds or 0.0 for row in recording.compiles)


def test_guards_name_the_line_that_asked() -> None:
    recording = fxscope.open(TRACES / "h200" / "gpt2")
    waiting = recording.guards(recording.find("0/0"))
    assert waiting[0].expression == "RootGuardManager"
    found = []
    while waiting:
        guard = waiting.pop()
        found.append(guard)
        waiting.extend(guard.children)
    match = next(guard for guard in found if guard.type == "TENSOR_MATCH")
    assert match.source == "L['kwargs']['input_ids']"
    assert match.asked is not None
    assert match.asked.file == "/opt/torch/.venv/lib/python3.12/site-packages/transformers/utils/generic.py"
    assert (match.asked.line, match.asked.function) == (939, "wrapper")
    assert match.asked.code == "output = func(self, *args, **kwargs)"
