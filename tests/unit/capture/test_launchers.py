"""The rank that a launcher gives: torchrun's, Slurm's, MPI's; and whose it is not."""

from __future__ import annotations

import multiprocessing

import pytest

from fxscope.capture.launchers import is_unnamed_task, launched_as, task

NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
JOBS = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "PMIX_NAMESPACE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
)


@pytest.fixture(autouse=True)
def nobody_launched_this(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *SIZES, *JOBS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "size"), list(zip(NAMES, SIZES, strict=True)))
def test_each_launcher(name: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched_as() == (None, None)
    monkeypatch.setenv(name, "3")
    assert launched_as() == (None, None)  # of how many?
    monkeypatch.setenv(size, "8")
    assert launched_as() == (3, 8)
    monkeypatch.setenv(name, "three")
    assert launched_as() == (None, None)


def test_torchrun_under_slurm_is_the_one_that_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("RANK", "11"), ("WORLD_SIZE", "16")):
        monkeypatch.setenv(name, value)
    assert launched_as() == (11, 16)


def test_a_job_of_one_task_has_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert launched_as() == (None, None)


def test_children_of_a_task_are_not_that_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert launched_as() == (1, 2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(launched_as) == (None, None)
        monkeypatch.setenv("RANK", "0")
    assert launched_as() == (1, 2)  # a rank without a size is no torchrun's


def test_only_tasks_of_several_have_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # in every shell of an allocation
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert task() is None  # a batch script, which is no step and may call us twice
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    first = task()
    assert first is not None
    assert first.rank == 0
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert task() == first._replace(rank=1)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert task() is None  # as in a shell that srun started, which may call us twice
    for name, value in (("TORCHELASTIC_RUN_ID", "job"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    assert task() is not None  # torchrun starts this one again where it fails


@pytest.mark.parametrize(
    ("launcher", "again"),
    [
        ("SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2", "SLURM_STEP_ID=1"),
        ("SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2", "SLURM_RESTART_COUNT=1"),
        ("PMIX_NAMESPACE=slurm.7.0 SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2", "SLURM_STEP_ID=1"),
        (
            "PMIX_NAMESPACE=prterun-a-77@1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
            "PMIX_NAMESPACE=prterun-a-78@1",
        ),
        ("TORCHELASTIC_RUN_ID=9f RANK=1 WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a0"),
        ("TORCHELASTIC_RUN_ID=9f RANK=1 WORLD_SIZE=2", "WORLD_SIZE=3"),
        ("TORCHELASTIC_RUN_ID=9f RANK=1 WORLD_SIZE=2", "TORCHELASTIC_RESTART_COUNT=1"),
    ],
)
def test_a_run_is_told_from_another_and_a_life_of_a_job_from_its_next(
    launcher: str, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pair in launcher.split():
        monkeypatch.setenv(*pair.split("="))
    first = task()
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert first == task()
    assert first is not None
    assert first.rank == 1
    monkeypatch.setenv(*again.split("="))
    second = task()
    assert second is not None
    same_job, same_life = second.job == first.job, second.life == first.life
    assert same_job == ("SIZE" in again or "RESTART" in again)
    assert same_life == ("SIZE" not in again and "SLURM_RESTART" not in again)


def test_where_the_ranks_meet_names_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "node7"), ("MASTER_PORT", "29517")):
        monkeypatch.setenv(name, value)
    assert task() is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # of every torchrun without an id
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert task() is None
    for name, value in (
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "2"),
    ):
        monkeypatch.setenv(name, value)
    assert task() is None  # torchrun's workers all have the number of the task that started it


def test_tasks_of_a_job_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_unnamed_task()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not is_unnamed_task()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_unnamed_task()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert is_unnamed_task()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    assert not is_unnamed_task()
