"""What the launcher of a distributed program says of this process: its rank and how many there are."""

from __future__ import annotations

import hashlib
import os
import sys

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
    (("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"), "RANK", "WORLD_SIZE"),
    (("PMIX_NAMESPACE",), "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    (("SLURM_JOB_ID", "SLURM_STEP_ID"), "SLURM_PROCID", "SLURM_NTASKS"),
)
_REQUEUED = "SLURM_RESTART_COUNT"  # a job that is started again keeps its names
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


def task() -> tuple[str, int] | None:
    """The job that this process is a task of, and its rank there; None where nobody names the job, or this is its only task.

    The job is a digest of what its tasks have in common and those of another have not, so that it may be part of a file's name.
    Where the tasks meet (MASTER_ADDR, MASTER_PORT) is no name: the next run meets there too.
    """
    for names, rank_name, size_name in _JOBS:
        values = [os.environ.get(name, "") for name in names]
        rank, size = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if not (all(values) and rank.isdigit() and size.isdigit()):
            continue
        if values[0] == _UNNAMED or int(size) < 2:
            return None
        told = "\0".join([*names, *values, os.environ.get(_REQUEUED, "")])
        return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:16], int(rank)
    return None


def restarted() -> str:
    """What tells the recording of a job that was started again from that of its first start: ``-restart1``; "" for the first.

    torchrun restarts all workers when one fails, Slurm a job whose node is lost or was preempted. All tasks of a restart say the same.
    """
    counts = (("-requeue", _REQUEUED), ("-restart", "TORCHELASTIC_RESTART_COUNT"))
    told = [(word, os.environ.get(name, "")) for word, name in counts]
    return "".join(f"{word}{count}" for word, count in told if count.isdigit() and int(count))


def is_unnamed_task() -> bool:
    """Whether this is one of several tasks of a job that nobody names, so that they cannot share a folder."""
    return (launched_as()[1] or 1) > 1 and task() is None


def _is_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
