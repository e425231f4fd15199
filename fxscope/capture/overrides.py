"""``--backend``, ``--mode`` and ``--dynamic``: what ``torch.compile`` is called with, whatever the program chose."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from fxscope.capture.options import Options


def hook_torch(module: ModuleType, options: Options) -> None:
    """Wrap ``torch.compile``; only done where an override was asked for."""
    original = module.compile

    @functools.wraps(original)
    def compile_with_overrides(model: Any = None, **keywords: Any) -> Any:
        return original(model, **override(keywords, options))

    module.compile = compile_with_overrides  # type: ignore[attr-defined]


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
