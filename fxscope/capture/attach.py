"""Arms the recorder in a process: at its start under ``fxscope run``, or when a program asks for it."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from fxscope.capture.imports import after_import
from fxscope.names import ENV_DIR, ENV_OPTIONS

if TYPE_CHECKING:
    from fxscope.capture.recorder import Recorder

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


def install_hooks(recorder: Recorder) -> None:
    """Hook what torch loads now or later: each hook once per process, and each behind a probe of its own.

    What a recording forces (``--config``, ``--backend``, ``--mode``, ``--dynamic``) is the exception: each forces its own, and gives it
    back when it ends.
    """
    from fxscope.capture import endings, failures, settings
    from fxscope.capture.breaks import hook_break_log
    from fxscope.capture.graphs import hook_output_graph
    from fxscope.capture.recorder import LISTENERS

    endings.hook_threads()
    options = recorder.options
    LISTENERS.update(
        dynamo_start=settings.write_settings,
        artifact=failures.on_artifact,
        compilation_metrics=failures.on_metrics,
        bwd_compilation_metrics=failures.on_metrics,
    )
    hooks = {"torch._dynamo.output_graph": hook_output_graph, "torch._dynamo.convert_frame": hook_break_log}
    if options.fusion_log:
        from fxscope.capture.fusion import hook_scheduler, write_fusion

        hooks["torch._inductor.scheduler"] = hook_scheduler
        LISTENERS["inductor_output_code"] = write_fusion
    for name, hook in hooks.items():
        if name not in _done:
            _done.add(name)
            after_import(name, hook)
    if options.backend is not None or options.mode is not None or options.dynamic is not None:
        from fxscope.capture.overrides import hook_torch

        after_import("torch", functools.partial(hook_torch, recorder=recorder))
    if options.config:
        for name, hook in settings.force_settings(recorder).items():
            after_import(name, hook)
