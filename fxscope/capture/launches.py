"""How often each compiled entry was called: counted for next to nothing, written every second by a thread of our own."""

from __future__ import annotations

import _thread
import itertools
import os
import sys
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from fxscope.capture.recorder import ACTIVE, Recorder
from fxscope.names import EVENT_LAUNCHES

INTERVAL = 1.0  # seconds between flushes


class Entry:
    """One graph that a backend compiled.

    Attributes:
        id: Compile id without attempt.
        graph: Number of the graph in this process.
        code: The code object that Dynamo compiled, where known.
        timing: Sampled times, where they were asked for.
    """

    __slots__ = ("_base", "_counter", "attempt", "code", "graph", "id", "timing")

    def __init__(self, compile_id: str, attempt: int, graph: int, code: CodeType | None = None) -> None:
        self.id = compile_id
        self.attempt = attempt
        self.graph = graph
        self.code = code
        self.timing: Any = None
        # next() on it is one bytecode, so that threads which call at once lose no count.
        self._counter = itertools.count()
        self._base = 0

    @property
    def calls(self) -> int:
        """Calls in this process so far; ``count`` shows its value only in its repr, "count(3)"."""
        return int(repr(self._counter)[6:-1]) - self._base

    def forget(self) -> None:
        """Begin at zero, in a forked child."""
        self._base += self.calls
        if self.timing is not None:
            self.timing.forget()

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted."""
        count = self._counter.__next__

        def counted(*args: Any, **kwargs: Any) -> Any:
            count()
            return function(*args, **kwargs)

        return like(counted, function)


def like(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper with the name and the attributes of what it wraps, as backends put some on what they return."""
    wrapper.__dict__.update(getattr(function, "__dict__", {}) if not isinstance(function, type) else {})
    wrapper.__name__ = getattr(function, "__name__", "compiled_fn")
    # Dynamo would follow these to the function inside and call that instead.
    wrapper.__dict__.pop("_torchdynamo_orig_callable", None)
    wrapper.__dict__.pop("__wrapped__", None)
    return wrapper


ENTRIES: list[Entry] = []


def flush(recorder: Recorder, final: bool = False) -> None:
    """Write the entries whose count changed since this recorder's last flush."""
    changed = []
    for entry in ENTRIES[recorder.first_entry :]:
        row: dict[str, Any] = {"id": entry.id, "attempt": entry.attempt, "graph": entry.graph, "calls": entry.calls}
        if entry.timing is not None:
            if final:
                entry.timing.collect()
            row.update(entry.timing.summary())
        if row["calls"] and recorder.flushed.get(entry.graph) != row:
            recorder.flushed[entry.graph] = row
            changed.append(row)
    if changed:
        recorder.artifact(EVENT_LAUNCHES, {"at": time.time(), "final": final, "entries": changed}, {})
    eager = sys.modules.get("fxscope.capture.eager")  # loaded where something hit the limit
    if eager is not None:
        eager.flush_eager(recorder, final)


class Flusher:
    """The thread. It is none of ``threading``'s, so that programs which list or count their threads do not see it."""

    def __init__(self) -> None:
        self._stop: Any = None
        self._done: Any = None
        self._id = 0

    def start(self) -> None:
        """Start it, if it is not running."""
        if self._stop is None:
            self._stop, self._done = _thread.allocate_lock(), _thread.allocate_lock()
            self._stop.acquire()
            self._done.acquire()
            try:
                _thread.start_new_thread(self._run, (self._stop, self._done))
            except RuntimeError:
                self._stop = None  # no thread to be had (a limit, or the interpreter is ending): counts come at exit

    def _run(self, stop: Any, done: Any) -> None:
        self._id = _thread.get_native_id()
        try:
            while not stop.acquire(timeout=INTERVAL):
                for recorder in list(ACTIVE):
                    flush(recorder)
        finally:
            done.release()

    def pause(self) -> None:
        """End it before a fork, so that it holds no lock and is not there to be warned about."""
        if self._stop is None:
            return
        self._stop.release()
        self._done.acquire(timeout=5.0)
        self._stop = None
        for _ in range(100):  # the thread has left Python; the kernel takes a moment more
            if not os.path.exists(f"/proc/self/task/{self._id}"):
                break
            time.sleep(0.0001)

    def resume(self) -> None:
        """Go on after a fork, unless we alone would make Python 3.12 warn that a program with threads forks."""
        if ENTRIES and (sys.version_info < (3, 12) or _other_threads()):
            self.start()


def _other_threads() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) > 1
    except OSError:
        return True  # no procfs: Python counts its own threads there, and ours is none of them


FLUSHER = Flusher()


def _in_child() -> None:
    FLUSHER._stop = None
    for entry in ENTRIES:
        entry.forget()
    eager = sys.modules.get("fxscope.capture.eager")
    if eager is not None:
        eager.forget_in_child()
    for recorder in ACTIVE:
        recorder.after_fork()
    if ENTRIES and ACTIVE:
        FLUSHER.start()


os.register_at_fork(before=FLUSHER.pause, after_in_parent=FLUSHER.resume, after_in_child=_in_child)
