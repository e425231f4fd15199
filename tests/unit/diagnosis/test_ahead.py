"""Lines for which torch's hint does not help: that it does not is tried here, and so is what is said instead."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fxscope.diagnosis.ahead import Ahead, advice_ahead, ahead
from fxscope.diagnosis.statement import code_at, statement_at

X = [1.0, -2.0, 3.0, 4.0, -1.0, 2.0, 5.0, 6.0]
SETTINGS = {
    "item": "capture_scalar_outputs",
    "shape": "capture_dynamic_output_shape_ops",
}
# Name of the setting, source with the breaking line marked, kind of the trouble behind it, line of that.
CASES = [
    ("item", "n = (x > 0).sum().item()  # HERE\nif n > 3:\n    return x * 2\nreturn x + 1", "branch", 3),
    ("item", "n = int((x > 0).sum())  # HERE\nm = n * 2\nif m > 3:\n    x = x - 1\nreturn x", "branch", 4),
    ("item", "n = (x > 0).sum().item()  # HERE\nfor _ in range(n):\n    x = x + 1\nreturn x", "loop", 3),
    (
        "shape",
        "i = torch.nonzero(x > 0).squeeze(1)  # HERE\nif i.numel() == 0:\n    return x.sum()\nreturn x[i].mean()",
        "branch",
        3,
    ),
    ("shape", "y = x[x > 0]  # HERE\nif len(y) > 2:\n    y = y * 2\nreturn y.sum()", "branch", 3),
    (
        "shape",
        "y = x[x > 0]  # HERE\nout = x.sum()\nfor k in range(y.shape[0]):\n    out = out + y[k]\nreturn out",
        "loop",
        4,
    ),
    ("shape", "i = (x > 0).nonzero()  # HERE\np = 1 if len(i) > 1 else 0\nreturn i * 2 + p", "branch", 3),
]


def graphs_of(source: str, folder: Path) -> tuple[int, list[Any]]:
    import torch

    scope: dict[str, Any] = {"torch": torch}
    file = folder / f"f{abs(hash(source))}.py"
    file.write_text(source)
    exec(compile(source, str(file), "exec"), scope)
    torch._dynamo.reset()
    count = 0

    def backend(gm: Any, inputs: Any) -> Any:
        nonlocal count
        count += 1
        return gm.forward

    function = torch.compile(scope["f"], backend=backend)
    results = [function(torch.tensor(values)).tolist() for values in (X, [-v for v in X])]
    return count, results


@pytest.fixture
def hinted() -> Iterator[None]:
    """Torch's two hints are followed."""
    import torch._dynamo.config as config

    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def program(body: str) -> str:
    return "def f(x):\n" + textwrap.indent(body, "    ") + "\n"


@pytest.mark.parametrize(("setting", "body", "kind", "line"), CASES, ids=range(len(CASES)))
def test_the_hint_moves_the_break_to_the_line_that_is_named(
    tmp_path: Path, hinted: None, setting: str, body: str, kind: str, line: int
) -> None:
    graphs, _ = graphs_of(program(body), tmp_path)
    assert graphs > 1  # torch's hint was followed, and there is still a break
    file = tmp_path / "train.py"
    file.write_text(program(body))
    here = next(number for number, text in enumerate(program(body).splitlines(), 1) if "# HERE" in text)
    statement = statement_at(str(file), here, "")
    assert statement is not None
    found = ahead(str(file), here, statement)
    assert found is not None
    assert (found.kind, found.line) == (kind, line)
    text = advice_ahead(str(file), statement, found, SETTINGS[setting])
    assert f"line {line}, `{program(body).splitlines()[line - 1].strip()}`" in text
    assert "does not help" in text


def advised(body: str, folder: Path) -> tuple[Ahead, str]:
    """What is found behind the first line of a body, and the code that is advised instead of both."""
    file = folder / "train.py"
    file.write_text(program(body))
    statement = statement_at(str(file), 2, "")
    assert statement is not None
    found = ahead(str(file), 2, statement)
    assert found is not None
    text = advice_ahead(str(file), statement, found, "x")
    return found, textwrap.dedent(text.partition("after:\n")[2].partition("\n(")[0])


@pytest.mark.parametrize("case", [0, 1])
def test_what_is_proposed_instead_is_one_graph_with_the_same_result(tmp_path: Path, case: int) -> None:
    """Without any setting."""
    body = CASES[case][1]
    found, after = advised(body, tmp_path)
    before = body.splitlines()
    kept = before[1 : found.line - 2]  # what stands between the two statements
    rest = [] if "return" in after else before[-1:]
    first, *second = after.splitlines()
    graphs, results = graphs_of(program("\n".join([first, *kept, *second, *rest])), tmp_path)
    assert graphs == 1
    assert results == graphs_of(program(body), tmp_path)[1]


def test_carrying_the_mask_is_one_graph_with_the_same_result(tmp_path: Path) -> None:
    """The advice for ``y = x[x > 0]; if y.numel() == 0: ...``, as it is printed."""
    body = "y = x[x > 0]  # HERE\nif y.numel() == 0:\n    return x.sum()\nreturn y.mean()"
    _, after = advised(body, tmp_path)
    graphs, results = graphs_of(program(after + "\nreturn torch.where(keep.any(), mean, x.sum())"), tmp_path)
    assert graphs == 1
    assert results == graphs_of(program(body), tmp_path)[1]


def test_plain_uses_are_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        program("y = x[x > 0]  # HERE\nz = y * 2\nif x.dim() > 1:\n    z = z + 1\nreturn z.mean() / y.numel()")
    )
    assert ahead(str(file), 2, statement_at(str(file), 2, "")) is None
    assert ahead(str(tmp_path / "none.py"), 2, statement_at("none.py", 2, "y = x[x > 0]")) is None


@pytest.mark.parametrize(
    "later",
    [
        "g = lambda: 1 if len(i) > 1 else 0",
        "g = (1 if len(i) > 1 else 0 for i in self.rows)",
        "g = [1 if len(i) > 1 else 0 for i in self.rows]",
        "match k:\n    case 1:\n        g = 1 if k > 2 else (1 if len(i) > 1 else 0)",
    ],
)
def test_a_choice_in_a_scope_of_its_own_is_not_the_statements(tmp_path: Path, later: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(program(f"i = torch.nonzero(x > 0)  # HERE\n{later}\nreturn x"))
    assert ahead(str(file), 2, statement_at(str(file), 2, "")) is None


def test_lines_are_counted_as_python_counts_them(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("\ufeffx = 1\n\x0cdef f(y):\n    s = '\u2028'\n    return y.item()\n", "utf-8")
    assert code_at(str(file), 4) == "return y.item()"
    assert code_at(str(file), 5) == ""
    statement = statement_at(str(file), 4, "return y.item()")
    assert statement is not None
    assert statement.whole
    assert statement.text == "return y.item()"
