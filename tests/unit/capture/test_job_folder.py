"""One folder for the tasks of one job: none of their failures is lost, and no other run gets in."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fxscope.capture.session import end_session, new_folder, new_session, place_of, take_folder, write_session
from fxscope.recording.session_file import is_live

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Barrier

ROUNDS = 60


def be(rank: int, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3", "SLURM_PROCID": str(rank)}
    for name, value in (step | more).items():
        monkeypatch.setenv(name, value)


def _task(folder: str, rank: int, together: Barrier) -> None:
    os.environ.update(SLURM_JOB_ID="7", SLURM_STEP_ID="0", SLURM_NTASKS="2", SLURM_PROCID=str(rank))
    for number in range(ROUNDS):
        place = os.path.join(folder, str(number))
        together.wait(60)
        assert take_folder(place)
        session = new_session(["a"], ["a"], "a", {})
        write_session(place, session)
        if number % 2:  # else one begins while the other ends
            together.wait(60)
        end_session(place, session, 3 * rank)


def test_tasks_that_end_at_once_lose_no_failure(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(2)
    tasks = [context.Process(target=_task, args=(str(tmp_path), rank, together)) for rank in (0, 1)]
    for each in tasks:
        each.start()
    for each in tasks:
        each.join(120)
    assert [each.exitcode for each in tasks] == [0, 0]
    ended = [json.loads((tmp_path / str(number) / "session.json").read_text()) for number in range(ROUNDS)]
    assert {(session["state"], session["exit_code"]) for session in ended} == {("ended", 3)}
    assert all(session["ended"] for session in ended)


def told(folder: Path) -> tuple[object, ...]:
    session = json.loads((folder / "session.json").read_text())
    return session["state"], session["exit_code"], session["ended"] is not None, session["pid"]


def test_a_job_is_live_as_long_as_a_task_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last that wrote is one that has ended; the process that is asked for is one that runs."""
    sessions = []
    for rank in range(3):
        be(rank, monkeypatch)
        monkeypatch.setattr("os.getpid", lambda rank=rank: 100 + rank)
        assert take_folder(str(tmp_path))
        sessions.append(new_session(["a"], ["a"], "a", {}))
        write_session(str(tmp_path), sessions[-1])
    steps = [(2, 0, ("live", None, False, 100)), (0, 7, ("live", 7, False, 101)), (1, 0, ("ended", 7, True, 101))]
    for rank, code, expected in steps:
        be(rank, monkeypatch)
        end_session(str(tmp_path), sessions[rank], code)
        assert told(tmp_path) == expected
    be(3, monkeypatch)
    assert take_folder(str(tmp_path))  # one that comes late
    write_session(str(tmp_path), new_session(["a"], ["a"], "a", {}))
    assert told(tmp_path)[:3] == ("live", 7, False)


def test_a_task_that_begins_just_now_is_live_wherever_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be(1, monkeypatch)
    assert take_folder(str(tmp_path))
    (other,) = tmp_path.iterdir()
    be(0, monkeypatch)
    assert take_folder(str(tmp_path))
    other.write_text("")  # made, and not yet written
    session = new_session(["a"], ["a"], "a", {})
    end_session(str(tmp_path), session, 0)
    assert told(tmp_path) == ("live", None, False, None)
    assert is_live(json.loads((tmp_path / "session.json").read_text()))


def test_a_task_that_was_killed_leaves_a_job_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    be(1, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: gone.pid)
        assert take_folder(str(tmp_path))
    be(0, monkeypatch)
    assert take_folder(str(tmp_path))
    end_session(str(tmp_path), new_session(["a"], ["a"], "a", {}), 0)
    assert told(tmp_path) == ("live", None, False, gone.pid)
    assert not is_live(json.loads((tmp_path / "session.json").read_text()))


def test_a_rank_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(tmp_path / "run")
    be(0, monkeypatch)
    assert take_folder(folder)
    be(1, monkeypatch)
    assert take_folder(folder)
    session = new_session(["a"], ["a"], "a", {})
    write_session(folder, session)
    end_session(folder, session, 0)
    assert not take_folder(folder)  # the same command once more
    be(2, monkeypatch)
    assert take_folder(folder)  # a task that comes late
    assert told(Path(folder)) == ("live", None, False, os.getpid())  # the first one still runs


