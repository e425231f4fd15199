"""Statements by their text alone: what they become, or that nothing is offered where a rewrite would not run, or not mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.diagnosis.ahead import ahead
from fxscope.diagnosis.rewrites import rewrite
from fxscope.diagnosis.statement import source_tree, statement_at


def after(key: str, line: str) -> str | None:
    changed = rewrite(key, statement_at("/nowhere.py", 1, line))
    return changed.after if changed is not None else None


@pytest.mark.parametrize(
    "line",
    [
        # What Python asks first guards the rest.
        "y = a if mask is not None and mask.any() else b",
        "y = a if mask is None or mask.any() else b",
        "y = a if len(xs) > 0 and xs[0].sum() > 0 else b",
        "y = a if x.numel() == 0 or x.max() > 3 else b",
        "y = a if x.nelement() and x.max() > 3 else b",
        "y = a if x.any() and x.dim() == 2 and x.min() > 0 else b",
        "y = a if not (mask is None or mask.any()) else b",
        "y = a if isinstance(m, Mask) and m.any() else b",
        "y = a if verbose and x.sum() > 0 else b",
        "y = a if not verbose and x.sum() > 0 else b",
        "y = a if self.check(x) and x.sum() > 0 else b",
        "y = a if torch.equal(p, q) else b",
        "y = a if torch.allclose(p, q) and x.any() else b",
        # There is no tensor to choose by.
        "y = a if x.shape[0] > 3 else b",
        "y = a if x.max().item() in seen else b",
        "y = a if x.max() not in seen else b",
        "assert x.dim() == 2, f'{x.sum().item()}'",
        # Functions on numbers that are left would ask the tensor again.
        "y = a if math.sqrt(x.var()) > 3 else b",
        "y = a if v > math.sqrt(n) else b",
    ],
)
def test_a_decision_that_stays_pythons(line: str) -> None:
    assert after("branch", line) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = a if self.training and x.any() else b", "y = torch.where((x.any()) & self.training, a, b)"),
        ("y = a if x.any() or m is None else b", "y = torch.where((x.any()) | (m is None), a, b)"),
        ("y = a if 0 < x.item() < 3 else b", "y = torch.where(torch.logical_and(0 < x, x < 3), a, b)"),
        ("y = a if x.max() > x.shape[0] else b", "y = torch.where(x.max() > x.shape[0], a, b)"),
        (
            "y = a if x.norm() > math.sqrt(self.dim) else b",
            "y = torch.where(x.norm() > math.sqrt(self.dim), a, b)",
        ),
        ("y = a if x.sum() else b", "y = torch.where(x.sum() != 0, a, b)"),
        ("y = a if self.training and x.sum().item() else b", "y = torch.where((x.sum() != 0) & self.training, a, b)"),
        ("y = a if int(x.mean()) > 0 else b", "y = torch.where(x.mean().long() > 0, a, b)"),
        ("y = a if v.item() > math.sqrt(n) else b", "y = torch.where(v > math.sqrt(n), a, b)"),
        ("y = a if n < 3 and x.sum() > 0 else b", "y = torch.where((x.sum() > 0) & (n < 3), a, b)"),
        (
            "y = a if x.max() > 1 or x.min() < 0 else b",
            "y = torch.where(torch.logical_or(x.max() > 1, x.min() < 0), a, b)",
        ),
        ("y = a if math.isfinite(loss) else b", "y = torch.where(torch.isfinite(loss), a, b)"),
    ],
)
def test_a_decision_by_tensors(line: str, expected: str) -> None:
    import ast

    found = after("branch", line)
    assert found is not None
    assert ast.unparse(ast.parse(found)) == ast.unparse(ast.parse(expected))


@pytest.mark.parametrize(
    "line",
    [
        "s = np.std(x.item())",
        "s = np.max(x.item(), axis=0)",
        "s = math.log(x.item(), 2)",
        "s = np.maximum(x.item(), 0)",
        "s = math.atan2(y.item(), 1.0)",
        "s = np.mean([a.item(), b.item()])",
        "s = np.abs([a.item()])",
        "s = math.fmod(2.0, x.item())",
        "s = np.clip(x.item(), 0, y.item())",
        "s = np.clip(x.item(), a_min=0, a_max=1)",
        "s = cmath.sqrt(x.item())",
        "k = int(max(x.item(), 1.0))",
        "s = round(x.item(), ndigits=2)",
        "name = '%d steps' % x.item()",
        "y = torch.zeros(n.item())",
        "y = torch.zeros((n.item(), 3), device=d)",
        "y = x.view(n.item(), -1)",
        "y = x.new_full((int(n),), 2.0)",
    ],
)
def test_a_number_whose_place_no_tensor_takes(line: str) -> None:
    assert after("scalar", line) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("s = math.log(x.item())", "s = torch.log(x)"),
        ("s = math.pow(x.item(), 2)", "s = torch.pow(x, 2)"),
        ("s = math.fmod(x.item(), 2.0)", "s = torch.fmod(x, 2.0)"),
        ("s = np.clip(x.item(), 0, 1)", "s = torch.clip(x, 0, 1)"),
        ("s = round(x.item(), 2)", "s = torch.round(x, decimals=2)"),
        ("k = int(x.mean()) * 2", "k = x.mean().long() * 2"),
        ("k = int(x.mean().item())", "k = x.mean().long()"),
        ("k = int((x > 0).sum())", "k = (x > 0).sum()"),
        ("y = torch.full((3,), x.item())", "y = torch.full((3,), x)"),
        ("y = x.view(int(x.shape[0] * r), -1) * z.item()", "y = x.view(int(x.shape[0] * r), -1) * z"),
    ],
)
def test_a_number_becomes_its_tensor(line: str, expected: str) -> None:
    assert after("scalar", line) == expected


@pytest.mark.parametrize("line", ["y = torch.zeros(n.item())", "y = x.view(n.item(), -1)", "y = torch.eye(int(n))"])
def test_a_size_in_the_line_itself_is_what_the_hint_is_for(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    file = tmp_path_factory.mktemp("size") / "train.py"
    file.write_text(f"def f(x, n):\n    {line}\n    return y\n")
    found = ahead(str(file), 2, statement_at(str(file), 2, ""))
    assert found is not None
    assert (found.kind, found.line) == ("size", 2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = sorted(x)", "y = x.sort().values"),
        ("y = sorted(x, reverse=False)", "y = x.sort().values"),
        ("y = sorted(x, reverse=True)", "y = x.sort(descending=True).values"),
        ("y = torch.stack(sorted(x, key=lambda t: t.item()))", "y = x.sort().values"),
        ("y = sorted(xs, key=len)", None),
        ("y = sorted(x, reverse=flag)", None),
        ("y = sorted([a, b])", None),
        ("y = sorted(xs, key=lambda t: t.norm(), reverse=flag)", None),
    ],
)
def test_the_order_stays(line: str, expected: str | None) -> None:
    assert after("sort-key", line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = x[mask].sum()", "y = torch.where(mask, x, 0).sum()"),
        ("y = x[mask].sum(dim=0)", None),
        ("y = x[mask].mean(dtype=torch.float64)", None),
        ("y = x[-1].sum()", None),
        ("y = x[i + 1].sum()", None),
        ("y = x[m & k].sum()", "y = torch.where(m & k, x, 0).sum()"),
    ],
)
def test_a_masked_reduction_keeps_what_it_was_told(line: str, expected: str | None) -> None:
    assert after("output-shape", line) == expected


def test_a_cut_sum_keeps_what_it_was_told() -> None:
    assert "torch.arange" in (after("scalar", "y = x[:n].sum()") or "")
    assert after("scalar", "y = x[:n.item()].sum(dim=0)") is None


def test_a_long_statement_costs_only_itself(tmp_path: Path) -> None:
    """A chain of 400 elifs and a sum of 400 strings; a function between them is read all the same."""
    import ast

    chain = "if k == 0:\n    y = 0\n" + "".join(f"elif k == {n}:\n    y = {n}\n" for n in range(1, 400))
    text = "s = (\n    'a'\n" + "    + 'b'\n" * 400 + ")\n"
    file = tmp_path / "long.py"
    file.write_text(chain + text + "def f(x):\n    m = x.max().item()\n    return x / m\n")
    lines = file.read_text().splitlines()
    found = statement_at(str(file), lines.index("    m = x.max().item()") + 1, "")
    assert found is not None
    assert found.whole
    tree = source_tree(str(file))
    assert tree is not None
    ast.unparse(tree)  # no deeper than Python's own walkers go
    early, late = (statement_at(str(file), lines.index(f"    y = {n}") + 1, "") for n in (3, 390))
    assert early is not None
    assert late is not None
    assert (early.whole, late.whole, late.text) == (True, False, "y = 390")
