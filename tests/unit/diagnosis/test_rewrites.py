"""Hand-written rewrites: each is applied to a function's own source and run before and after, with graph breaks counted."""

from __future__ import annotations

import itertools
import linecache
import logging
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fxscope.diagnosis.rewrites import rewrite
from fxscope.diagnosis.statement import statement_at

NUMBER = itertools.count()

# Advice key, function whose marked statement breaks, names that the note leaves open, arguments.
CASES: list[tuple[str, str, dict[str, Any], list[list[Any]]]] = [
    (
        "branch",
        "def f(x):\n    y = x * 2\n    if y.sum() > 0:  # HERE\n        return y + 1\n    return y - 1\n",
        {},
        [[1.0, 2.0], [-1.0, -2.0]],
    ),
    (
        "branch",
        "def f(x):\n    if x.sum() > 0:  # HERE\n        return x + 1\n    else:\n        return x - 1\n",
        {},
        [[1.0, 2.0], [-1.0, -2.0]],
    ),
    (
        "branch",
        "def f(x):\n    y = x * 2\n    if torch.isnan(y).any():  # HERE\n        y = torch.nan_to_num(y)\n    return y + 1\n",
        {},
        [[1.0, float("nan")], [1.0, 2.0]],
    ),
    (
        "branch",
        "def f(x):\n    if x.max() > 1 and x.min() < 0:  # HERE\n        y = x + 1\n    else:\n        y = x * 3\n    return y\n",
        {},
        [[2.0, -1.0], [2.0, 1.0]],
    ),
    (
        "branch",
        "def f(x):\n    z = x * 0\n    if not (x > 0).all():  # HERE\n        x = x + 1\n        z = z - 1\n    return x + z\n",
        {},
        [[2.0, -1.0], [2.0, 1.0]],
    ),
    (
        "branch",
        "def f(x):\n    s = x.sum()\n    k = s if s > 1 else s * 0 + 1  # HERE\n    return x * k\n",
        {},
        [[2.0, 1.0], [0.1, 0.2]],
    ),
    (
        "branch",
        "def f(x):\n    x = x + 0\n    if x.sum() > 0:  # HERE\n        x += 1\n    return x\n",
        {},
        [[2.0, 1.0], [-0.1, -0.2]],
    ),
    (
        "branch",
        "def f(x):\n    y = x + 0\n    while y.sum() < 10:  # HERE\n        y = y + 1\n    return y\n",
        {},
        [[1.0, 2.0]],
    ),
    (
        "branch",
        (
            "def f(x):\n    err = torch.ones(())\n    n = 0\n    while err > 1e-3:  # HERE\n        new = 0.5 * (x + 2 / x)\n"
            "        err = (new - x).abs().max()\n        x = new\n        n += 1\n    return x + n\n"
        ),
        {},
        [[1.0, 2.0], [4.0, 0.5]],
    ),
    (
        "branch",
        (
            "def f(x):\n    try:\n        if (x == 0).any():  # HERE\n            raise ZeroDivisionError\n        return 1 / x\n"
            "    except ZeroDivisionError:\n        return x * 0 - 1\n"
        ),
        {},
        [[1.0, 2.0], [1.0, 0.0]],
    ),
    (
        "branch",
        "def f(x):\n    y = x * 2\n    if (y > 100).any():  # HERE\n        raise ValueError('too large')\n    return y\n",
        {},
        [[1.0, 2.0]],
    ),
    (
        "branch",
        "def f(x):\n    y = x * 2\n    if not (y < 100).all():  # HERE\n        raise ValueError('too large')\n    return y\n",
        {},
        [[1.0, 2.0]],
    ),
    (
        "assert",
        "def f(x):\n    y = x * 2\n    assert (y < 100).all(), f'{y} is too large'  # HERE\n    return y\n",
        {},
        [[1.0, 2.0]],
    ),
    ("scalar", "def f(x):\n    m = x.max().item()  # HERE\n    return x / m\n", {}, [[1.0, 2.0]]),
    ("scalar", "def f(x):\n    return x * float(x.sum()) + int(x.max())  # HERE\n", {}, [[1.0, 2.0]]),
    ("scalar", "def f(x):\n    n = (x > 0).sum()\n    return x[:n].sum()  # HERE\n", {}, [[1.0, 2.0, -3.0]]),
    ("scalar", "def f(x):\n    n = (x > 0).sum()\n    return x[: n.item()].sum()  # HERE\n", {}, [[1.0, 2.0, -3.0]]),
    (
        "scalar",
        "def f(x):\n    y = x * 2\n    print('m', y.max().item())  # HERE\n    return y + 1\n",
        {},
        [[1.0, 2.0]],
    ),
    ("output-shape", "def f(x):\n    y = x * 2\n    return y[y > 0].sum()  # HERE\n", {}, [[1.0, -2.0, 3.0]]),
    (
        "output-shape",
        "def f(x):\n    y = x * 2\n    keep = y > 0\n    return y[keep].mean()  # HERE\n",
        {},
        [[1.0, -2.0, 3.0]],
    ),
    (
        "output-shape",
        "def f(x):\n    return torch.repeat_interleave(x, x.long()) + 1  # HERE\n",
        {"TOTAL": 3},
        [[1.0, 2.0]],
    ),
    (
        "output-shape",
        "def f(x):\n    return torch.bincount(x.long(), minlength=4) + 1  # HERE\n",
        {},
        [[1.0, 2.0, 2.0]],
    ),
    ("print", "def f(x):\n    y = x * 2\n    print('sum', y.sum())  # HERE\n    return y + 1\n", {}, [[1.0]]),
    ("logging", "def f(x):\n    y = x * 2\n    log.info('sum %s', y.sum())  # HERE\n    return y + 1\n", {}, [[1.0]]),
    ("warnings", "def f(x):\n    y = x * 2\n    warnings.warn('careful')  # HERE\n    return y + 1\n", {}, [[1.0]]),
    ("deepcopy", "def f(x):\n    y = x * 2\n    z = copy.deepcopy(y)  # HERE\n    return z + y\n", {}, [[1.0]]),
    (
        "explicit-break",
        "def f(x):\n    y = x * 2\n    torch._dynamo.graph_break()  # HERE\n    return y + 1\n",
        {},
        [[1.0]],
    ),
    ("sort-key", "def f(x):\n    return torch.stack(sorted(x))  # HERE\n", {}, [[3.0, 1.0, 2.0]]),
    (
        "sort-key",
        "def f(x):\n    xs = [x, x * 3, x * 2]\n    ys = sorted(xs, key=lambda t: t.norm(), reverse=True)  # HERE\n    return torch.stack(list(ys))\n",
        {},
        [[3.0, 1.0]],
    ),
    ("scalar", "def f(x):\n    w = x.outer(x)\n    return w[x.argmax().item()]  # HERE\n", {}, [[1.0, 3.0, 2.0]]),
    (
        "scalar",
        "def f(x):\n    s = 1.0 / math.sqrt(x.var().item() + 1e-5)  # HERE\n    return x * s\n",
        {},
        [[1.0, 3.0, 2.0]],
    ),
    (
        "scalar",
        "def f(x):\n    y = round(x.sum().item(), 1) + np.log(float(x.max())) * max(x.mean().item(), 1.0)  # HERE\n    return x * y\n",
        {},
        [[1.0, 3.0, 2.0]],
    ),
    (
        "scalar",
        "def f(x):\n    y = x * 2\n    if not math.isfinite(y.sum().item()):  # HERE\n        raise RuntimeError('diverged')\n    return y\n",
        {},
        [[1.0, 2.0]],
    ),
    (
        "branch",
        "def f(x, flag=True):\n    y = x * 2\n    if flag is not None and x.sum() > 0:  # HERE\n        return y + 1\n    return y\n",
        {},
        [[1.0, 2.0], [-1.0, -2.0]],
    ),
    (
        "branch",
        "def f(x):\n    y = x * 2\n    if x.sum() > 0 or isinstance(x, str):  # HERE\n        y = y + 1\n    return y\n",
        {},
        [[1.0, 2.0], [-1.0, -2.0]],
    ),
    (
        "one-hot",
        "def f(x):\n    y = x.long() + 1\n    return torch.nn.functional.one_hot(y)  # HERE\n",
        {"CLASSES": 3},
        [[0.0, 1.0]],
    ),
    (
        "output-shape",
        "def f(x):\n    y = x.long()\n    return torch.bincount(y)  # HERE\n",
        {"CLASSES": 3},
        [[0.0, 2.0, 2.0]],
    ),
]


