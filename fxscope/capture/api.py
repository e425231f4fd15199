"""Recording from inside a program, a test or a notebook."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fxscope.capture.options import Options
from fxscope.capture.recorder import ACTIVE, Recorder, start_recording
from fxscope.capture.session import end_session, new_folder, new_session, take_folder, write_session
from fxscope.capture.tracelog import warn


@contextmanager
def record(path: str | os.PathLike[str] | None = None, **options: Any) -> Iterator[Path]:
    """Record what torch.compile does while the block runs.

    Args:
        path: Folder of the recording; it may exist if it is empty. Default: ``./<script>-<time>.fxscope``.
        **options: ``backend``, ``mode``, ``dynamic``, ``config``, ``save_tensors``, ``time_launches``, ``fusion_log``, as in ``fxscope run``.

    Yields:
        The folder. ``fxscope.open`` reads it, during the block too.

    Raises:
        FileExistsError: The folder holds something already.
        OSError: The folder cannot be made.
        TypeError: An unknown option.

    Example:
        >>> with fxscope.record("out.fxscope"):
        ...     compiled(x)
    """
    recording = _Session(path, Options(**options))
    try:
        yield Path(recording.recorder.folder)
    finally:
        recording.end()


class _Session:
    """A recording that this process itself began, with the ``session.json`` that says so."""

    def __init__(self, path: str | os.PathLike[str] | None, options: Options) -> None:
        script = sys.argv[0] if getattr(sys, "argv", None) and sys.argv[0] else "python"
        folder = os.path.abspath(os.fspath(path)) if path is not None else new_folder(script)
        if not take_folder(folder, alone=True):
            raise FileExistsError(f"{folder} is not empty; record into another folder")
        self._session = new_session(list(sys.argv), [sys.executable, *sys.argv], script, options.changed())
        self._pid = os.getpid()
        write_session(folder, self._session)
        self.recorder: Recorder = start_recording(folder, options)

    def end(self) -> None:
        """Stop, and say so in ``session.json``; a forked child only stops."""
        self.recorder.stop("stopped")
        if os.getpid() == self._pid:
            try:
                end_session(self.recorder.folder, self._session, None)
            except OSError as error:
                warn(f"cannot write session.json in {self.recorder.folder}: {error.strerror}")


def ensure_recording() -> None:
    """Begin a recording that lasts until the process ends, unless one is going on."""
    if ACTIVE:
        return
    try:
        session = _Session(None, Options())
    except OSError as error:
        warn(f"not recording: {error}")
        return
    warn(f"recording to {os.path.relpath(session.recorder.folder)}")
    atexit.register(session.end)


class RecordingBackend:
    """A backend for ``torch.compile`` that records, and compiles with another backend.

    A recording begins when it is made, unless one is going on already, and lasts until the process ends.

    Args:
        inner: Name or callable of the backend that compiles.

    Example:
        >>> compiled = torch.compile(model, backend=fxscope.RecordingBackend("aot_eager"))
    """

    def __init__(self, inner: str | Callable[..., Any] = "inductor") -> None:
        self.inner = inner
        self.compiler_name = inner if isinstance(inner, str) else getattr(inner, "__name__", type(inner).__name__)
        self.__name__ = self.compiler_name
        ensure_recording()

    def __call__(self, gm: Any, example_inputs: list[Any], **keywords: Any) -> Any:
        """Compile with the inner backend; the recorder sees the graph on its way here."""
        from torch._dynamo.backends.registry import lookup_backend

        return lookup_backend(self.inner)(gm, example_inputs, **keywords)

    def __eq__(self, other: object) -> bool:
        # Dynamo recompiles for a backend that is not equal to the last one.
        return isinstance(other, RecordingBackend) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash((RecordingBackend, self.inner))
