"""One process's trace log: PyTorch's line format, appended a whole event at a time, and given up at the first fault."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from typing import Any

from fxscope.names import LOG_PREFIX


class TraceLog:
    """An append-only file that is opened by its first event, and anew in every forked child.

    Every event is one ``write`` of whole lines, so that a killed process tears at most its last event, and nothing is
    held back in a buffer that a fork would write twice. The file descriptor is checked before each write, because a
    program may close all descriptors (a daemon does) and get ours again for a file of its own.

    Attributes:
        dead: Why nothing is written any more; None while all is well.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path: str | None = None
        self.dead: str | None = None
        self.events = 0
        self.lock = threading.RLock()
        self._fd = -1
        self._pid = -1
        self._identity = (0, 0)
        self._torn = False
        self._day = (-1, "")

    @property
    def is_open(self) -> bool:
        """This very process (not the one it was forked from) has a file."""
        return self._pid == os.getpid()

    def open(self, rank: int | None) -> bool:
        """Make this process's file; False where that failed (with the one warning) or recording has stopped."""
        if self.dead is not None:
            return False
        pid = os.getpid()
        rank_part = "" if rank is None else f"rank_{rank}_"
        path = os.path.join(self.folder, f"{LOG_PREFIX}{rank_part}{pid}_{os.urandom(4).hex()}.log")
        if self._fd >= 0 and self._owns():
            os.close(self._fd)  # the descriptor that a fork handed down
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            status = os.fstat(self._fd)
        except OSError as error:
            self.give_up(f"cannot write to {self.folder}: {error.strerror}")
            return False
        self.path, self._pid, self._identity, self.events = path, pid, (status.st_dev, status.st_ino), 0
        return True

    def _owns(self) -> bool:
        try:
            status = os.fstat(self._fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def write(self, metadata: dict[str, Any], payload: str | None, where: str) -> None:
        """Append one event; ``where`` is the ``file:line`` of the glog prefix."""
        text = f"{self._prefix(where)}] {json.dumps(metadata, default=repr)}"
        if payload is not None:
            text += "\n\t" + payload.replace("\n", "\n\t")
        self._append(f"{text}\n".encode("utf-8", "replace"))
        self.events += 1

    def artifact(self, name: str, payload: dict[str, Any], envelope: dict[str, Any]) -> None:
        """Append an artifact with a JSON payload."""
        text = json.dumps(payload, default=repr)
        digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        self.write(
            {"artifact": {"name": name, "encoding": "json"}, **envelope, "has_payload": digest}, text, "fxscope:0"
        )

    def _prefix(self, where: str) -> str:
        now = time.time()
        second = int(now)
        if self._day[0] != second:
            self._day = (second, time.strftime("%m%d %H:%M:%S", time.localtime(second)))
        return f"V{self._day[1]}.{int((now - second) * 1e6):06d} {self._pid} {where}"

    def _append(self, data: bytes) -> None:
        try:
            status = os.fstat(self._fd)
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            if not self._reopen():
                return
        elif status.st_nlink == 0:
            self.give_up(f"the log {self.path} was deleted")
            return
        if self._torn:
            data = b"\n" + data
        self._torn = True
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self.give_up(f"cannot write to {self.path}: {error.strerror}")
            return
        self._torn = False

    def _reopen(self) -> bool:
        """The program closed our descriptor: take a new one, without touching whatever has the old number now."""
        try:
            assert self.path is not None
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            status = os.fstat(self._fd)
        except OSError as error:
            self._fd = -1
            self.give_up(f"cannot write to {self.path}: {error.strerror}")
            return False
        self._identity = (status.st_dev, status.st_ino)
        return True

    def give_up(self, reason: str) -> None:
        """Stop for good, with one line on standard error; the program goes on."""
        if self.dead is None:
            self.dead = reason
            warn(f"recording stopped: {reason}; the program goes on")
        self.close()

    def close(self) -> None:
        """Close the file of this process, if it has one."""
        if self._fd >= 0 and self.is_open and self._owns():
            os.close(self._fd)
        self._fd = -1


def warn(message: str) -> None:
    """One line on standard error; where even that is closed, nothing."""
    # Without a standard error to speak to, the program must still not notice.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"fxscope: {message}", file=sys.stderr, flush=True)
