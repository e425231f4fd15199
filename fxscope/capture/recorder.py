"""One recording, as one process sees it: a logging handler on PyTorch's trace logger, and the facts that we add."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fxscope.capture.events import compile_envelope, rank_of_process
from fxscope.capture.facts import session_facts
from fxscope.capture.launchers import launched_as
from fxscope.capture.options import Options
from fxscope.capture.tracelog import TraceLog, warn
from fxscope.names import EVENT_END, EVENT_SESSION

ACTIVE: list[Recorder] = []  # the recordings that are going on in this process, oldest first

# Event name -> called with (recorder, metadata, payload) after such an event of torch's was written.
LISTENERS: dict[str, Callable[[Recorder, dict[str, Any], Any], None]] = {}


class Recorder(logging.Handler):
    """Writes every trace event to our log, after the strings that it refers to.

    PyTorch interns strings once per process and says so once, so a log that begins late, a second log, or the log of a
    forked child would refer to strings that it never named. Therefore this handler writes the table itself: whatever is
    in it and not yet in our file goes before the next event, and PyTorch's own ``str`` events are left out.
    """

    def __init__(self, folder: str, options: Options) -> None:
        super().__init__(logging.DEBUG)
        self.folder = folder
        self.options = options
        self.log = TraceLog(folder)
        self.seconds = 0.0
        self.forked_from: int | None = None
        self.started = time.time()
        self.first_entry = 0  # number of the first compiled entry that belongs to this recording
        self.flushed: dict[int, dict[str, Any]] = {}  # calls of each entry, as last written
        self.flushed_eager: dict[Any, int] = {}  # eager calls behind a limit, as last written
        self.failed_backwards: set[tuple[str, str]] = set()
        self.undo: list[Callable[[], None]] = []  # gives back the settings that this recording forces
        self.settings: dict[int, Any] = {}  # thread -> fingerprint of its settings, as last written
        self._pid = os.getpid()
        self._interned = 0

    def start(self) -> None:
        """Attach to torch's trace logger; the first event makes the file."""
        os.makedirs(self.folder, exist_ok=True)
        logger = logging.getLogger("torch.__trace")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        # logging.disable() in a program must not silence the trace; torch >= 2.13 does the same.
        logger.isEnabledFor = lambda level: level >= logger.level  # type: ignore[method-assign]
        logger.handle = functools.partial(_handle, logger)  # type: ignore[method-assign]
        # First in the list: PyTorch's own handler may take itself out while the list is walked, which skips the next.
        logger.handlers = [self, *logger.handlers]
        ACTIVE.append(self)

    def stop(self, reason: str) -> None:
        """Detach and write the last event, if this process has a log."""
        if self not in ACTIVE:
            return
        from fxscope.capture.eager import stop_counting
        from fxscope.capture.endings import note_ending, unhook_threads
        from fxscope.capture.launches import flush
        from fxscope.capture.settings import write_last_settings

        write_last_settings(self)
        if reason == "exit":
            note_ending(self, getattr(sys, "last_value", None))
        flush(self, final=True)
        ACTIVE.remove(self)
        if not ACTIVE:
            stop_counting()
            unhook_threads()
        while self.undo:
            self.undo.pop()()
        self._detach()
        if self.log.is_open and self.log.dead is None:
            with self.log.lock:
                self.log.artifact(
                    EVENT_END,
                    {
                        "at": time.time(),
                        "reason": reason,
                        "events": self.log.events,
                        "handler_seconds": round(self.seconds, 6),
                    },
                    {},
                )
                self.log.close()

    def _detach(self) -> None:
        logger = logging.getLogger("torch.__trace")
        logger.handlers = [handler for handler in logger.handlers if handler is not self]

    def emit(self, record: logging.LogRecord) -> None:
        """Write one event of torch's; never raises into the program, except what a signal handler raises."""
        begin = time.perf_counter()
        try:
            metadata: dict[str, Any] = record.metadata  # type: ignore[attr-defined]
            with self.log.lock:
                if not self.ready():
                    return
                self._write_strings()
                if "str" in metadata:
                    return
                self.log.write(metadata, record.payload, _where(record))  # type: ignore[attr-defined]
            listener = LISTENERS.get(next(iter(metadata)))
            if listener is not None:
                listener(self, metadata, record.payload)  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 - a fault of ours must not become the program's
            self.log.give_up(f"{type(error).__name__}: {error}")
        finally:
            self.seconds += time.perf_counter() - begin
        if self.log.dead is not None:
            self._detach()

    def artifact(self, name: str, payload: dict[str, Any], envelope: dict[str, Any] | None = None) -> None:
        """Write a ``fxscope.*`` event to this recording alone; ``envelope`` defaults to the compile going on here."""
        fields = compile_envelope() if envelope is None else envelope
        rank = rank_of_process()
        with self.log.lock:
            if self.ready():
                self.log.artifact(name, payload, fields if rank is None else {"rank": rank, **fields})

    def ready(self) -> bool:
        """Have this process's log open, headed by its session; False where recording has stopped."""
        if self.log.dead is not None:
            return False
        if self.log.is_open:
            return True
        if self._pid != os.getpid():
            if _is_compile_worker():
                self.log.dead = "compile worker"  # no rank and no program: silent
                return False
            self.forked_from, self._pid, self.started = self._pid, os.getpid(), time.time()
        if not self.log.open(_rank_for_name()):
            return False
        self._interned = 0
        self.log.artifact(EVENT_SESSION, session_facts(self), {})
        version = sys.modules["torch"].__version__ if "torch" in sys.modules else None
        if version is not None:
            self.log.artifact("torch_version", {"pytorch_version": str(version), "oss": True}, {})
        return True

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may have held the lock, and counts begin anew."""
        self.log.lock = threading.RLock()
        self.flushed.clear()
        self.flushed_eager.clear()

    def _write_strings(self) -> None:
        structured = sys.modules.get("torch._logging.structured")
        table = getattr(structured, "INTERN_TABLE", None)
        if table is None or len(table) == self._interned:
            return
        for text, number in list(itertools.islice(table.items(), self._interned, None)):
            self.log.write({"str": [text, number]}, None, "torch/_logging/structured.py:0")
            self._interned += 1


def start_recording(folder: str, options: Options) -> Recorder:
    """Begin a recording in this process; one warning and a dead recorder where the folder cannot be made."""
    from fxscope.capture.attach import install_hooks
    from fxscope.capture.launches import ENTRIES

    recorder = Recorder(folder, options)
    recorder.first_entry = len(ENTRIES)
    try:
        recorder.start()
    except OSError as error:
        recorder.log.dead = str(error)
        warn(f"not recording: cannot make {folder}: {error.strerror}")
        return recorder
    install_hooks(recorder)
    return recorder


def _handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    """``Logger.handle``, where a disabled logger still reaches us: logging.config.dictConfig disables all that it meets."""
    if not logger.disabled:
        logging.Logger.handle(logger, record)
        return
    for recorder in ACTIVE:
        recorder.handle(record)


def _where(record: logging.LogRecord) -> str:
    path = record.pathname
    mark = path.rfind("/torch/")
    return f"{path[mark + 1 :] if mark >= 0 else path}:{record.lineno}"


def _rank_for_name() -> int | None:
    """The rank for the file's name: the process group's, else what a launcher says in the environment."""
    rank = rank_of_process()
    return launched_as()[0] if rank is None else rank


def _is_compile_worker() -> bool:
    utils = sys.modules.get("torch._inductor.compile_worker.utils")
    in_toplevel = getattr(utils, "in_toplevel_process", None)
    return in_toplevel is not None and not in_toplevel()
