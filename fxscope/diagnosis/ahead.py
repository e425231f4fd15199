"""What comes behind a line that takes a value or a size from data: where torch's hint would only move the break to.

Tried with torch 2.13: with capture_scalar_outputs or capture_dynamic_output_shape_ops the line itself is captured, a branch
or a loop on the number breaks again, or raises GuardOnDataDependentSymNode (``if n`` does).
"""

from __future__ import annotations

import ast
import re
from typing import Literal

import msgspec

from fxscope.diagnosis.branching import Rewrite, branch, without_scalar_calls
from fxscope.diagnosis.program import statements
from fxscope.diagnosis.statement import Statement, source_tree, statement_at

_TO_HOST = re.compile(r"\.(item|tolist)\(\)|\b(int|float|bool)\(")


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """The next statement that a captured number would trip over.

    Attributes:
        kind: It branches or loops on the number.
        name: The user's name of the number, or of the tensor whose size it is.
    """

    kind: Literal["branch", "loop"]
    name: str
    line: int
    code: str


def ahead(file: str, line: int, statement: Statement | None) -> Ahead | None:
    """The trouble behind a statement in the same function; None where nothing is seen, or the source is not there."""
    if statement is None or not statement.whole:
        return None
    names = _bound(statement.node)
    is_number = bool(_TO_HOST.search(statement.text))
    scope = _function_around(source_tree(file), line)
    if scope is None or not names:
        return None
    for node in statements(scope):
        if node.lineno <= line:
            continue
        found = _trouble(node, names, is_number)
        if found is not None:
            kind, name = found
            return Ahead(kind=kind, name=name, line=node.lineno, code=ast.unparse(node).split("\n", 1)[0])
        if any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(_value(node))):
            names |= _bound(node)  # boxes = boxes[keep]: its size comes from data, too
    return None


def advice_ahead(file: str, statement: Statement, found: Ahead, setting: str) -> str:
    """Why the setting does not help here, and what does: the two statements together in tensor terms."""
    does = {
        "branch": "which breaks in its turn or fails with GuardOnDataDependentSymNode",
        "loop": "whose number of rounds stays unknown, so it breaks in its turn",
    }[found.kind]
    text = (
        f"Here torch's hint ({setting}) does not help: it only leads on to line {found.line}, `{found.code}`, {does}."
    )
    changed = _together(file, statement, found)
    if changed is not None:
        return f"{text} Change both:\n{changed.text()}"
    kept = _mask_of(statement)
    if kept is not None:
        tensor, mask = kept
        return (
            f"{text} Keep every element and carry the mask along:\nbefore:\n    {statement.text}\nafter:\n    keep = {mask}\n"
            f"    total = torch.where(keep, {tensor}, 0).sum()  # a sum over what was kept\n    number = keep.sum()  # how many; keep.any() for whether there is one\n"
            f"    mean = total / number.clamp(min=1)\n(what `{found.code}` decides becomes torch.where(keep.any(), a, b))"
        )
    return (
        text
        + " Keep the number a tensor and decide with torch.where, or do this part outside of the compiled function."
    )


def _together(file: str, statement: Statement, found: Ahead) -> Rewrite | None:
    """``n = x.sum().item()`` and the ``if`` on n, both rewritten."""
    node = statement.node
    if found.kind != "branch" or not _TO_HOST.search(statement.text) or not isinstance(node, ast.Assign):
        return None
    later = statement_at(file, found.line, "")
    changed = branch(later) if later is not None and isinstance(later.node, (ast.If, ast.Assert)) else None
    if changed is None or "..." in changed.after:
        return None
    first = f"{ast.unparse(node.targets[0])} = {ast.unparse(without_scalar_calls(node.value))}"
    return Rewrite(before=f"{statement.text}\n{changed.before}", after=f"{first}\n{changed.after}", note=changed.note)


def _mask_of(statement: Statement) -> tuple[str, str] | None:
    """Tensor and mask of ``y = x[mask]`` or ``i = torch.nonzero(mask)``."""
    for node in ast.walk(statement.node):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.nonzero" and node.args:
            return "x", ast.unparse(node.args[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "nonzero":
            return "x", ast.unparse(node.func.value)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Compare, ast.UnaryOp, ast.BinOp, ast.Name)):
            return ast.unparse(node.value), ast.unparse(node.slice)
    return None


def _function_around(tree: ast.Module | None, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    inside = [
        node
        for node in (ast.walk(tree) if tree is not None else [])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(inside, key=lambda node: node.lineno, default=None)


def _bound(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _value(node: ast.stmt) -> ast.AST:
    value = getattr(node, "value", None)
    return value if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(value, ast.AST) else ast.Pass()


def _trouble(node: ast.stmt, names: set[str], is_number: bool) -> tuple[Literal["branch", "loop"], str] | None:
    for name in sorted(names):
        size = rf"\b{name}\.(numel\(\)|nelement\(\)|shape\b|size\()|\blen\({name}\)"
        number = re.compile(rf"{size}|(?<![.\w]){name}\b(?!\s*[.(\[])" if is_number else size)
        if isinstance(node, (ast.If, ast.While, ast.Assert)) and number.search(ast.unparse(node.test)):
            return "branch", name
        if isinstance(node, ast.For) and re.search(rf"\brange\(.*\b{name}\b|^{name}$", ast.unparse(node.iter)):
            return "loop", name
    return None
