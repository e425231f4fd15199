"""``--fusion-log``: Inductor's fusion decisions, kept in the trace and not printed."""

from __future__ import annotations

import logging
import threading
from types import ModuleType
from typing import Any

from fxscope.capture.events import compile_envelope
from fxscope.capture.facts import unavailable
from fxscope.capture.recorder import ACTIVE, Recorder
from fxscope.names import EVENT_FUSION

_lines: dict[int, list[str]] = {}  # thread -> lines since its last event


def hook_scheduler(module: ModuleType) -> None:
    """Keep what ``torch._inductor.scheduler``'s fusion log says, whether or not the program has it on."""
    logger = getattr(module, "fusion_log", None)
    if not isinstance(logger, logging.Logger):
        unavailable("--fusion-log", "torch._inductor.scheduler.fusion_log is missing")
        return

    def really(level: int) -> bool:
        return logging.Logger.isEnabledFor(logger, level)

    def keep(record: logging.LogRecord) -> bool:
        if _wanted():
            _lines.setdefault(threading.get_ident(), []).append(record.getMessage())
        return really(record.levelno)

    logger.isEnabledFor = lambda level: _wanted() or really(level)  # type: ignore[method-assign]
    logger.addFilter(keep)


def _wanted() -> bool:
    return any(recorder.options.fusion_log for recorder in ACTIVE)


def write_fusion(recorder: Recorder, _metadata: dict[str, Any], _payload: Any) -> None:
    """After a graph's generated code: the decisions that led to it."""
    lines = _lines.pop(threading.get_ident(), None)
    if lines and recorder.options.fusion_log:
        recorder.artifact(EVENT_FUSION, {"lines": lines}, compile_envelope())
