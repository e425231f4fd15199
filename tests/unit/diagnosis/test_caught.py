"""Errors that the program catches itself, told from Dynamo's own: by what the handlers around the line take."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.diagnosis.failures import _dynamo
from fxscope.recording.records import Failure

PLAIN = "def f(x):\n    try:\n        y = g(x)\n    except {}:\n        y = x\n    return y\n"


def failed(file: Path, type_: str, message: str, line: int = 3) -> Failure:
    return Failure(id="0/0", phase="dynamo", type=type_, message=message, file=str(file), line=line)


@pytest.mark.parametrize(
    ("handler", "message", "id_"),
    [
        # A check of Dynamo's own below somebody's try is Dynamo's limit, with the advice for it.
        ("KeyError", "AssertionError: expected FakeTensor in VariableBuilder", "dynamo-internal"),
        ("Exception", "AssertionError: expected FakeTensor in VariableBuilder", "dynamo-internal"),
        ("AssertionError", "AssertionError: not on this machine", "exception"),
        ("ImportError", "PackageNotFoundError: No package metadata was found for acme", "exception"),
        ("(KeyError, errors.OSError)", "FileNotFoundError: no such file: a.json", "exception"),
        ("Exception", "PackageNotFoundError: No package metadata was found for acme", "exception"),
        ("ValueError", "PackageNotFoundError: No package metadata was found for acme", "dynamo-internal"),
        ("Exception", "no name of an error", "dynamo-internal"),
    ],
)
def test_an_error_is_the_programs_where_its_handler_takes_it(
    tmp_path: Path, handler: str, message: str, id_: str
) -> None:
    file = tmp_path / "a.py"
    file.write_text(PLAIN.format(handler))
    ids, cause, fix = _dynamo(failed(file, "InternalTorchDynamoError", message))
    assert ids == [id_]
    assert ("catches that error itself" in cause) == (id_ == "exception")
    assert ("limit of Dynamo itself" in fix) == (id_ == "dynamo-internal")


@pytest.mark.parametrize(
    ("handler", "message", "id_"),
    [
        ("RuntimeError", "Dynamo failed to run FX node: got RuntimeError(\"shape '[3, -1]' is invalid\")", "exception"),
        ("", "RuntimeError when making fake tensor call", "exception"),
        ("RuntimeError", "Note: fake tensor call: expected a size, got FakeTensor(..., size=(3,))", "exception"),
        ("KeyError", "Dynamo failed to run FX node: got RuntimeError(\"shape '[3, -1]' is invalid\")", "user-error"),
    ],
)
def test_an_operation_that_fails_is_asked_before_where_the_program_catches_it(
    tmp_path: Path, handler: str, message: str, id_: str
) -> None:
    file = tmp_path / "a.py"
    file.write_text(PLAIN.format(handler).replace("except :", "except:"))
    ids, _, fix = _dynamo(failed(file, "TorchRuntimeError", message))
    assert ids == [id_]
    assert ("Ask before" in fix) == (id_ == "exception")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("try:\n    def f(x):\n        return g(x)\nexcept KeyError:\n    pass\n", 3),  # around the definition only
        ("def f(x):\n    try:\n        return g(x)\n    except KeyError:\n        raise\n", 3),
        ("def f(x):\n    try:\n        y = h(x)\n    except KeyError:\n        y = g(x)\n    return y\n", 5),
        ("def f(x):\n    try:\n        return g(x)\n    finally:\n        pass\n", 3),
    ],
)
def test_a_try_that_does_not_catch_is_none(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "a.py"
    file.write_text(text)
    assert _dynamo(failed(file, "InternalTorchDynamoError", "KeyError: 'a'", line))[0] == ["dynamo-internal"]


def test_an_outer_handler_takes_what_the_inner_one_lets_go(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "def f(x):\n    try:\n        try:\n            y = g(x)\n        except OSError:\n            y = 1\n"
        "    except KeyError:\n        y = 2\n    return y\n"
    )
    assert _dynamo(failed(file, "InternalTorchDynamoError", "KeyError: 'a'", 4))[0] == ["exception"]


def test_an_error_without_a_place_is_told_without_one() -> None:
    bare = Failure(id="0/0", phase="dynamo", type="InternalTorchDynamoError", message="")
    assert _dynamo(bare)[1] == "Dynamo itself failed: InternalTorchDynamoError without a message"
    bare.file, bare.line = "/home/me/a.py", 3
    assert _dynamo(bare)[1].endswith("without a message, raised at a.py:3")
