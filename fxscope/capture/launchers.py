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
_JOB = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "PMI_JOBID",
    "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
)


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


def job() -> str | None:
    """What the tasks of one job have in common and those of another have not; None where this is the task of none, or the only one.

    A digest, because an address is nobody's business who is sent a recording.
    """
    _, size = launched_as()
    named = [f"{name}={os.environ[name]}" for name in _JOB if os.environ.get(name)]
    if not named or size is None or size < 2:
        return None
    return hashlib.sha256(" ".join(named).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _is_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