class Breaks(logging.Handler):
    """Counts the graph breaks that torch writes to its trace log."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None) or {}
        self.count += metadata.get("artifact", {}).get("name") == "dynamo_graph_break_reason"


def run(source: str, names: dict[str, Any], inputs: list[list[float]], path: Path) -> tuple[int, list[Any]]:
    """Compile the function of one source and call it: how many breaks there were, and what it returned."""
    import copy
    import math
    import warnings

    import numpy as np
    import torch
    import torch._dynamo

    torch._dynamo.reset()
    file = path / f"rewritten_{next(NUMBER)}.py"
    file.write_text(source)
    log = logging.getLogger("rewrites")
    scope: dict[str, Any] = {
        "torch": torch,
        "copy": copy,
        "math": math,
        "np": np,
        "warnings": warnings,
        "log": log,
        **names,
    }
    exec(compile(source, str(file), "exec"), scope)
    linecache.checkcache(str(file))
    function = torch.compile(scope["f"], backend="eager")
    trace = logging.getLogger("torch.__trace")
    level, breaks = trace.level, Breaks()
    trace.setLevel(logging.DEBUG)
    trace.addHandler(breaks)
    try:
        results = [function(torch.tensor(values)).tolist() for values in inputs]
    finally:
        trace.removeHandler(breaks)
        trace.setLevel(level)
    return breaks.count, results


@pytest.mark.parametrize(
    ("key", "source", "names", "inputs"), CASES, ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)]
)
def test_before_and_after(
    tmp_path: Path, key: str, source: str, names: dict[str, Any], inputs: list[list[float]], recwarn: Any
) -> None:
    import torch

    file = tmp_path / "before.py"
    file.write_text(source)
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "# HERE" in text)
    statement = statement_at(str(file), line, "")
    assert statement is not None
    changed = rewrite(key, statement)
    assert changed is not None
    node = statement.node
    lines = source.splitlines()
    indent = " " * node.col_offset
    end = node.end_lineno or node.lineno
    if changed.before.count("\n") > statement.text.count("\n"):
        end += 1  # the rewrite took the statement behind it along
    after = [*lines[: node.lineno - 1], textwrap.indent(changed.after, indent), *lines[end:]]
    with torch.no_grad():
        before, expected = run(source, names, inputs, tmp_path)
        left, found = run("\n".join(after) + "\n", names, inputs, tmp_path)
    assert before > 0
    assert left == 0, "\n".join(after)
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(
            torch.tensor(a, dtype=torch.float32), torch.tensor(b, dtype=torch.float32), equal_nan=True
        )


def test_what_cannot_be_rewritten_safely_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("def f(x, n):\n    for _ in range(int(n)):\n        x = x + 1\n    return x\n")
    assert rewrite("scalar", statement_at(str(file), 2, "")) is None
    file = tmp_path / "b.py"
    file.write_text("def f(x, n):\n    y = x[: int(n)]\n    return y\n")
    assert rewrite("scalar", statement_at(str(file), 2, "")) is None
    for line in (
        "name = f'{x.item():.2f}'",
        "y = np.interp(x.item(), a, b)",
        "for _ in tqdm:",
        "rows.append(str(x.item()))",
    ):
        assert rewrite("scalar", statement_at("/nowhere.py", 1, line)) is None
    assert rewrite("branch", None) is None
    assert rewrite("no such advice", statement_at(str(file), 2, "")) is None


def test_a_line_without_its_file_still_gets_a_rewrite() -> None:
    statement = statement_at("/nowhere/train.py", 3, "if y.sum() > 0:")
    changed = rewrite("branch", statement)
    assert changed is not None
    assert "torch.where(y.sum() > 0, value_if_true, value_if_false)" in changed.after
    changed = rewrite("scalar", statement_at("/nowhere/train.py", 3, "m = x.max().item()"))
    assert changed is not None
    assert changed.after == "m = x.max()"


def test_a_file_that_says_something_else_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "moved.py"
    file.write_text("a = 1\nb = 2\n")
    statement = statement_at(str(file), 1, "m = x.item()")
    assert statement is not None
    assert not statement.whole
    assert statement.text == "m = x.item()"


def test_only_plain_python_files_are_opened(tmp_path: Path) -> None:
    import os

    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    assert statement_at(str(pipe), 1, "") is None
    (tmp_path / "secret.txt").write_text("x = 1\n")
    assert statement_at(str(tmp_path / "secret.txt"), 1, "") is None


def test_a_raise_that_is_caught_becomes_no_assertion(tmp_path: Path) -> None:
    file = tmp_path / "caught.py"
    file.write_text(
        "def f(x):\n    try:\n        if x.sum() > 0:\n            raise ValueError\n        y = x + 1\n    except ValueError:\n        y = x\n    return y\n"
    )
    assert rewrite("branch", statement_at(str(file), 3, "")) is None
