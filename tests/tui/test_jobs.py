"""Passes and Kernels: the job in another process, its progress, its failure, its cancelling; and the answers on the screen."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from fxscope_tui.fusions import fusion_blocks, read_fusions
from fxscope_tui.jobs import Job
from fxscope_tui.npu_text import op_rows
from fxscope_tui.spans import plain
from fxscope_tui.widgets.diff_view import DiffView

from fxscope.errors import CheckFailed

DATA = Path(__file__).resolve().parent.parent / "data" / "tui"  # answers of the commands


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


def answers(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every job answer as a command once did."""
    code = f"print(open({str(DATA / command)!r} + '.json').read())"
    monkeypatch.setattr(Job, "command", property(lambda self: [sys.executable, "-c", code]))


@pytest.mark.shared
async def test_passes_step_forward_and_back_with_diff_and_numbers(shared, opened, monkeypatch, golden):
    answers("passes", monkeypatch)
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
async def test_kernels_table_traffic_sweep_partition_and_sources(shared, opened, monkeypatch, golden):
    answers("bench", monkeypatch)
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
            options = [argument for argument in arguments if argument.startswith("--")]
            assert options
            assert [option for option in options if option not in listed] == []


@pytest.mark.shared
async def test_one_island_and_another_stage_are_measured_on_their_own(shared, opened, monkeypatch):
    answers("bench", monkeypatch)
    async with opened(shared / "traces" / "h200" / "gpt2", size=(140, 40)) as driver:
        await driver.press("7", "i")
        view = driver.app.view
        assert driver.app.screen is driver.app.screen_stack[0]  # nothing to choose from yet
        view.executors = "eager,npu"
        await driver.press("r")
        await driver.until(lambda: view.job is None)
        await driver.press("i", "down", "enter")
        await driver.until(lambda: view.job is None)
        await driver.settle()
        assert view.arguments()[view.arguments().index("--island") :][:2] == ["--island", "0"]
        assert "island 0 of npu" in driver.frame()
        await driver.press("S")
        await driver.type("backward")
        await driver.press("enter")
        assert view.arguments()[view.arguments().index("--stage") :][:2] == ["--stage", "backward"]
        assert "selected: 1/0_1 backward" in driver.frame()


@pytest.mark.shared
async def test_every_graph_of_a_stage_can_be_chosen(ranks, opened):
    async with opened(ranks) as driver:
        driver.app.select_compile("r0:4/0")
        await driver.press("6", "S")
        await driver.type("joint#1")
        await driver.press("enter")
        assert driver.app.view.arguments()[-4:-2] == ["--stage", "joint#1"]


@pytest.mark.shared
async def test_the_npu_report_shows_ops_in_time_and_goes_back(shared, opened, monkeypatch):
    answers("npu", monkeypatch)
    async with opened(shared / "traces" / "h200" / "gpt2", size=(160, 40)) as driver:
        await driver.press("7", "u")
        await driver.until(lambda: driver.app.view.job is None)
        await driver.settle()
        assert driver.app.view.arguments()[:2] == ["npu", "report"]
        assert "modelled on gemmini-16x16" in driver.frame()
        assert "model.py:3" in driver.line("matrix addmm")
        assert "memory a peak 512 B" in driver.frame()
        await driver.press("escape")
        assert "Nothing has been measured" in driver.frame()


def test_bars_of_the_npu_stand_one_behind_the_other():
    bars = [plain(op_rows(json.loads((DATA / "npu.json").read_text())).row(number)[2]) for number in range(2)]
    assert bars[0] == "█" * 24
    assert bars[1] == " " * 24 + "█" * 8


@pytest.mark.shared
async def test_try_runs_only_what_the_user_agreed_to_and_shows_its_table(opened, monkeypatch, shared):
    answers("try", monkeypatch)
    async with opened(shared / "traces" / "h200" / "gpt2", size=(150, 40)) as driver:
        view = driver.app.view
        first = msgspec.structs.replace(view.snapshot.findings[0], verify="fxscope try --what dynamic train.py")
        take = view.take  # of what the reader finds later too, the first has that command
        monkeypatch.setattr(view, "take", lambda snapshot: take(snapshot._replace(findings=(first,))))
        view.take(view.snapshot)
        view.document.to_key(("finding", 0))
        await driver.press("v")
        await driver.until(lambda: "Run this check?" in driver.frame())
        await driver.press("escape")
        assert view.job is None
        assert "TRIED" not in view.document.page_text()
        await driver.press("v")
        await driver.until(lambda: "Run this check?" in driver.frame())
        await driver.press("enter")
        await driver.until(lambda: "TRIED" in driver.frame())
        assert "better; recompiles 3" in driver.line("dynamic")
        assert "/tmp/tried" in driver.frame()


FUSION = """V1129 18:42:21.277000 1 torch/_inductor/scheduler.py:5995] [0/0] [__fusion]   SchedulerNode(name='op4'), Reduction(['[64]', 'sum', 'origins=OrderedSet([sum_2, div])'
V1129 18:42:21.292000 1 torch/_inductor/scheduler.py:2059] [0/0] [__fusion] cannot fuse op2_op3 with op4: no shared data
V1129 18:42:21.292000 1 torch/_inductor/scheduler.py:2059] [0/0] [__fusion] cannot fuse op2_op3 with op4: no shared data
V1129 18:42:21.313000 1 torch/_inductor/scheduler.py:5748] [0/0] [__fusion] fusing op4 with op5
V1129 18:42:21.313000 1 torch/_inductor/scheduler.py:5748] [1/0] [__fusion] fusing op7 with op8
"""


def test_fusion_decisions_are_read_from_the_output_of_the_program():
    found = read_fusions("epoch 1\n" + FUSION, "0/0")
    assert found.fused == [("op4", "op5")]
    assert found.refused == {"no shared data": [("op2_op3", "op4")]}
    assert found.label("op4") == "sum_2, div"
    nothing = read_fusions(FUSION, "2/0")
    assert nothing == ([], {}, {})
    assert plain(fusion_blocks(nothing, "train.py --lr 1")[1].lines[0]).endswith(" fxscope run train.py --lr 1")
