"""Real logs (torch 2.13) of what is easily read wrong: resets, compiled autograd, caches, failures, nested breaks, forks."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import pytest

import fxscope
from fxscope.errors import UsageError
from fxscope.recording.recording import Recording

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"


def opened(name: str) -> Recording:
    return fxscope.open(TRACES / f"{name}.log.xz")


def test_ids_come_again_after_a_reset() -> None:
    recording = opened("reset")
    functions = {row.id: row.function for row in recording.compiles}
    assert functions == {"0/0": "f", "0/1": "f", "0/0#2": "g", "0/1#2": "g", "0/0#3": "f", "0/1#3": "f"}
    assert all(row.stages == ["dynamo", "joint", "forward", "backward"] for row in recording.compiles)
    assert [row.failed[0].entry for row in recording.recompiles] == ["0/0", "0/0#2", "0/0#3"]
    assert recording.find("0/1#2").function == "g"
    assert recording.totals.graphs == 6


def test_compiled_autograd_ids() -> None:
    recording = opened("compiled_autograd")
    assert {"!0/1/0", "!1/3/0", "!2/4/0"} <= {row.id for row in recording.compiles}
    row = recording.find("!1/3/0")
    assert (row.function, row.status, row.stages) == ("forward", "ok", ["dynamo", "inference"])
    # The graph that autograd handed over belongs to an id without a frame.
    captured = [a for a in recording.artifacts if a.name == "compiled_autograd_graph"]
    assert [a.compile_key for a in captured] == ["!0", "!1", "!2"]
    assert "class CompiledAutograd" in recording.text(captured[0].event)


def test_restarted_attempts() -> None:
    recording = opened("compiled_autograd")
    first, last = recording.find("0/0_0"), recording.find("0/0")
    assert (first.id, first.status) == ("0/0", "restarted")
    assert (last.id, last.status, last.attempt) == ("0/0_1", "ok", 1)
    assert first.restart_reason == "Unsupported Tensor.backward() call"
    whole = recording.metrics(last)["entire_frame_compile_time_s"]
    assert (first.seconds or 0) + (last.seconds or 0) == pytest.approx(whole, abs=2e-3)
    assert recording.graph_breaks[0].compile_keys == ["0/0", "0/1"]


def test_break_in_an_inlined_function() -> None:
    recording = opened("nested_breaks")
    (row,) = recording.graph_breaks
    assert (row.line, row.function, row.code, row.count) == (5, "inner", 'print("inner")', 2)
    assert [frame.function for frame in row.stack] == ["<module>", "f", "mid", "inner"]
    assert recording.recompiles[1].failed[0].source == "L['__nested_frame_values'][0][1]"


def test_fullgraph_failures() -> None:
    recording = opened("fullgraph")
    first, second = recording.failures
    assert (first.phase, first.type, first.line) == ("fullgraph", "Unsupported", 5)
    assert first.message.startswith("Failed to trace builtin operator")
    assert (second.phase, second.type, second.id) == ("fullgraph", "FailOnRecompileLimitHit", "1/8")
    assert recording.totals.graph_breaks == 0
    (hit,) = recording.limit_hits
    assert (hit.function, hit.line, hit.limit, hit.value) == ("g", 9, "recompile_limit", 8)
    assert recording.recompiles[-1].outcome == "refused"
    assert recording.recompiles[-1].function == "g"  # the log carries no name for a refused compile


def test_backward_failure() -> None:
    recording = opened("backward_fails")
    (failure,) = recording.failures
    assert (failure.phase, failure.type, failure.message) == ("backward", "RuntimeError", "no backward here")
    assert recording.find("0/0").status == "ok"


def test_frame_without_a_graph() -> None:
    recording = opened("no_graph")
    assert [row.status for row in recording.compiles] == ["empty"]
    assert recording.totals.compiles == 1
    assert recording.totals.graphs == 0


def test_break_that_never_restarts_and_frame_that_is_skipped() -> None:
    recording = opened("branches")
    branch, loop = recording.graph_breaks
    assert (branch.kind, branch.gb_id, branch.line, branch.skipped_frame) == (
        "Data-dependent branching",
        "GB0170",
        4,
        False,
    )
    assert "gt = gt(sum_1, 0)" in branch.explanation
    assert len(branch.hints) == 3
    assert branch.context == "attempted to jump with TensorVariable()"
    assert (loop.gb_id, loop.line, loop.skipped_frame) == ("GB0124", 11, True)
    assert "graph break in loop" in loop.reason
    assert recording.find("3/0").status == "skipped"
    assert not recording.failures


def test_cold_and_warm_caches() -> None:
    cold, warm = opened("cold_cache"), opened("warm_cache")
    assert cold.find("0/0").caches == {"aot_autograd": "miss", "fx_graph": "miss"}
    assert warm.find("0/0").caches == {"aot_autograd": "hit", "fx_graph": "hit"}
    # A hit leaves out pre-grad and logs post-grad as an event instead of an artifact; the rest is the same text.
    assert set(cold.find("0/0").stages) - set(warm.find("0/0").stages) == {"pre_grad"}
    for stage in ("forward.code", "backward.code", "forward.post_grad", "backward.post_grad"):
        texts = [r.text(r.graph(r.find("0/0"), stage).event) for r in (cold, warm)]
        assert texts[0] == texts[1]
    assert "tangents_1" in texts[0]
    assert warm.find("1/0").stages == ["dynamo", "inference", "forward.post_grad", "forward.code"]


def test_two_writers_of_one_file_are_told_apart(tmp_path: Path) -> None:
    """A forked child that inherited the handler: it goes on with its parent's string table and ids."""
    parent = lzma.decompress((TRACES / "branches.log.xz").read_bytes())
    child = lzma.decompress((TRACES / "fullgraph.log.xz").read_bytes())
    pid = child.split(b" ", 3)[2]
    other = parent.split(b" ", 3)[2]
    forked = b"".join(
        line for line in parent.replace(b" " + other + b" ", b" 4242 ").splitlines(True) if b'{"str":' not in line
    )
    log = tmp_path / "forked.log"
    log.write_bytes(parent + forked + child)
    recording = fxscope.open(log)
    assert recording.session.processes == 3
    prefixes = {row.key.rpartition(":")[0] for row in recording.compiles}
    assert prefixes == {"", "p4242", f"p{int(pid)}"}
    twin = recording.find("p4242:0/0")
    assert twin.function == recording.find("0/0").function == "f"
    assert twin.stack == recording.find("0/0").stack
    assert not any(frame.file.startswith("<string ") for frame in twin.stack)
    # One site of two processes is one row.
    assert next(row for row in recording.graph_breaks if row.line == 4).count == 2


