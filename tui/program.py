"""The recorded program in a pseudo-terminal: its output, its input, its window size, its end."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from fxscope.errors import MissingError
from fxscope.names import OUTPUT_FILE

CHUNK = 1 << 16
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
SILENCE = 1.5  # seconds after which a line without an end looks like a question


class Program:
    """Runs a command on a pseudo-terminal and keeps everything it prints in ``output.log``.

    ``on_output`` and ``on_end`` are called on the reading thread.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: str | Path) -> None:
        self.command = list(command)
        self.env = dict(env)
        self.folder = Path(folder)
        self.code: int | None = None
        self.on_output: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[int], None] = lambda code: None
        self._process: subprocess.Popen[bytes] | None = None
        self._master = -1
        self._ended = threading.Event()
        self._log: BinaryIO | None = None
        self.log_problem = ""
        self._prompt_since: float | None = None  # since when the last line that it printed has been open

    def start(self, columns: int = 80, lines: int = 24) -> None:
        """Start it.

        Raises:
            MissingError: This system has no pseudo-terminals.
            OSError: The command cannot be started.
        """
        try:
            import fcntl
            import pty
            import termios
        except ImportError:
            raise MissingError("no pseudo-terminals on this system: use `fxscope run --headless`") from None

        def take_terminal() -> None:
            """In the child: make the pseudo-terminal its controlling terminal, so that Ctrl-C becomes SIGINT, and ends it."""
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts what stands before & with SIGINT ignored

        master, slave = pty.openpty()
        self._master = master
        self.resize(columns, lines)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = open(self.folder / OUTPUT_FILE, "wb", buffering=0)  # noqa: SIM115 (closed by the reading thread)
        try:
            self._process = subprocess.Popen(
                self.command,
                env=self.env,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=take_terminal,  # two system calls, no lock, nothing imported: safe beside threads
            )
        except BaseException:
            os.close(master)
            self._log.close()
            raise
        finally:
            os.close(slave)
        threading.Thread(target=self._read, name="fxscope program output", daemon=True).start()

    def _read(self) -> None:
        """Take output until the last holder of the terminal is gone, or the program ended and it fell silent."""
        import select

        assert self._process is not None
        while True:
            ready, _, _ = select.select([self._master], [], [], 0.1)
            if not ready:
                if self._process.poll() is not None:
                    break  # a grandchild that outlives the program may hold the terminal open for ever
                continue
            try:
                data = os.read(self._master, CHUNK)
            except OSError as error:
                if error.errno != errno.EIO:  # Linux says EIO where others say end of file
                    self.log_problem = f"reading the program's output: {error}"
                break
            if not data:
                break
            self._keep(data)
            # A progress bar leaves its line open as well, and goes back to its beginning.
            asks = not data.endswith(b"\n") and b"\r" not in data.rpartition(b"\n")[2]
            self._prompt_since = time.monotonic() if asks else None
            self._show(data)
        code = self._process.wait()
        self.code = 128 - code if code < 0 else code
        if self._log is not None:
            self._log.close()
        self._ended.set()
        self.on_end(self.code)

    def _show(self, data: bytes) -> None:
        try:
            self.on_output(data)
        except Exception:  # noqa: BLE001 - it is reported, and the program must not wait for ever for somebody who reads
            self.on_output = lambda data: None
            with contextlib.suppress(OSError):  # standard error may be what is gone
                traceback.print_exc()

    def _keep(self, data: bytes) -> None:
        if self._log is None or self.log_problem:
            return
        try:
            self._log.write(data)
        except OSError as error:  # disk full: the program goes on, its output is still on the screen
            self.log_problem = f"{OUTPUT_FILE} is incomplete: {error}"

    @property
    def started(self) -> bool:
        """Whether it could be started."""
        return self._process is not None

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.started and not self._ended.is_set()

    @property
    def seems_to_ask(self) -> bool:
        """Whether it has printed something like a question, and nothing since."""
        since = self._prompt_since
        return self.running and since is not None and time.monotonic() - since > SILENCE

    def write(self, data: bytes) -> None:
        """Type something."""
        self._prompt_since = None
        if self.running:
            with contextlib.suppress(OSError):  # it ended between the check and the write
                os.write(self._master, data)

    def resize(self, columns: int, lines: int) -> None:
        """Tell the program how large its window is."""
        import fcntl
        import struct
        import termios

        size = struct.pack("HHHH", max(lines, 2), max(columns, 10), 0, 0)
        with contextlib.suppress(OSError):  # it ended
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def signal(self, number: int) -> None:
        """Send a signal to the program and its children."""
        if self._process is not None and self.running:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended
                os.killpg(self._process.pid, number)

    def stop(self, patience: float = 3.0, signals: Sequence[int] = STOPPING) -> int:
        """End it: Ctrl-C, then SIGTERM, then SIGKILL (or other ``signals``), each after ``patience`` seconds.

        Returns:
            Its exit code.
        """
        for number in signals:
            if self._ended.wait(0):
                break
            self.signal(number)
            if self._ended.wait(patience):
                break
        self._ended.wait()
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; 128 + n for a signal."""
        self._ended.wait()
        assert self.code is not None
        return self.code
