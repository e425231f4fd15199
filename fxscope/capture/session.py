"""``session.json``: what ran, written when a recording starts and rewritten when it ends, never half.

The tasks of one job may write into one folder. Beside ``session.json`` each of them has a file of its own there, named after the job
and its rank: a line that says which process it is and on which machine, and when it has ended a second one, its exit code.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import re
import socket
import sys
import time
from typing import Any

from fxscope.capture.launchers import task
from fxscope.names import LOG_PREFIX, NOTEBOOK_KERNEL, RECORDING_SUFFIX, SESSION_FILE, TASK_FILE


def new_folder(script: str, now: float | None = None) -> str:
    """Make ``./<script>-<YYYYmmdd-HHMMSS>.fxscope``, with a number added where that is taken; a notebook is named by the notebook.

    Raises:
        OSError: It cannot be made or written.
    """
    if os.path.basename(script) == NOTEBOOK_KERNEL:
        script = os.environ.get("JPY_SESSION_NAME") or "notebook"  # Jupyter's server says which, others do not
    last = os.path.basename(os.path.abspath(script))  # of "dir/" and "." the folder's name
    stem = os.path.splitext(last)[0] if script != "-" else "stdin"
    stem = stem or "program"
    base = os.path.join(os.getcwd(), f"{stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}")
    for number in itertools.count(1):
        folder = f"{base}-{number}{RECORDING_SUFFIX}" if number > 1 else f"{base}{RECORDING_SUFFIX}"
        # Whoever makes the folder has it: two runs of one second may both have seen that it was not there.
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
            return folder
    raise AssertionError("unreachable")


def place_of(output: str) -> str | None:
    """Take the folder that ``-o`` names; where an earlier life of our job has it, the next free one of ``<output>-restart1``, ``-restart2``, ...

    Returns:
        The folder; None where it is taken, and not by an earlier life of our job.

    Raises:
        OSError: It cannot be made or written.
    """
    folder, ours = os.path.abspath(output), task()
    stem = folder.removesuffix(RECORDING_SUFFIX)
    for number in itertools.count():
        place = f"{stem}-restart{number}{folder[len(stem) :]}" if number else folder
        if take_folder(place):
            return place
        if ours is None or not (number or _begun(place, f"{ours.job}.")):
            return None
        if not ours.restarts and _begun(place, f"{ours.job}.{ours.life}."):
            return None  # this life's, and it has our rank already
    raise AssertionError("unreachable")


def _begun(folder: str, by: str) -> bool:
    return any(name.startswith(f"{SESSION_FILE}.{by}") for name in os.listdir(folder))


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
    }


def take_folder(folder: str, alone: bool = False) -> bool:
    """Make a folder and take a place in it; False where it holds anything but what other tasks of our job have begun there.

    Args:
        folder: It may be there already.
        alone: Do not share it with other tasks either.

    Raises:
        OSError: It cannot be made or written.
    """
    os.makedirs(folder, exist_ok=True)
    begun, ours = os.listdir(folder), None if alone else _task_files()
    if begun and not (ours and any(name.startswith(ours[0]) for name in begun)):
        return False
    try:  # whoever makes the file has the place, however many have seen that it was not there
        if ours is None:
            _begin_session(folder)
            return True
        with open(os.path.join(folder, ours[1]), "x", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {socket.gethostname()}\n")
    except FileExistsError:
        return False
    if any(TASK_FILE.match(name) and not name.startswith(ours[0]) for name in os.listdir(folder)):
        os.unlink(os.path.join(folder, ours[1]))  # another job, or another life of ours, began in the same moment
        return False
    return True


def _begin_session(folder: str) -> None:
    """Make ``session.json``, whole from its first moment on: whoever reads it sees a recording that is live.

    Raises:
        FileExistsError: It is there.
    """
    path, temporary = os.path.join(folder, SESSION_FILE), _temporary(folder)
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"state": "live", "host": socket.gethostname(), "pid": os.getpid()}, file)
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links in this file system: it is empty for a moment
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _temporary(folder: str) -> str:
    return os.path.join(folder, f"{SESSION_FILE}.{socket.gethostname()}.{os.getpid()}.tmp")


def _task_files() -> tuple[str, str] | None:
    """How the files of our job's tasks begin, in this life of it, and the name of our own; None where we are no task."""
    ours = task()
    if ours is None:
        return None
    begin = f"{SESSION_FILE}.{ours.job}.{ours.life}."
    return begin, f"{begin}{ours.rank}"


def _others(folder: str) -> tuple[int, list[tuple[int | None, str | None]]]:
    """Of the tasks of our job: the exit code of one that has failed (0 for none), and process and machine of those that still run."""
    ours = _task_files()
    failed, running = 0, list[tuple[int | None, str | None]]()
    for name in sorted(os.listdir(folder)) if ours is not None else ():
        if ours is None or not name.startswith(ours[0]):
            continue
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            who, *code = file.read().splitlines() or [""]
        # Half a file is of a task that begins or ends just now; a network file system shows zeros for what it has not got yet.
        ended = re.match(r"-?\d+$", code[0]) if code else None
        begun = re.match(r"(\d+) (\S+)$", who)
        if ended:
            failed = failed or int(ended[0])
        elif name != ours[1]:
            running.append((int(begun[1]), begun[2]) if begun else (None, None))
    return failed, running


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

    It is that of the job: live as long as a task runs, with the exit code of one that has failed, however the others end.

    Raises:
        OSError: The folder cannot be written.
    """
    path, temporary = os.path.join(folder, SESSION_FILE), _temporary(folder)
    while True:
        others = failed, running = _others(folder)
        told = {**session, "exit_code": failed or session["exit_code"]}
        if running and session["state"] == "ended":
            told.update(state="live", ended=None, exit_code=failed or None, pid=running[0][0], host=running[0][1])
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1, default=repr)
            file.write("\n")
        os.replace(temporary, path)
        # A task that ended in between may have written before us. Whoever writes last finds the files of all who wrote before.
        if _others(folder) == others:
            return


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
    ours = _task_files()
    if ours is not None and exit_code is not None:
        with (
            contextlib.suppress(FileNotFoundError),
            open(os.path.join(folder, ours[1]), "r+", encoding="utf-8") as file,
        ):
            file.seek(0, os.SEEK_END)
            file.write(f"{exit_code}\n")  # absent: a recording from within a program takes a folder for itself
    session.update(ended=time.time(), state="ended", exit_code=exit_code, processes=processes)
    write_session(folder, session)
