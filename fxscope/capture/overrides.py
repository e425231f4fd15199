"""``--backend``, ``--mode`` and ``--dynamic``: what ``torch.compile`` is called with, whatever the program chose."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from fxscope.capture.options import Options
from fxscope.capture.recorder import ACTIVE, Recorder


def hook_torch(module: ModuleType, recorder: Recorder) -> None:
    """Wrap ``torch.compile`` as long as the recording goes on; only done where an override was asked for."""
    if recorder not in ACTIVE:
        return  # torch was first imported after the recording ended
    original = module.compile

    @functools.wraps(original)
    def compile_with_overrides(model: Any = None, **keywords: Any) -> Any:
        # Somebody may have kept a reference to this function beyond the recording.
        return original(model, **(override(keywords, recorder.options) if recorder in ACTIVE else keywords))

    def undo() -> None:
        if module.compile is compile_with_overrides:
            module.compile = original  # type: ignore[attr-defined]

    module.compile = compile_with_overrides  # type: ignore[attr-defined]
    recorder.undo.append(undo)


def override(keywords: dict[str, Any], options: Options) -> dict[str, Any]:
    """The keywords of ``torch.compile`` with the overrides applied.

    A mode or options that were meant for another backend go with it: the new one would refuse them.
    """
    changed = dict(keywords)
    if options.backend is not None and options.backend != changed.get("backend", "inductor"):
        changed["backend"] = options.backend
        changed.pop("mode", None)
        changed.pop("options", None)
    if options.mode is not None:
        changed["mode"] = options.mode
        changed.pop("options", None)  # torch.compile takes one or the other
    if options.dynamic is not None:
        changed["dynamic"] = options.dynamic
    return changed
