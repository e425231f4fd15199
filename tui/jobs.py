"""Work that needs torch: another process that prints one JSON document, tells its progress on standard error, and may crash.

torch is never imported in the app's process. A job is the command line that a user could type as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fxscope.errors import CheckFailed

LARGEST = 1 << 28  # bytes of one answer
GRACE = 3.0  # seconds between Ctrl-C and force


class Job:
    """One ``python -m fxscope ... --json``."""

    def __init__(self, arguments: Sequence[str], progress: Callable[[str], None], cwd: str | None = None) -> None:
        self.arguments = list(arguments)
        self.cancelled = False
        self._progress = progress
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None

    @property
    def command(self) -> list[str]:
        """What is run."""
        return [sys.executable, "-m", "fxscope", *self.arguments]

    async def run(self) -> Any:
        """Run it.

        Returns:
            The decoded document; None where it was cancelled.

        Raises:
            CheckFailed: It failed; the message is its last line.
        """
        self._process = process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._cwd,
            start_new_session=True,  # so that cancelling ends its children too, and Ctrl-C is not theirs
            limit=LARGEST,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            output, last = await asyncio.gather(process.stdout.read(), self._follow(process.stderr))
            code = await process.wait()
        finally:
            await self._end(process)
        if self.cancelled:
            return None
        try:
            document = json.loads(output) if output.strip() else None
        except ValueError:
            document = None
        if document is None:
            raise CheckFailed(last or f"`fxscope {self.arguments[0]}` ended with exit code {code} and no answer")
        return document

    async def _follow(self, stream: asyncio.StreamReader) -> str:
        """Pass lines on as progress; the last one is kept."""
        last = ""
        while line := await stream.readline():
            for part in line.decode(errors="replace").replace("\r", "\n").split("\n"):
                if part.strip():
                    last = part.strip()
                    self._progress(last)
        return last

    def cancel(self) -> None:
        """End it and its children."""
        self.cancelled = True
        if self._process is not None and self._process.returncode is None:
            _signal(self._process, signal.SIGINT)
            asyncio.get_running_loop().call_later(GRACE, _signal, self._process, signal.SIGKILL)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Ctrl-C first, which `fxscope try` hands on to the program that it runs in a session of its own; then by force."""
        if process.returncode is None:
            _signal(process, signal.SIGINT)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE)
            _signal(process, signal.SIGKILL)


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to a job and its children."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, number)
