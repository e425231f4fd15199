"""What is known of how a recording ends that has not said so: killed, silent, still written, or gone on with in another one."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any

from fxscope.names import RECORDING_SUFFIX, TASK_FILE
from fxscope.recording.session_file import is_live

SILENT = (
    600.0  # seconds without a write after which a recorder on another machine, which we cannot ask for, may be gone
)


def last_sign(folder: str) -> float:
    """Unix seconds of the last write to a recording; 0.0 where nothing is there."""
    try:
        with os.scandir(folder) as entries:
            return max((entry.stat().st_mtime for entry in entries), default=0.0)
    except OSError:  # removed meanwhile
        return 0.0


def is_elsewhere(on_disk: dict[str, Any]) -> bool:
    """Whether it was recorded on another machine, so that nobody here knows whether its program runs."""
    return on_disk.get("host") != socket.gethostname()


def doubts(path: str, on_disk: dict[str, Any] | None) -> list[str]:
    """Why a recording may not hold all that there was, a sentence each; that its program runs on this machine is no doubt.

    Args:
        path: Its folder; of anything else nothing is known.
        on_disk: Its ``session.json``.
    """
    if on_disk is None or not os.path.isdir(path):
        return []
    found = []
    if on_disk.get("state") == "live" and not is_live(on_disk):
        found.append("the recording has no end: its program was killed; what it had written until then is here")
    elif on_disk.get("state") == "live" and is_elsewhere(on_disk):
        silent, where = time.time() - last_sign(path), f" on {on_disk.get('host')}"
        where += f", or was killed: nothing was written for {silent / 60:.0f} min" if silent > SILENT else ""
        found.append(f"the recording has no end yet: its program still runs{where}")
    later = later_starts(path)
    if later:
        found.append(f"the job was started again, and what ran then is in {', '.join(later)}")
    return found


def later_starts(path: str) -> list[str]:
    """Recordings of later starts of the same job, in order, as ``fxscope run`` names them beside the one of the first."""
    parent, name = os.path.split(os.path.abspath(path))
    stem = name.removesuffix(RECORDING_SUFFIX)
    jobs, suffix = _jobs(path), name[len(stem) :]
    earlier = re.fullmatch(r"(.+)-restart(\d{1,6})", stem)
    found = []
    for base, number in [(stem, 0), *([(earlier[1], int(earlier[2]))] if earlier else [])] if jobs else []:
        while True:
            number += 1
            place = os.path.join(parent, f"{base}-restart{number}{suffix}")
            if not os.path.isdir(place):
                break
            if jobs & _jobs(place):
                found.append(os.path.relpath(place))
    return found


def _jobs(folder: str) -> set[str]:
    return {match["job"] for name in os.listdir(folder) if (match := TASK_FILE.match(name))}
