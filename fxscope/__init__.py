"""fxscope: see what torch.compile did to a program, what is wrong with it, and step through its graphs.

Everything here is imported on first use, so that ``import fxscope`` costs nothing and never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxscope.capture.api import RecordingBackend as RecordingBackend
    from fxscope.capture.api import record as record
    from fxscope.diagnosis.explain import explain as explain
    from fxscope.recording.recording import Recording as Recording
    from fxscope.recording.recording import open_recording as open

__version__ = "0.1.0"

# Public name -> the module and attribute that own it.
_OWNERS = {
    "Recording": ("fxscope.recording.recording", "Recording"),
    "RecordingBackend": ("fxscope.capture.api", "RecordingBackend"),
    "explain": ("fxscope.diagnosis.explain", "explain"),
    "open": ("fxscope.recording.recording", "open_recording"),
    "record": ("fxscope.capture.api", "record"),
}

__all__ = ["Recording", "RecordingBackend", "__version__", "explain", "open", "record"]


def __getattr__(name: str) -> Any:
    if name in _OWNERS:
        module, attribute = _OWNERS[name]
        value = getattr(importlib.import_module(module), attribute)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'fxscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