def test_child_in_its_own_file_without_strings(tmp_path: Path) -> None:
    parent = lzma.decompress((TRACES / "branches.log.xz").read_bytes())
    other = parent.split(b" ", 3)[2]
    child = b"".join(
        line for line in parent.replace(b" " + other + b" ", b" 4242 ").splitlines(True) if b'{"str":' not in line
    )
    (tmp_path / "dedicated_log_torch_trace_a.log").write_bytes(child.replace(b" 14:", b" 15:"))
    (tmp_path / "dedicated_log_torch_trace_z.log").write_bytes(parent)
    recording = fxscope.open(tmp_path)
    assert recording.find("p4242:0/0").stack == recording.find("0/0").stack


def test_suppressed_duplicates_join_the_first_of_their_line(tmp_path: Path) -> None:
    log = lzma.decompress((TRACES / "branches.log.xz").read_bytes()).decode()
    again = (
        "V1129 14:36:51.000000 {pid} torch/_dynamo/symbolic_convert.py:5098] "
        '{{"artifact": {{"name": "dynamo_graph_break_reason", "encoding": "string"}}, "frame_id": 2, "frame_compile_id": 0, '
        '"attempt": 0}}\n\tGraph break (user stack suppressed due to duplicate graph break) in user code at '
        "/home/user/program/logs.py:4\n\tGraph Break Reason: {reason}\n"
    )
    pid = log.split(" ", 3)[2]
    path = tmp_path / "a.log"
    path.write_text(log + again.format(pid=pid, reason="Data-dependent branching") + again.format(pid=pid, reason=""))
    recording = fxscope.open(path)
    row = next(row for row in recording.graph_breaks if row.line == 4)
    assert (row.count, row.kind, row.gb_id) == (3, "Data-dependent branching", "GB0170")
    assert row.compile_ids == ["0/0", "2/0"]
    assert recording.totals.graph_breaks == 4
    assert recording.totals.break_sites == 2


def test_clock_that_jumps_back(tmp_path: Path) -> None:
    log = lzma.decompress((TRACES / "reset.log.xz").read_bytes())
    path = tmp_path / "a.log"
    path.write_bytes(
        log.replace(b"V1129 14:36:31", b"V1129 13:36:31").replace(b'"end_time_us": 17', b'"end_time_us": 16')
    )
    recording = fxscope.open(path)
    assert [row.id for row in sorted(recording.compiles, key=lambda row: row.started)] == [
        row.id for row in recording.compiles
    ]
    assert recording.totals.compile_seconds >= 0
    assert all((row.seconds or 0) >= 0 for row in recording.compiles)


def test_find_says_what_there_is() -> None:
    recording = opened("reset")
    with pytest.raises(UsageError, match=r"no compile '7/7'.*0/0"):
        recording.find("7/7")
    with pytest.raises(UsageError, match=r"0/0 has no stage 'inference'; it has: dynamo, joint, forward, backward"):
        recording.graph(recording.find("0/0"), "inference")
    with pytest.raises(UsageError, match="no event"):
        recording.text(1 << 40)


def test_timeline_pairs_phases() -> None:
    events = list(opened("reset").timeline())
    frames = [event for event in events if event["name"] == "entire_frame_compile"]
    assert [event["args"]["compile_id"] for event in frames] == ["0/0", "0/1"] * 3
    assert all(event["ph"] == "X" and event["dur"] > 0 for event in frames)


def test_shape_events_carry_the_user_line() -> None:
    symbols = [event for event in opened("compiled_autograd").shape_events if event.kind == "symbol"]
    seen = next(event for event in symbols if event.line is not None)
    assert (seen.source, seen.compile_key) == ("L['x'].size()[0]", "0/1")
    assert seen.line is not None
    assert os.path.basename(seen.line.file) == "ca.py"
