"""Which loop a changing size unrolls: said only where the function's text shows that the range follows from it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fxscope.diagnosis.loops import loop_around
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.records import FailedGuard, Recompile
from fxscope.source import SourceLine


def found_in(folder: Path, body: str, *, name: str = "x", dim: int | None = 0, start: int = 1) -> str | None:
    """Head of the loop that is told for the line marked HERE of ``def f(self, x, n)``."""
    file = folder / f"train{len(list(folder.iterdir()))}.py"  # files are read once
    file.write_text("def f(self, x, n):\n" + textwrap.indent(body, "    "))
    number, code = next((i, text) for i, text in enumerate(file.read_text().split("\n"), 1) if "HERE" in text)
    guard = FailedGuard(entry="0/0", guard="", kind="number" if dim is None else "size")
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=(), name=name, dim=dim)
    frame = Frame(function="f", file=str(file), line=start, place=(str(file), 1))
    found = loop_around(frame, change, SourceLine(file=str(file), line=number, function="f", code=code.strip()))
    return found.code if found is not None else None


INNER = "\n    x = x * len('a' * x.shape[0]) + i  # HERE\n"


@pytest.mark.parametrize(
    ("before", "loop"),
    [
        ("", "for i in range(x.shape[0]):"),
        ("", "for i in range(1, len(x)):"),
        ("t = x.size(0) - 1\n", "for i in range(t):"),
        ("t, b = x.shape\n", "for i in range(1, t):"),
        ("m = x.shape[0]\nm += 1\nhalf = int(m // 2)\nx = self.norm(x)\n", "for i in range(half):"),
    ],
)
def test_a_range_of_the_size_is_what_unrolls(tmp_path: Path, before: str, loop: str) -> None:
    assert found_in(tmp_path, before + loop + INNER) == loop


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(n):",  # layers that are the same in every call
        "for i in range(self.n):",
        "for i in range(3):",
        "for i in range(x.shape[1]):",  # another dimension
        "for i in range(self.weight.shape[0]):",
        "t, b = x.shape\nfor i in range(b):",
        "t = x.shape[0]\nt = 2\nfor i in range(t):",
        "if n:\n    t = 2\nelse:\n    t = x.shape[0]\nfor i in range(t):",
        "x = self.pool(x)\nfor i in range(x.shape[0]):",  # what the name means by now is not guarded
        "y = x.new_zeros(x.shape[0])\nfor i in range(y):",
        "for i in self.blocks(x.shape[0]):",
    ],
)
def test_any_other_loop_around_the_line_is_not_blamed(tmp_path: Path, loop: str) -> None:
    assert found_in(tmp_path, loop + INNER) is None


def test_the_innermost_of_those_that_count_and_no_function_that_is_called(tmp_path: Path) -> None:
    layers = "for t in range(x.shape[0]):\n    for i in range(self.n):\n        x = x * len('a' * x.shape[0])  # HERE\n"
    assert found_in(tmp_path, layers) == "for t in range(x.shape[0]):"
    assert found_in(tmp_path, "for i in range(n):" + INNER, name="n", dim=None) == "for i in range(n):"
    assert found_in(tmp_path, "for i in range(self.n):" + INNER, name="self.n", dim=None) == "for i in range(self.n):"
    called = "def g(x):\n    for i in range(x.shape[0]):\n        x = x * i  # HERE\n    return x\n"
    assert found_in(tmp_path, called) is None
    assert found_in(tmp_path, called, start=2) == "for i in range(x.shape[0]):"
    assert found_in(tmp_path, "for i in range(x.shape[0]):\n    pass\nx = 2  # HERE\n") is None


def test_another_version_of_the_file_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f(x):\n    for i in range(len(x)):\n        x = x + i\n")
    guard = FailedGuard(entry="0/0", guard="", kind="size")
    change = Change(index=0, recompile=Recompile(id="0/1", key="0/1"), guard=guard, ids=(), name="x", dim=0)
    file = str(tmp_path / "a.py")
    frame = Frame(function="f", file=file, line=1, place=(file, 1))
    assert loop_around(frame, change, SourceLine(file=file, line=3, code="x = x + i")) is not None
    assert loop_around(frame, change, SourceLine(file=file, line=3, code="x = x - i")) is None
