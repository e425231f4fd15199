"""``session.json``: what ran, written when a recording starts and rewritten when it ends, never half."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from typing import Any

from fxscope.capture.launchers import job
from fxscope.names import LOG_PREFIX, RECORDING_SUFFIX, SESSION_FILE


def default_folder(script: str, now: float | None = None) -> str:
    """``./<script>-<YYYYmmdd-HHMMSS>.fxscope``, with a number added where that is taken."""
    last = os.path.basename(os.path.abspath(script))  # of "dir/" and "." the folder's name
    stem = os.path.splitext(last)[0] if script != "-" else "stdin"
    stem = stem or "program"
    base = f"{stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"
    name, number = base + RECORDING_SUFFIX, 1
    while os.path.exists(name):
        number += 1
        name = f"{base}-{number}{RECORDING_SUFFIX}"
    return os.path.join(os.getcwd(), name)


def new_session(argv: list[str], command: list[str], script: str, options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a session that has just begun.

    Args:
        argv: The program and its arguments, as its user wrote them.
        command: The process that was started.
        script: Script, module or launcher.
        options: What the recorder was asked to do beyond watching.
    """
    from fxscope import __version__

    return {
        "schema": "fxscope.session/1",
        "fxscope": __version__,
        "argv": argv,
        "command": command,
        "script": script,
        "cwd": os.getcwd(),
        "python": platform.python_version(),
        "torch": torch_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": time.time(),
        "ended": None,
        "state": "live",
        "exit_code": None,
        "options": options,
        "processes": [],
        "job": job(),
    }


def is_of_our_job(folder: str) -> bool:
    """Whether what lies in a folder was begun by another task of the job that this process is one of (srun, mpirun)."""
    ours = job()
    if ours is None:
        return False
    if not os.path.exists(os.path.join(folder, SESSION_FILE)):  # that task is about to put it there
        return all(name.startswith(SESSION_FILE) for name in os.listdir(folder))
    return _of_job(folder, ours) is not None


def code_so_far(folder: str) -> int | None:
    """The exit code of a task of our job that has failed: the job has failed with it, however its other tasks end."""
    other = _of_job(folder, job())
    return (other.get("exit_code") or None) if other is not None else None


def _of_job(folder: str, ours: str | None) -> dict[str, Any] | None:
    """The session that a task of our job has written there; None where none has."""
    try:
        with open(os.path.join(folder, SESSION_FILE), encoding="utf-8") as file:
            begun = json.load(file)
    except (OSError, ValueError):
        return None
    return begun if ours is not None and isinstance(begun, dict) and begun.get("job") == ours else None


def torch_version() -> str | None:
    """Version of the torch that is loaded, else of the one that is installed; never imports it."""
    module = sys.modules.get("torch")
    if module is not None:
        return str(getattr(module, "__version__", None))
    import importlib.metadata

    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def write_session(folder: str, session: dict[str, Any]) -> None:
    """Write ``session.json`` whole or not at all.

    Raises:
        OSError: The folder cannot be written.
    """
    path = os.path.join(folder, SESSION_FILE)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(session, file, indent=1, default=repr)
        file.write("\n")
    os.replace(temporary, path)


def end_session(folder: str, session: dict[str, Any], exit_code: int | None) -> None:
    """Rewrite ``session.json`` with how it ended and which processes left a log.

    Raises:
        OSError: The folder cannot be written or is gone.
    """
    logs = sorted(name for name in os.listdir(folder) if name.startswith(LOG_PREFIX) and name.endswith(".log"))
    processes = []
    for name in logs:
        parts = name[len(LOG_PREFIX) :].split("_")
        rank = int(parts[1]) if parts[0] == "rank" and parts[1].isdigit() else None
        pid = parts[2] if rank is not None else parts[0]
        processes.append({"pid": int(pid) if pid.isdigit() else None, "rank": rank, "log": name})
    exit_code = exit_code or code_so_far(folder) or exit_code
    session.update(ended=time.time(), state="ended", exit_code=exit_code, processes=processes)
    write_session(folder, session)
