"""Exceptions that end the program or a thread in a backward: which are noted, and where."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fxscope.capture import endings, failures
from fxscope.capture.launches import Entry


class Recorder:
    def __init__(self) -> None:
        self.first_entry = 0
        self.failed_backwards: set[tuple[str, str]] = set()
        self.written: list[dict[str, Any]] = []

    def artifact(self, name: str, payload: dict[str, Any], envelope: dict[str, Any]) -> None:
        assert (name, envelope) == ("fxscope.failure", {})
        self.written.append(payload)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(endings, "ENTRIES", [Entry("0/0", 0, 0)])
    return Recorder()


def raised(file: str, error: Exception) -> Exception:
    """The exception, having left a function of that file that a line here called."""
    scope: dict[str, Any] = {"error": error}
    exec(compile("def backward():\n    raise error\n", file, "exec"), scope)
    try:
        scope["backward"]()  # THE LINE
    except Exception as found:
        return found
    raise AssertionError


AOT = "/lib/torch/_functorch/_aot_autograd/runtime_wrappers.py"
AUTOGRAD = "/lib/torch/autograd/graph.py"


@pytest.mark.parametrize(
    ("file", "message", "noted"),
    [
        (AOT, "torch.compile with aot_autograd does not currently support double backward", True),
        (AOT, "anything that compiled code raises in its backward", True),
        (AUTOGRAD, "Trying to backward through the graph a second time", True),
        (AUTOGRAD, "some error of an eager backward", False),
        (
            "/home/me/train.py",
            "Output 0 of CompiledFunction is a view. This view was created inside a custom Function",
            True,
        ),
        (
            "/home/me/train.py",
            "Output 0 of SameBackward is a view and is being modified inplace. This view was created inside a custom Function",
            False,
        ),
        ("/home/me/train.py", "Trying to backward through the graph a second time", False),
    ],
)
def test_which_exceptions_concern_compiled_code(
    recorder: Any, monkeypatch: pytest.MonkeyPatch, file: str, message: str, noted: bool
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/lib/torch/__init__.py"))
    error = raised(file, RuntimeError(message))
    endings.note_ending(recorder, error)
    endings.note_ending(recorder, error)  # told once
    assert len(recorder.written) == noted
    for payload in recorder.written:
        assert (payload["phase"], payload["type"], payload["message"]) == ("backward", "RuntimeError", message)
        assert payload["file"] == (file if file.startswith("/home") else __file__)  # the deepest line outside of torch
        assert "# THE LINE" in payload["stack"][-2]["code"] or payload["stack"][-2]["line"] == payload["line"]


def test_what_was_written_as_a_failed_compile_is_not_written_again(recorder: Any) -> None:
    recorder.failed_backwards.add(("0/0", "no backward"))
    endings.note_ending(recorder, raised(AOT, RuntimeError("no backward")))
    assert recorder.written == []


def test_a_program_that_compiled_nothing_and_an_exit_concern_nobody(recorder: Any) -> None:
    recorder.first_entry = 1
    endings.note_ending(recorder, raised(AOT, RuntimeError("x")))
    recorder.first_entry = 0
    endings.note_ending(recorder, SystemExit(3))
    endings.note_ending(recorder, None)
    assert recorder.written == []


def test_the_hook_for_threads_calls_the_one_before_and_goes_away(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(endings, "_hooked", [])
    monkeypatch.setattr(endings, "ACTIVE", [recorder])
    monkeypatch.setattr(threading, "excepthook", seen.append)
    before = threading.excepthook
    endings.hook_threads()
    endings.hook_threads()
    thread = threading.Thread(target=lambda: exec(compile("raise RuntimeError('double backward')", AUTOGRAD, "exec")))
    thread.start()
    thread.join()
    assert len(seen) == 1
    assert [payload["message"] for payload in recorder.written] == ["double backward"]
    endings.unhook_threads()
    assert threading.excepthook == before


def test_a_failure_lies_at_the_users_line_though_torch_came_after_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/late/torch/__init__.py"))
    error = ValueError("no")
    lines = [("/own/train.py", 3, "step"), ("/late/torch/nn/modules/linear.py", 134, "forward")]
    error.real_stack = [  # type: ignore[attr-defined]
        SimpleNamespace(filename=file, lineno=line, name=name, line="") for file, line, name in lines
    ]
    written: list[dict[str, Any]] = []
    recorder = SimpleNamespace(failed_backwards=set(), artifact=lambda name, payload: written.append(payload))
    failures.write_failure(recorder, error, "backend", None)  # type: ignore[arg-type]
    assert (written[0]["file"], written[0]["line"]) == ("/own/train.py", 3)
