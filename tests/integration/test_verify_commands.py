"""The commands of findings can be followed one after the other, and again: each records anew and reads what it recorded."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fxscope.cli.main import cli
from fxscope.cli.newest import newest_recording
from fxscope.cli.rerun import Rerunner, folder_of
from fxscope.diagnosis.context import Context
from fxscope.errors import CheckFailed, UsageError
from fxscope.recording.recording import open_recording


def follow(command: str) -> subprocess.CompletedProcess[str]:
    """A command typed into a shell."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)


def test_commands_are_followed_one_after_the_other_and_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing here.py").write_text("print('ran')\n")
    assert follow("fxscope run --headless -o 'my first.fxscope' 'nothing here.py'").returncode == 0
    first = {path: path.read_bytes() for path in Path("my first.fxscope").iterdir()}
    context = Context(open_recording("my first.fxscope"))
    check = context.check_command("--allow-nothing --max-recompiles 0")
    commands = [context.report_command(), check, context.diff_command()]
    seen = {Path("my first.fxscope")}
    for command in [*commands, *commands]:
        done = follow(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        (new,) = set(Path().glob("*.fxscope")) - seen
        seen.add(new)
        assert done.stdout.startswith("ran\n")
        assert f"fxscope: reading {new}, the newest recording here" in done.stderr
    assert {path: path.read_bytes() for path in first} == first


def recording(folder: Path, name: str, ended: float | None, **session: object) -> None:
    (folder / name).mkdir()
    (folder / name / "session.json").write_text(json.dumps({"state": "ended", "ended": ended, **session}))


def test_the_newest_is_the_one_that_ended_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recording(tmp_path, "z-20250101-000000.fxscope", 100.0, argv=["old.py"])
    recording(tmp_path, "a-20260101-000000.fxscope", 300.0, argv=["new.py"])
    recording(tmp_path, "live.fxscope", None, state="live", pid=os.getpid(), argv=["live.py"])
    recording(tmp_path, "broken.fxscope", None)
    (tmp_path / "broken.fxscope" / "session.json").write_text("{")
    (tmp_path / "empty.fxscope").mkdir()
    (tmp_path / "file.fxscope").write_text("")
    recording(tmp_path, "named otherwise", 900.0)
    cli.main(["report", "--json"], prog_name="fxscope", standalone_mode=False)
    told = capsys.readouterr()
    assert json.loads(told.out)["session"]["argv"] == ["new.py"]
    newest = "a-20260101-000000.fxscope"
    assert told.err == f"fxscope: reading {newest}, the newest recording here (live.fxscope is still written)\n"
    recording(tmp_path, "before", 150.0)
    for first in ("z-20250101-000000.fxscope", "before"):
        cli.main(["diff", "--json", first], prog_name="fxscope", standalone_mode=False)
        assert json.loads(capsys.readouterr().out)["paths"] == [first, newest]
    log = "a-20260101-000000.fxscope/dedicated_log_torch_trace_1.log"
    Path(log).touch()
    for first in (newest, "named otherwise", log):  # what was recorded before it is no "after"
        with pytest.raises(
            UsageError, match=f"no recording in this folder is newer than {first}: run the program again"
        ):
            newest_recording(apart_from=first)


def test_a_run_that_was_killed_is_not_passed_over_for_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no end for ever: a budget was checked of the run before it."""
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    recording(tmp_path, "old.fxscope", time.time() - 100)
    recording(tmp_path, "killed.fxscope", None, state="live", pid=gone.pid, host=socket.gethostname())
    check = ["check", "--allow-nothing", "--max-graph-breaks", "0"]
    with pytest.raises(CheckFailed, match="no end: its program was killed"):
        cli.main(check, prog_name="fxscope", standalone_mode=False)
    line = (
        "fxscope: reading killed.fxscope, the newest recording here (its program was killed, or is not known to run)\n"
    )
    told = "fxscope: killed.fxscope: the recording has no end: its program was killed; what it had written until then is here\n"
    assert capsys.readouterr().err == line
    cli.main([*check, "--allow-failed"], prog_name="fxscope", standalone_mode=False)
    assert capsys.readouterr().err == line + told


@pytest.mark.parametrize("silent", [False, True])
def test_a_job_of_another_machine_that_has_no_end_does_not_pass(
    silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recording(tmp_path, "job.fxscope", None, state="live", pid=1, host="node-a of no one")
    if silent:
        os.utime(tmp_path / "job.fxscope" / "session.json", (1e9, 1e9))
    check = ["check", "--allow-nothing", "--max-graph-breaks", "0"]
    with pytest.raises(
        CheckFailed, match="its program still runs on node-a of no one" + ", or was killed: nothing" * silent
    ):
        cli.main([*check, "job.fxscope"], prog_name="fxscope", standalone_mode=False)
    with pytest.raises(CheckFailed if silent else UsageError):  # one that runs beside us is not meant
        cli.main(check, prog_name="fxscope", standalone_mode=False)


def test_one_that_is_still_written_is_judged_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recording(tmp_path, "live.fxscope", None, state="live", pid=os.getpid(), host=socket.gethostname())
    check = ["check", "--allow-nothing", "--max-graph-breaks", "0", "live.fxscope"]
    cli.main(check, prog_name="fxscope", standalone_mode=False)
    assert capsys.readouterr().err == "fxscope: live.fxscope is still written: what is there so far is judged\n"


def test_a_recording_of_an_earlier_start_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    task, other = f"session.json.{'a' * 16}.{'0' * 8}.0", f"session.json.{'b' * 16}.{'0' * 8}.0"
    for name, file in (("out", task), ("out-restart1", other), ("out-restart2", task), ("out-restart3", task)):
        recording(tmp_path, f"{name}.fxscope", 1.0, exit_code=0)
        (tmp_path / f"{name}.fxscope" / file).write_text("1 here\n0\n")
    check = ["check", "--allow-nothing", "--max-graph-breaks", "0"]
    for name, later in (
        ("out", "out-restart2.fxscope, out-restart3.fxscope"),
        ("out-restart2", "out-restart3.fxscope"),
    ):
        with pytest.raises(CheckFailed, match=f"started again, and what ran then is in {later}"):
            cli.main([*check, f"{name}.fxscope"], prog_name="fxscope", standalone_mode=False)
    capsys.readouterr()
    for name in ("out-restart1", "out-restart3"):
        cli.main([*check, f"{name}.fxscope"], prog_name="fxscope", standalone_mode=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report"], "no recording in this folder: name one"),
        (["diagnose"], "no recording in this folder: name one"),
        (["check", "--max-recompiles", "0"], "no recording in this folder: name one"),
        (["diff", "one.fxscope"], "no recording in this folder is newer than one.fxscope: run the program again"),
        (["diff", "./one.fxscope/"], "no recording in this folder is newer than ./one.fxscope/"),
    ],
)
def test_none_is_refused(arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "diff":
        recording(tmp_path, "one.fxscope", 1.0)
    with pytest.raises(UsageError, match="^" + said):
        cli.main(arguments, prog_name="fxscope", standalone_mode=False)


@pytest.mark.parametrize("verb", ["try", "stages"])
def test_runs_of_before_are_not_taken_for_new_ones(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second command into one folder told the numbers of the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "runs").mkdir()
    recording(tmp_path / "runs", "0-as-it-is.fxscope", 1.0)
    with pytest.raises(UsageError, match="runs is not empty"):
        cli.main([verb, "-o", "runs", "train.py"], prog_name="fxscope", standalone_mode=False)
    assert os.listdir("runs") == ["0-as-it-is.fxscope"]


def test_tries_of_one_second_have_a_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20260101-120000")
    names = []
    for _ in range(3):
        folder = folder_of(None, "src/train.py", "try")
        names.append(str(folder))
    assert names == ["train-try-20260101-120000", "train-try-20260101-120000-2", "train-try-20260101-120000-3"]
    (tmp_path / "empty").mkdir()
    assert str(folder_of("empty", "train.py", "try")) == "empty"
    with pytest.raises(UsageError, match="empty is not empty"):
        folder_of("empty", "train.py", "try")  # the other has recorded nothing yet


def test_a_try_in_a_job_that_was_started_again_reads_its_own_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It told zeros for everything: the runs had gone to folders of other names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fails.py").write_text("raise SystemExit(3)\n")
    variables = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    for name, value in {**variables, "SLURM_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    outcome = Rerunner(folder_of(None, "fails.py", "try"), ["fails.py"], 100).run("as it is")
    assert outcome.exit_code == 3
    assert open_recording(outcome.recording).session.exit_code == 3
