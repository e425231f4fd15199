"""Compiles that raise, and frames that run into the recompile limit: seen from torch's own events, with no frame of ours.

A wrapper around Dynamo's entry would put a frame of ours into the stacks that torch logs and prints. Instead we look
when torch writes ``dynamo_error`` or ``compilation_metrics``: the exception is then being handled in this thread, and
``_compile`` is on the stack with what we need to know whether it will reach the program.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from fxscope.capture.eager import calls_before, count_eager
from fxscope.capture.events import compile_envelope, compile_id_text
from fxscope.capture.facts import torch_folder
from fxscope.capture.launches import ENTRIES
from fxscope.capture.recorder import Recorder
from fxscope.names import EVENT_FAILURE, EVENT_LIMIT

_LIMIT = "Dynamo recompile limit exceeded"
_DIRECT = ("dynamo_error", "eager_compile_backwards_failure")


def on_artifact(recorder: Recorder, metadata: dict[str, Any], _payload: Any) -> None:
    """After ``dynamo_error`` (an exception in a compile) and ``eager_compile_backwards_failure``."""
    name = metadata["artifact"].get("name")
    error = sys.exc_info()[1] if name in _DIRECT else None
    if error is None:
        return
    compiling = _Compiling.find()
    if name != "dynamo_error":
        write_failure(recorder, error, "backward", None)
        return
    hide_own_frames(error)
    if compiling is not None and compiling.will_raise(error):
        write_failure(recorder, error, _phase(error, compiling), compiling)


def hide_own_frames(error: BaseException) -> None:
    """Take the frame of our wrapper out of the tracebacks that torch or the program will print."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        current = chain.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        entry = current.__traceback__
        while entry is not None:
            inner = entry.tb_next
            while inner is not None and inner.tb_frame.f_globals.get("__name__") == "fxscope.capture.graphs":
                inner = entry.tb_next = inner.tb_next
            entry = inner
        chain += [current.__cause__, current.__context__, getattr(current, "inner_exception", None)]


def on_metrics(recorder: Recorder, metadata: dict[str, Any], _payload: Any) -> None:
    """After ``compilation_metrics``: refused recompiles and failed backward compiles are written nowhere else."""
    metrics = metadata.get("compilation_metrics") or metadata.get("bwd_compilation_metrics") or {}
    reason = str(metrics.get("fail_reason") or "")
    error = _in_flight()
    if error is not None and ("bwd_compilation_metrics" in metadata or metrics.get("is_forward") is False):
        write_failure(recorder, error, "backward", None)
        return
    raised = type(error).__name__ == "FailOnRecompileLimitHit"
    if not reason.startswith(_LIMIT) and not raised:
        return
    compiling = _Compiling.find()
    text = reason if reason.startswith(_LIMIT) else str(error.__cause__ if error is not None else "")
    limit = "accumulated_recompile_limit" if "accumulated_" in text else "recompile_limit"
    config = sys.modules.get("torch._dynamo.config")
    code = compiling.code if compiling is not None else None
    recorder.artifact(
        EVENT_LIMIT,
        {
            "function": code.co_name if code is not None else "",
            "file": code.co_filename if code is not None else "",
            "line": code.co_firstlineno if code is not None else 0,
            "limit": limit,
            "value": getattr(config, limit, None),
            "raised": raised,
            "calls": calls_before(code),
            "counting": not raised and count_eager(code),
        },
    )
    if raised and error is not None:
        write_failure(recorder, error, "fullgraph", compiling)


def _in_flight() -> BaseException | None:
    """The exception that is leaving torch right now; not one that the program caught and is still handling."""
    error = sys.exc_info()[1]
    entry = None if error is None else error.__traceback__
    # The outermost frame that it has left so far is torch's own, or else it was caught outside.
    inside = entry is not None and str(entry.tb_frame.f_globals.get("__name__")).startswith(("torch.", "contextlib"))
    return error if inside else None


def write_failure(recorder: Recorder, error: BaseException, phase: str, compiling: _Compiling | None) -> None:
    """Write ``fxscope.failure``; fields in fxscope/capture/events.py."""
    stack = [
        {"file": frame.filename, "line": frame.lineno or 0, "function": frame.name, "code": frame.line or ""}
        for frame in getattr(error, "real_stack", None) or ()
    ]
    code = compiling.code if compiling is not None else None
    compile_id = compile_id_text(compile_envelope())
    # A backward that was compiled ahead in vain is compiled again when it is called.
    if phase == "backward" and (compile_id, str(error)) in recorder.failed_backwards:
        return
    recorder.failed_backwards.add((compile_id, str(error)))
    if code is None:
        code = next((entry.code for entry in reversed(ENTRIES) if entry.id == compile_id), None)
    if stack:
        torch = torch_folder()
        deepest = next((frame for frame in reversed(stack) if not frame["file"].startswith(torch)), stack[-1])
        place = {key: deepest[key] for key in ("file", "line", "function")}
    elif code is not None:
        place = {"file": code.co_filename, "line": code.co_firstlineno, "function": code.co_name}
    else:
        place = {"file": "", "line": 0, "function": ""}
    cause = getattr(error, "inner_exception", None) or error.__cause__
    recorder.artifact(
        EVENT_FAILURE,
        {
            "id": compile_id,
            "phase": phase,
            "type": type(error).__name__,
            "message": str(error),
            **place,
            "stack": stack,
            "cause": None if cause is None else {"type": type(cause).__name__, "message": str(cause)},
        },
    )


class _Compiling:
    """The ``_compile`` call that is on this thread's stack."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        values = frame.f_locals
        code = values.get("code")
        self.code: CodeType | None = code if isinstance(code, CodeType) else None
        self.one_graph = bool(values.get("one_graph"))

    @classmethod
    def find(cls) -> _Compiling | None:
        """The innermost ``torch._dynamo.convert_frame._compile``; None where there is none, or it has another name."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "_compile" and frame.f_globals.get("__name__") == "torch._dynamo.convert_frame":
                return cls(frame)
            frame = frame.f_back
        return None

    def will_raise(self, error: BaseException) -> bool:
        """The rule by which ``ConvertFrame.__call__`` lets an exception through or gives the frame up."""
        if self.one_graph or self._errors_on_graph_break():
            return True
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & {"UncapturedHigherOrderOpError", "ResumePrologueTracingError"}:
            return True
        if names & {"Unsupported", "UserError"}:
            return False
        config = sys.modules.get("torch._dynamo.config")
        return not getattr(config, "suppress_errors", False)

    def _errors_on_graph_break(self) -> bool:
        """``error_on_graph_break`` as the frame's converter has it, whose box is a local of a caller."""
        frame = self.frame.f_back
        while frame is not None and frame.f_globals.get("__name__") == "torch._dynamo.convert_frame":
            box = getattr(frame.f_locals.get("self"), "_box", None)
            if box is not None:
                return bool(getattr(box, "error_on_graph_break", False))
            frame = frame.f_back
        return False


def _phase(error: BaseException, compiling: _Compiling) -> str:
    names = {kind.__name__ for kind in type(error).__mro__}
    if "BackendCompilerFailed" in names:
        return "backend"
    if "ConstraintViolationError" in names or "CONSTRAINT" in str(getattr(error, "error_type", "")):
        return "constraint"
    if "Unsupported" in names:
        return "fullgraph"
    return "dynamo"
