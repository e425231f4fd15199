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


class Job:
    """One ``python -m fxscope ... --json``."""

    def __init__(self, arguments: Sequence[str], progress: Callable[[str], None]) -> None:
        self.arguments = list(arguments)
        self.cancelled = False
        self._progress = progress
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
            start_new_session=True,  # so that cancelling ends its children too, and Ctrl-C is not theirs
            limit=LARGEST,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            output, last = await asyncio.gather(process.stdout.read(), self._follow(process.stderr))
            code = await process.wait()
        finally:
            self._kill()
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
        self._kill()

    def _kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.killpg(process.pid, signal.SIGKILL)
