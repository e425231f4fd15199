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


def preload() -> None:
    """Import what views need, on a worker: an import on the UI thread would hold up the screen when a view is first shown."""
    for path in _CLASSES.values():
        importlib.import_module(f".{path.partition('.')[0]}", __package__)
    for module in (
        "fxscope.graph.parse",
        "fxscope.graph.diff",
        "fxscope.graph.cost",
        "fxscope.graph.gutter",
        "fxscope.graph.histogram",
    ):
        importlib.import_module(module)


def make(name: str) -> View:
    """A new view."""
    module, _, cls = _CLASSES[name].partition(".")
    return cast(View, getattr(importlib.import_module(f".{module}", __package__), cls)())
