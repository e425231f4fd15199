"""The loop that a changing size or number unrolls, by the text of the compiled function."""

from __future__ import annotations

import ast

from fxscope.diagnosis.program import statements
from fxscope.diagnosis.statement import code_at, source_tree
from fxscope.diagnosis.story import Change, Frame
from fxscope.source import SourceLine

_KEEPS = frozenset({"int", "min", "max", "abs", "round"})  # functions of numbers that a count may go through


def loop_around(frame: Frame, change: Change, line: SourceLine) -> SourceLine | None:
    """The innermost ``for`` around a line that has as many rounds as the guarded size or number says.

    Args:
        frame: The compiled function. A function that it calls may call other things by the same names, so nothing is said there.
        change: What was guarded.
        line: Where the log says that it was fixed.

    Returns:
        The head of the loop; None where the text does not show that the range follows from what was guarded.
    """
    tree = source_tree(line.file) if line.file == frame.file else None
    if tree is None or code_at(line.file, line.line) != line.code.strip():
        return None
    scope = _function_around(tree, line.line)
    if scope is None or scope is not _function_around(tree, frame.line):
        return None
    counts = _Counts(change.name, change.dim if change.guard.kind == "size" else None)
    found = None
    for node in statements(scope):
        if node.lineno >= line.line:
            break
        around = line.line <= (node.end_lineno or 0)
        if isinstance(node, (ast.For, ast.AsyncFor)) and around and counts.has_range(node.iter):
            found = SourceLine(
                file=line.file, line=node.lineno, function=line.function, code=code_at(line.file, node.lineno)
            )
        counts.follow(node)
    return found


def _function_around(tree: ast.Module, line: int) -> ast.AST | None:
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        and min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) <= line
        and line <= (node.end_lineno or 0)
    ]
    return max(inside, key=lambda node: node.lineno, default=None)


class _Counts:
    """Names of a function that hold the guarded size, or a number that is computed from it, statement by statement."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim
        self.known: set[str] = set()
        self.other: set[str] = set()  # once bound to something else: never sure again
        self.is_guarded = True  # the name still means what the guard is about

    def has_range(self, node: ast.expr) -> bool:
        """``range(...)`` of such a number."""
        return (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "range"
            and any(self._is_count(each) for each in node.args)
        )

    def follow(self, node: ast.stmt) -> None:
        """Take in what a statement binds."""
        if isinstance(node, ast.AugAssign):
            return  # n += 1 leaves n what it was: computed from the size
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, (ast.AnnAssign, ast.For, ast.AsyncFor)) else targets
        if isinstance(node, (ast.With, ast.AsyncWith)):
            targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        counts = {name for target in targets for name in self._counts_of(target, value)}
        bound = {
            ast.unparse(part)
            for target in targets
            for part in ast.walk(target)
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Store)
        }
        self.other |= bound - counts
        self.known = (self.known | counts) - self.other
        self.is_guarded = self.is_guarded and self.name not in bound

    def _counts_of(self, target: ast.expr, value: ast.expr | None) -> list[str]:
        if value is None:
            return []
        if not isinstance(target, (ast.Tuple, ast.List)):
            return [ast.unparse(target)] if self._is_count(value) else []
        whole = ast.unparse(value) in (f"{self.name}.shape", f"{self.name}.size()")
        if not whole or not self.is_guarded or self.dim is None:
            return []
        begin = target.elts[: self.dim + 1]
        stars = any(isinstance(each, ast.Starred) for each in begin)
        return [ast.unparse(begin[-1])] if len(begin) == self.dim + 1 and not stars else []

    def _is_count(self, node: ast.expr) -> bool:
        text = ast.unparse(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return text in self.known or (self.dim is None and self.is_guarded and text == self.name)
        if isinstance(node, ast.BinOp):
            return self._is_count(node.left) or self._is_count(node.right)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _KEEPS:
            return any(self._is_count(each) for each in node.args)
        sizes = [f"{self.name}.shape[{self.dim}]", f"{self.name}.size({self.dim})"]
        sizes += [f"len({self.name})"] if self.dim == 0 else []
        return self.dim is not None and self.is_guarded and text in sizes
