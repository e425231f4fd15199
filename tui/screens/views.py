"""The views by name, imported when they are first shown."""

from __future__ import annotations

import importlib
from typing import cast

from .view import View

_CLASSES = {
    "overview": "overview.Overview",
    "graph": "graph.GraphView",
    "guards": "guards.GuardsView",
    "breaks": "breaks.BreaksView",
    "recompiles": "recompiles.RecompilesView",
    "passes": "passes.PassesView",
    "kernels": "kernels.KernelsView",
    "code": "code.CodeTextView",
    "timeline": "timeline.TimelineView",
    "output": "output.OutputView",
}


def make(name: str) -> View:
    """A new view."""
    module, _, cls = _CLASSES[name].partition(".")
    return cast(View, getattr(importlib.import_module(f".{module}", __package__), cls)())
