"""What the launcher of a distributed program says of this process: its rank and how many there are."""

from __future__ import annotations

import os
import sys

# torchrun (and whoever follows it); Slurm's srun; Open MPI; MPICH, Intel MPI and Cray.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
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


def _is_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
