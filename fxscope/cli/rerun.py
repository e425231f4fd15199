"""Running a program again, with a change, in a recording and with caches of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxscope.diagnosis.trial import Change, Outcome


CACHES = "caches"


def program_of(ctx: click.Context, module: str | None, target: tuple[str, ...]) -> list[str]:
    """The arguments of ``fxscope run`` that name the program.

    Raises:
        UsageError: It is a recording, or comes from standard input, which can be read only once.
    """
    from fxscope.cli.run import LAUNCHER, refuse_recording
    from fxscope.errors import UsageError

    if module is not None:
        return ["-m", module, *target]
    refuse_recording(target[0])
    if target[0] == "-":
        raise UsageError(
            f"{ctx.info_name} runs the program several times, and standard input is read once: put it into a file"
        )
    return ["--", *target] if ctx.meta.get(LAUNCHER, False) else list(target)


def folder_of(output: str | None, target: str, verb: str) -> Path:
    """Make the folder of the recordings, new or empty: as asked for, else named after the program and the time.

    Raises:
        UsageError: The one that was asked for holds something: runs of before would be taken for ours.
    """
    from fxscope.errors import UsageError

    stem = f"{Path(target).stem}-{verb}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(1):
        folder = Path(output or (stem if number == 1 else f"{stem}-{number}"))
        try:
            folder.mkdir(parents=True, exist_ok=output is not None)
            free = not any(folder.iterdir())
            if free:  # whoever makes this has the folder, however many have seen that it was empty
                (folder / CACHES).mkdir()
        except FileExistsError:
            free = False
        if free:
            return folder
        if output:
            raise UsageError(f"{folder} is not empty; choose another place with -o, or remove it")
    raise AssertionError("unreachable")


class Rerunner:
    """Runs the program, each time with a recording and caches of its own."""

    def __init__(self, folder: Path, program: list[str], timeout: float | None, options: Sequence[str] = ()) -> None:
        self.folder, self.program, self.timeout, self.options = folder, program, timeout, options
        self.number = 0

    def run(self, name: str, change: Change | None = None) -> Outcome:
        """One run; its outcome counts whatever could be recorded."""
        from fxscope.diagnosis.trial import outcome_of
        from fxscope.errors import FxscopeError
        from fxscope.recording.recording import open_recording

        slug = re.sub(r"[^A-Za-z0-9.=-]+", "-", name)[:60]
        recording_path = self.folder / f"{self.number}-{slug}.fxscope"
        caches = self.folder / CACHES / recording_path.stem
        self.number += 1
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
        }
        environment.update(change.environment if change else {})
        options = [*self.options, *(change.options if change else ())]
        run = ["-m", "fxscope", "run", "--headless", "--quiet", "-o", str(recording_path)]
        arguments = [sys.executable, *run, *options, *self.program]
        click.echo(f"running {name} ...", err=True)
        began = time.monotonic()
        code, output, errors = _run(arguments, environment, self.timeout)
        seconds = time.monotonic() - began
        try:
            recording = open_recording(recording_path)
        except FxscopeError:
            recording = None  # the run did not get as far as recording; its exit code and message tell
        problem = _last_error(errors) if code else ""
        return outcome_of(name, recording, code, seconds, output, problem, str(recording_path))


def _run(arguments: list[str], environment: dict[str, str], timeout: float | None) -> tuple[int, str, str]:
    """Exit code (124 where the time was up), output and errors; the program and its children end with us, whatever happens."""
    # A session of its own, so that the program can be ended and not only the `fxscope run` that started it.
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        arguments, stdout=pipe, stderr=pipe, text=True, errors="replace", env=environment, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        output, _ = process.communicate()
        return 124, output, f"stopped after {timeout:g} s"
    except BaseException:  # Ctrl-C reaches us alone
        _kill(process)
        process.wait()
        raise
    return process.returncode, output, errors


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.killpg(process.pid, signal.SIGKILL)


def _last_error(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"^[\w.]+(Error|Exception|Violation\w*|Failed|Unsupported)\b", line)]
    return (named or lines or [""])[-1][:200]
