"""What the launcher of a distributed program says of this process: its rank and how many there are."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import NamedTuple

# torchrun (and whoever follows it); Slurm's srun; Open MPI; MPICH, Intel MPI and Cray.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
# Who names a job: its names, all of them needed, then rank and size as in _VARIABLES. The first that is there whole decides:
# of a launcher in a launcher the inner one (torchrun in a step of Slurm's), and of mpirun's tasks only some are in such a step.
_JOBS = (
    (("TORCHELASTIC_RUN_ID",), "RANK", "WORLD_SIZE"),
    (("PMIX_NAMESPACE",), "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    (("SLURM_JOB_ID", "SLURM_STEP_ID"), "SLURM_PROCID", "SLURM_NTASKS"),
)
_REQUEUED = "SLURM_RESTART_COUNT"  # a job that Slurm starts again keeps its names
_UNNAMED = "none"  # torchrun's id of every run without --rdzv-id or --standalone


def launched_as() -> tuple[int | None, int | None]:
    """Rank and number of ranks; None for what nobody says.

    torchrun starts each rank itself. A job launcher starts one process, which may start a rank for each device: these
    children have its variables too, and are not what they say.
    """
    for rank_name, size_name in _VARIABLES:
        rank, size = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if not (rank.isdigit() and size.isdigit()):
            continue
        if rank_name == "RANK" or (int(size) > 1 and not _is_child()):
            return int(rank), int(size)
    return None, None


class Task(NamedTuple):
    """One of the tasks of a job that its launcher names.

    Attributes:
        job: A digest of what all tasks of the job have in common and those of another have not, in each of its lives.
        life: A digest of what tells a start of the job from another, as far as all tasks of a start say the same.
        rank: Its number in the job.
        restarts: Whether the launcher starts tasks again without telling all of them so: a rank that was there before is of an
            earlier life then.
    """

    job: str
    life: str
    rank: int
    restarts: bool


def task() -> Task | None:
    """The job that this process is a task of; None where nobody names the job, or this is its only task.

    Where the tasks meet (MASTER_ADDR, MASTER_PORT) is no name: the next run meets there too. torchrun's
    TORCHELASTIC_RESTART_COUNT does not tell a life: only the node whose worker failed counts, though all nodes start again.
    """
    for names, rank_name, size_name in _JOBS:
        values = [os.environ.get(name, "") for name in names]
        rank, size = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if not (all(values) and rank.isdigit() and size.isdigit()):
            continue
        restarts = rank_name == "RANK"
        if values[0] == _UNNAMED or (int(size) < 2 and not restarts):
            return None
        return Task(_digest(*names, *values), _digest(size, os.environ.get(_REQUEUED, ""))[:8], int(rank), restarts)
    return None


def _digest(*told: str) -> str:
    return hashlib.sha256("\0".join(told).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def is_unnamed_task() -> bool:
    """Whether this is one of several tasks of a job that nobody names, so that they cannot share a folder."""
    return (launched_as()[1] or 1) > 1 and task() is None


def _is_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
