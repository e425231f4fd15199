"""How often a function ran eager after it had hit the recompile limit: counted by ``sys.monitoring`` (Python 3.12 and later).

The interpreter reports each start of the one code object that hit the limit, and of no other: the rest of the program runs
at full speed. What Dynamo compiled is another code object, so calls that a compiled entry takes are not counted.
"""

from __future__ import annotations

import itertools
import sys
import time
from types import CodeType
from typing import Any

from fxscope.capture.facts import unavailable
from fxscope.capture.launches import ENTRIES
from fxscope.capture.recorder import Recorder
from fxscope.names import EVENT_EAGER

_FREE_TOOLS = (4, 3)  # 0, 1, 2 and 5 are meant for debuggers, coverage, profilers and optimisers
FEATURE = "eager calls behind the recompile limit"

_counters: dict[CodeType, Any] = {}
_tool: list[int] = []


def calls_before(code: CodeType | None) -> int | None:
    """Calls that compiled entries of a function took so far; None where its entries are not known."""
    entries = [entry for entry in ENTRIES if entry.code is code] if code is not None else []
    return sum(entry.calls for entry in entries) if entries else None


def count_eager(code: CodeType | None) -> bool:
    """Count the calls of a code object that run eager from now on; False where this Python, or another tool, prevents it."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        unavailable(
            FEATURE, f"sys.monitoring needs Python 3.12, this is {sys.version_info.major}.{sys.version_info.minor}"
        )
        return False
    if code is None:
        return False
    if code in _counters:
        return True
    if not _tool and not _take_tool(monitoring):
        unavailable(FEATURE, "other tools use all of sys.monitoring")
        return False
    _counters[code] = itertools.count()
    monitoring.set_local_events(_tool[0], code, monitoring.events.PY_START)
    return True


def _take_tool(monitoring: Any) -> bool:
    for number in _FREE_TOOLS:
        if monitoring.get_tool(number) is None:
            monitoring.use_tool_id(number, "fxscope")
            monitoring.register_callback(number, monitoring.events.PY_START, _started)
            _tool.append(number)
            return True
    return False


def _started(code: CodeType, _offset: int) -> None:
    counter = _counters.get(code)
    if counter is not None:
        next(counter)


def flush_eager(recorder: Recorder, final: bool) -> None:
    """Write the counts that changed since this recorder's last flush."""
    changed = []
    for code, counter in list(_counters.items()):
        calls = int(repr(counter)[6:-1])  # its value shows only in its repr, "count(3)"
        if calls and recorder.flushed_eager.get(code) != calls:
            recorder.flushed_eager[code] = calls
            changed.append(
                {"function": code.co_name, "file": code.co_filename, "line": code.co_firstlineno, "calls": calls}
            )
    if changed:
        recorder.artifact(EVENT_EAGER, {"at": time.time(), "final": final, "entries": changed}, {})


def stop_counting() -> None:
    """Give the interpreter's tool back, when the last recording has ended."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None or not _tool:
        return
    for code in _counters:
        monitoring.set_local_events(_tool[0], code, 0)
    monitoring.register_callback(_tool[0], monitoring.events.PY_START, None)
    monitoring.free_tool_id(_tool.pop())
    _counters.clear()


def forget_in_child() -> None:
    """Begin at zero in a forked child."""
    for code in _counters:
        _counters[code] = itertools.count()
