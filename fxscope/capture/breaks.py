"""Break records that torch writes to the trace only while its graph_breaks log is on: have them written, print nothing."""

from __future__ import annotations

import logging
from types import ModuleType

from fxscope.capture.facts import unavailable
from fxscope.capture.recorder import ACTIVE


def hook_break_log(module: ModuleType) -> None:
    """Let ``torch._dynamo.convert_frame`` believe that its graph_breaks log is on, and drop what only we asked for."""
    logger = getattr(module, "graph_break_log", None)
    if not isinstance(logger, logging.Logger):
        unavailable("breaks that cannot resume", "torch._dynamo.convert_frame.graph_break_log is missing")
        return

    def really(level: int) -> bool:
        return logging.Logger.isEnabledFor(logger, level)

    logger.isEnabledFor = lambda level: bool(ACTIVE) or really(level)  # type: ignore[method-assign]
    logger.addFilter(lambda record: really(record.levelno))
