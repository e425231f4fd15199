"""Arms the recorder in a process: at its start under ``fxscope run``, or when a program asks for it."""

from __future__ import annotations

import atexit
import os
import sys
from types import ModuleType

from fxscope.capture.imports import after_import
from fxscope.names import ENV_DIR, ENV_OPTIONS

_done: set[str] = set()


def attach_from_environment() -> None:
    """Under ``fxscope run``: wait until the program imports torch, then record into the folder that it names."""
    folder = os.environ.get(ENV_DIR)
    if not folder or "torch._inductor.compile_worker" in getattr(sys, "orig_argv", []):
        return  # Inductor's compile workers are no part of the program

    def attach(_torch: ModuleType) -> None:
        from fxscope.capture.options import Options
        from fxscope.capture.recorder import start_recording

        recorder = start_recording(folder, Options.from_json(os.environ.get(ENV_OPTIONS, "")))
        atexit.register(recorder.stop, "exit")

    after_import("torch", attach)


def install_hooks(options: object) -> None:
    """Hook what torch loads later; each hook once per process, and each behind a probe."""
