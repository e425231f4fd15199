"""Passes and Kernels: the job in another process, its progress, its failure, its cancelling; and the answers on the screen."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from fxscope_tui.jobs import Job
from fxscope_tui.widgets.diff_view import DiffView

from fxscope.errors import CheckFailed


def job(code: str) -> tuple[Job, list[str]]:
    """A job that runs a Python text instead of fxscope."""
    lines: list[str] = []
    made = Job(["passes"], lines.append)
    made.__class__ = type("Fake", (Job,), {"command": property(lambda self: [sys.executable, "-c", code])})
    return made, lines


async def test_a_document_comes_back_and_progress_on_the_way():
    made, lines = job("import sys; print('half\\rdone', file=sys.stderr); print('{\"a\": [1, 2]}')")
    assert await made.run() == {"a": [1, 2]}
    assert lines == ["half", "done"]


async def test_a_document_with_exit_code_1_is_still_an_answer():
    made, _ = job("print('{\"steps\": []}'); raise SystemExit(1)")
    assert await made.run() == {"steps": []}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; print('fxscope: no graph 9/9', file=sys.stderr); raise SystemExit(2)", "no graph 9/9"),
        ("import os; os.abort()", "exit code -6"),
        ("print('no json')", "exit code 0"),
    ],
)
async def test_a_failure_is_one_line(code, says):
    made, _ = job(code)
    with pytest.raises(CheckFailed, match=says):
        await made.run()


async def test_cancelling_ends_it_and_its_children(tmp_path):
    pid = tmp_path / "pid"
    child = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    made, _ = job(
        f"import subprocess, sys; print('up', file=sys.stderr, flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    )
    running = asyncio.create_task(made.run())
    for _ in range(600):
        if pid.exists() and pid.read_text():
            break
        await asyncio.sleep(0.05)
    made.cancel()
    assert await running is None
    number = int(pid.read_text())
    for _ in range(200):  # the killed child is reaped by init, not by us
        try:
            os.kill(number, 0)
            if Path(f"/proc/{number}/stat").read_text().split()[2] == "Z":  # noqa: ASYNC240
                break
        except (ProcessLookupError, FileNotFoundError):
            break
        await asyncio.sleep(0.05)
    else:
        raise AssertionError("the child of a cancelled job still runs")


STEPS = {
    "schema": "fxscope.passes/1",
    "lines": ["x = input", "conv = conv2d(x, w)", "bn = batch_norm(conv)", "y = relu(bn)", "output"],
    "steps": [
        {
            "pass": "conv-bn-fold",
            "status": "applied",
            "matches": [
                {"nodes": ["conv", "bn"], "applied": True, "reason": None, "source": "model.py:12"},
                {
                    "nodes": ["conv2", "bn2"],
                    "applied": False,
                    "reason": "users",
                    "text": "its output has 2 users",
                    "source": "model.py:14",
                },
            ],
            "nodes_before": 5,
            "nodes_after": 4,
            "max_abs_diff": 3.1e-7,
            "max_abs_diff_start": 3.1e-7,
            "within": True,
            "ms": 3.25,
            "doc": "Fold batch norm into the convolution before it.",
            "lines": ["x = input", "conv = conv2d(x, w_folded)", "y = relu(conv)", "output"],
        },
        {
            "pass": "broken",
            "status": "numbers",
            "matches": [],
            "nodes_before": 4,
            "nodes_after": 4,
            "max_abs_diff": 0.5,
            "within": False,
            "ms": 1.0,
            "doc": "",
            "lines": ["x = input", "conv = conv2d(x, w_folded)", "y = gelu(conv)", "output"],
        },
    ],
}

BENCH = {
    "schema": "fxscope.bench/1",
    "graph": "1/0_1",
    "stage": "dynamo",
    "device": "cpu",
    "rows": [
        {
            "executor": "eager",
            "kind": "measured",
            "status": "ok",
            "median_ms": 0.191,
            "p10_ms": 0.19,
            "p90_ms": 0.195,
            "gbps": 1010.0,
            "peak_share": 0.24,
            "launches": 4,
            "speedup": 1.0,
            "how": "wall clock, 2 threads",
        },
        {
            "executor": "inductor",
            "kind": "measured",
            "status": "ok",
            "median_ms": 0.051,
            "p10_ms": 0.05,
            "p90_ms": 0.053,
            "gbps": 3780.0,
            "peak_share": 0.89,
            "max_abs_err": 0.0,
            "launches": 1,
            "speedup": 3.74,
        },
        {
            "executor": "npu",
            "kind": "modelled",
            "status": "ok",
            "median_ms": 0.21,
            "p10_ms": 0.21,
            "p90_ms": 0.21,
            "max_abs_err": 2.4e-7,
            "launches": 1,
        },
        {"executor": "triton", "kind": "measured", "status": "missing", "note": "no GPU: set TRITON_INTERPRET=1"},
    ],
    "reference": "eager in float64",
    "traffic": {
        "unfused_bytes": 11_000_000,
        "fused_bytes": 3_000_000,
        "floor_bytes": 3_000_000,
        "unfused_launches": 4,
        "fused_launches": 1,
        "flops": 4_000_000,
        "groups": [],
        "assumptions": ["modelled: caches are not counted"],
    },
    "machine": {"bandwidth": 7.2e9, "flops": 1.1e11, "launch": 9e-7, "origin": "measured on cpu"},
    "partitions": {
        "npu": {
            "coverage": 0.8,
            "nodes": 10,
            "boundary_bytes": 4096,
            "islands": [
                {
                    "index": 0,
                    "phase": 0,
                    "nodes": ["a", "b"],
                    "bytes_in": 100,
                    "bytes_parameters": 10,
                    "bytes_out": 50,
                    "dropped": None,
                }
            ],
            "reasons": [
                {
                    "target": "aten.sort",
                    "codes": ["op"],
                    "texts": ["sort is not in the table"],
                    "nodes": ["sort"],
                    "source": None,
                }
            ],
            "what_if": [
                {
                    "target": "aten.sort",
                    "nodes": 1,
                    "islands": -1,
                    "boundary_bytes": -4096,
                    "text": "support aten.sort: 1 fewer island",
                }
            ],
        }
    },
    "notes": ["inputs were made up"],
    "sweep": {
        "points": [
            {"size": 1, "bytes": 1000, "ms": {"eager": 0.1, "inductor": 0.05}},
            {"size": 1024, "bytes": 1_000_000, "ms": {"eager": 1.0, "inductor": 0.2}},
        ],
        "fixed_ms": {"eager": 0.1, "inductor": 0.05},
        "gbps": {"eager": 1.0, "inductor": 5.0},
        "crossover_bytes": {"eager": 100_000, "inductor": None},
        "sentence": "Below 100 kB launches decide.",
        "notes": [],
    },
    "listings": {
        "inductor": [
            {
                "title": "kernel",
                "language": "python",
                "text": "def k(x):\n    return x + 1",
                "lines_to_nodes": {"2": ["inputs_embeds"]},
            }
        ]
    },
}


def answers(document, monkeypatch, tmp_path) -> None:
    """Let every job answer with a document."""
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(document))
    code = f"print(open({str(path)!r}).read())"
    monkeypatch.setattr(Job, "command", property(lambda self: [sys.executable, "-c", code]))


@pytest.mark.shared
async def test_passes_step_forward_and_back_with_diff_and_numbers(shared, opened, monkeypatch, tmp_path, golden):
    answers(STEPS, monkeypatch, tmp_path)
    async with opened(shared / "traces" / "h200" / "gpt2") as driver:
        await driver.press("6", "r")
        await driver.until(lambda: "conv-bn-fold" in driver.frame())
        await driver.settle()
        golden("passes", driver.frame())
        diff = driver.app.view.query_one(DiffView)
        assert any(row.left == "bn = batch_norm(conv)" and row.sign in "-~" for row in diff.rows)
        assert "3.1e-07 ok" in driver.frame()
        await driver.press("l")
        assert "step 2 of 2" in driver.frame()
        assert "beyond rounding" in driver.frame()
        assert any(row.right == "y = gelu(conv)" for row in diff.rows)
        await driver.press("h")
        assert "step 1 of 2" in driver.frame()


@pytest.mark.shared
async def test_kernels_table_traffic_sweep_partition_and_sources(shared, opened, monkeypatch, tmp_path, golden):
    answers(BENCH, monkeypatch, tmp_path)
    async with opened(shared / "traces" / "h200" / "gpt2", size=(140, 50)) as driver:
        await driver.press("7", "r")
        await driver.until(lambda: "inductor" in driver.frame() and "modelled" in driver.frame())
        await driver.settle()
        golden("kernels", driver.frame())
        await driver.press("j", "enter")
        await driver.until(lambda: "return x + 1" in driver.frame())
        await driver.press("j")
        assert "▶ inputs_embeds" in driver.frame()
        await driver.press("escape")
        assert "return x + 1" not in driver.frame()


@pytest.mark.shared
async def test_a_job_can_be_cancelled_and_its_failure_is_shown(shared, opened, monkeypatch):
    code = "import sys, time\nprint('working', file=sys.stderr, flush=True)\ntime.sleep(600)"
    monkeypatch.setattr(Job, "command", property(lambda self: [sys.executable, "-c", code]))
    async with opened(shared / "traces" / "h200" / "gpt2") as driver:
        await driver.pilot.press("6")
        await driver.pilot.press("r")
        await driver.until(lambda: "working" in driver.frame())
        await driver.pilot.press("x")
        await driver.until(lambda: driver.app.view.job is None)
        await driver.settle()
        assert "No passes have been run" in driver.frame()
        bad = "import sys; print('fxscope: no pass nonsense', file=sys.stderr); raise SystemExit(2)"
        monkeypatch.setattr(Job, "command", property(lambda self: [sys.executable, "-c", bad]))
        await driver.pilot.press("r")
        await driver.until(lambda: "no pass nonsense" in driver.frame())


@pytest.mark.shared
async def test_the_commands_are_ones_that_a_user_could_type(shared, opened):
    from click.testing import CliRunner

    from fxscope.cli.main import cli

    async with opened(shared / "traces" / "h200" / "gpt2") as driver:
        for key in ("6", "7"):
            await driver.press(key)
            arguments = driver.app.view.arguments()
            listed = CliRunner().invoke(cli, [arguments[0], "--help"]).output
            for argument in arguments:
                assert not argument.startswith("--") or argument in listed
