"""The rank that a launcher gives: torchrun's, Slurm's, MPI's; and whose it is not."""

from __future__ import annotations

import multiprocessing

import pytest

from fxscope.capture.launchers import job, launched_as

NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@pytest.fixture(autouse=True)
def nobody_launched_this(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *SIZES):
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
    for name in ("SLURM_STEP_ID", "PMIX_NAMESPACE", "PMI_JOBID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # in every shell of an allocation
    assert job() is None
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert job() is None
    monkeypatch.setenv("SLURM_NTASKS", "2")
    first = job()
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert job() == first is not None
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    assert job() not in (first, None)
    monkeypatch.setenv("MASTER_ADDR", "node7.example.org")
    assert "node7" not in str(job())