@pytest.mark.parametrize("other", ["SLURM_JOB_ID=8", "SLURM_STEP_ID=1", "SLURM_RESTART_COUNT=1", "SLURM_STEP_ID="])
def test_another_run_is_refused(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be(0, monkeypatch)
    assert take_folder(str(tmp_path))
    be(1, monkeypatch, **dict([other.split("=")]))
    assert not take_folder(str(tmp_path))
    be(1, monkeypatch)
    assert take_folder(str(tmp_path))


def test_what_no_task_began_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "session.json").write_text("{}")
    be(0, monkeypatch)
    assert not take_folder(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["session.json"]


def test_another_life_of_a_job_records_beside_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was taken, and only there: what was asked for and is free is what it gets."""
    monkeypatch.chdir(tmp_path)

    def place(rank: int, output: str = "a.b/run7.fxscope", **more: str) -> str | None:
        be(rank, monkeypatch, **more)
        taken = place_of(output)
        return None if taken is None else os.path.relpath(taken)

    assert [place(rank) for rank in (0, 1)] == ["a.b/run7.fxscope"] * 2
    assert place(1) is None  # the same command once more in the same step
    later = [place(rank, SLURM_RESTART_COUNT="1") for rank in (2, 0, 1)]
    assert (
        later == ["a.b/run7-restart1.fxscope"] * 3
    )  # rank 2 has no file in the first folder, which is not its own all the same
    assert place(1, SLURM_RESTART_COUNT="1") is None
    assert place(0, SLURM_RESTART_COUNT="2") == "a.b/run7-restart2.fxscope"
    assert place(0, SLURM_JOB_ID="8") is None
    assert place(0, SLURM_JOB_ID="8", SLURM_RESTART_COUNT="1") is None
    assert place(0, "fresh.d/", SLURM_RESTART_COUNT="4") == "fresh.d"
    assert place(0, "fresh.d/", SLURM_RESTART_COUNT="5") == "fresh.d-restart1"


def test_all_workers_of_an_elastic_restart_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the node whose worker failed counts; and there may be fewer of them for a while."""
    monkeypatch.chdir(tmp_path)

    def life(*counts: int) -> set[str | None]:
        taken = set()
        for rank, count in enumerate(counts):
            monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
            monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(count))
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(len(counts)))
            taken.add(place_of("run"))
        return {place and os.path.basename(place) for place in taken}

    assert life(0, 0, 0, 0) == {"run"}
    assert life(1, 1, 0, 0) == {"run-restart1"}
    assert life(1, 1) == {"run-restart2"}
    assert life(1) == {"run-restart3"}
    assert life(1, 1, 0, 0) == {"run-restart4"}


@pytest.mark.parametrize("seen", [b"12 node-b\n\0\0", b"\0\0\0", b"12 no", b"12 node-b\n\xff"])
def test_a_file_that_is_half_there_is_of_a_task_that_runs(
    seen: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(1, monkeypatch)
    assert take_folder(str(tmp_path))
    (other,) = tmp_path.iterdir()
    be(0, monkeypatch)
    assert take_folder(str(tmp_path))
    other.write_bytes(seen)
    end_session(str(tmp_path), new_session(["a"], ["a"], "a", {}), 0)
    assert told(tmp_path)[:3] == ("live", None, False)


def _start(folder: str, together: Barrier, got: SimpleQueue[str]) -> None:
    os.chdir(folder)
    for number in range(ROUNDS):
        together.wait(60)
        mine = [new_folder("train.py", 0)]
        together.wait(60)
        mine += [place] if (place := place_of(f"same{number}")) else []
        for each in mine:
            got.put(each)


def test_runs_that_start_at_once_share_no_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together, got = context.Barrier(2), context.SimpleQueue()
    runs = [context.Process(target=_start, args=(str(tmp_path), together, got)) for _ in range(2)]
    for each in runs:
        each.start()
    folders = [got.get() for _ in range(3 * ROUNDS)]
    for each in runs:
        each.join(120)
    assert [each.exitcode for each in runs] == [0, 0]
    assert got.empty()
    assert len(set(folders)) == 3 * ROUNDS


@pytest.mark.parametrize("links", [True, False])
def test_a_place_that_is_taken_is_live_at_once(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_from: str, _to: str) -> None:
        raise PermissionError(1, "no hard links here")

    if not links:
        monkeypatch.setattr("os.link", refuse)
    assert take_folder(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["session.json"]
    assert is_live(json.loads((tmp_path / "session.json").read_text()))
    assert not take_folder(str(tmp_path))
