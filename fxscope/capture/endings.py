"""Exceptions that end the program, or a thread of it, and of which no event of torch's tells.

They come out of a backward through compiled code, out of torch.compile(...) itself, or forbid a recompile (the stance
``fail_on_recompile``).
The interpreter keeps the exception that ended the program (``sys.last_value``), so nothing is hooked for it; for threads,
``threading.excepthook`` is wrapped, and the hook that was there goes on to print.
"""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Callable
from typing import Any

from fxscope.capture.facts import torch_folder
from fxscope.capture.launches import ENTRIES
from fxscope.capture.recorder import ACTIVE, Recorder
from fxscope.names import EVENT_FAILURE

_COMPILED = f"{os.sep}torch{os.sep}_functorch{os.sep}_aot_autograd{os.sep}"
_AUTOGRAD = f"{os.sep}torch{os.sep}autograd{os.sep}"
_ACROSS = re.compile(
    r"double backward|backward through the graph a second time|does not require grad and does not have a grad_fn|"
    r"modified by an inplace operation|appears to not have been used in the graph"
)
# At the write, of the user's own, or in backward. A custom Function of the program's gives the same error under its own name.
_RETURNED = re.compile(r"Output \d+ of CompiledFunction.*This view was created inside a custom Function", re.DOTALL)
_FORBIDDEN = "Detected recompile when torch.compile stance"
_hooked: list[tuple[Callable[..., Any], Callable[..., Any]]] = []  # our hook for threads, and the one before it


def hook_threads() -> None:
    """See what ends threads, once per process."""
    if _hooked:
        return
    before = threading.excepthook

    def excepthook(args: Any, /) -> None:
        for recorder in list(ACTIVE):
            note_ending(recorder, args.exc_value)
        before(args)

    _hooked.append((excepthook, before))
    threading.excepthook = excepthook


def unhook_threads() -> None:
    """Give the hook back, unless the program has put its own on top."""
    if _hooked and threading.excepthook is _hooked[0][0]:
        threading.excepthook = _hooked.pop()[1]


def _refused(error: Exception) -> bool:
    """``torch.compile(...)`` itself raised (an unknown backend, a scripted module), before anything was called."""
    torch = torch_folder() + "__init__.py"
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename == torch and frame.name == "compile" for frame in frames)


def _in_backward(frames: list[traceback.FrameSummary], message: str) -> bool:
    """The exception came through autograd or compiled code, and is of that making."""
    if any(_COMPILED in frame.filename for frame in frames) or _RETURNED.search(message):
        return True
    return any(_AUTOGRAD in frame.filename for frame in frames) and bool(_ACROSS.search(message))


def note_ending(recorder: Recorder, error: BaseException | None) -> None:
    """Write ``fxscope.failure`` where an exception came out of a backward through code compiled here, or refused to compile."""
    if not isinstance(error, Exception):
        return
    message = str(error)
    if any(message == told for _, told in recorder.failed_backwards):
        return  # a compile that raised: written when it did
    refused = _refused(error)
    forbidden = message.startswith(_FORBIDDEN)
    if not refused and not ENTRIES[recorder.first_entry :]:
        return
    frames = traceback.extract_tb(error.__traceback__)
    if not (refused or forbidden or _in_backward(frames, message)):
        return
    recorder.failed_backwards.add(("", message))
    stack = [
        {"file": frame.filename, "line": frame.lineno or 0, "function": frame.name, "code": frame.line or ""}
        for frame in frames
    ]
    torch = torch_folder()
    deepest = next((frame for frame in reversed(stack) if not str(frame["file"]).startswith(torch)), stack[-1])
    cause = error.__cause__
    recorder.artifact(
        EVENT_FAILURE,
        {
            "id": "",
            "phase": "dynamo" if refused or forbidden else "backward",
            "type": type(error).__name__,
            "message": message,
            **{key: deepest[key] for key in ("file", "line", "function")},
            "stack": stack,
            "cause": None if cause is None else {"type": type(cause).__name__, "message": str(cause)},
        },
        {},
    )
