"""What the program's text says of a guarded name: the class it belongs to, and the statement that makes a container grow."""

from __future__ import annotations

import ast

from fxscope.diagnosis.frames import Change, Frame
from fxscope.diagnosis.program import statements
from fxscope.diagnosis.statement import source_tree
from fxscope.source import SourceLine

_GROWS = frozenset(
    (
        "append",
        "appendleft",
        "extend",
        "add",
        "insert",
        "update",
        "setdefault",
        "pop",
        "popitem",
        "popleft",
        "clear",
        "remove",
    )
)


def is_plain_object(frame: Frame) -> bool:
    """``self`` of the frame's function is known to be no ``nn.Module``: its class is in the file, with plain bases only."""
    tree = source_tree(frame.file)
    for node in ast.walk(tree) if tree is not None else []:
        if isinstance(node, ast.ClassDef) and any(_begins_at(each, frame.line) for each in node.body):
            return all(ast.unparse(base) in ("object", "ABC", "abc.ABC", "NamedTuple") for base in node.bases)
    return False


def _begins_at(node: ast.stmt, line: int) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return line in (node.lineno, *(decorator.lineno for decorator in node.decorator_list))


def grown_at(frame: Frame, change: Change) -> SourceLine | None:
    """The statement of the compiled function (or of what it calls) that changes the guarded container; None for none.

    It is looked for around the frame's own line and around the line that asked for the guard.
    """
    places = [(frame.file, frame.line), (change.guard.asked_file or "", change.guard.asked_line or 0)]
    name = change.name.rpartition(".")[2] if change.name.startswith("self.") else change.name
    for file, line in places:
        tree = source_tree(file) if line and name else None
        for scope in ast.walk(tree) if tree is not None else []:
            if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            first = min([scope.lineno, *(each.lineno for each in scope.decorator_list)])
            if not first <= line <= (scope.end_lineno or line):
                continue
            for node in statements(scope):
                if _changes(node, {change.name, f"self.{name}" if change.name.startswith("self.") else name}):
                    return SourceLine(file=file, line=node.lineno, code=ast.unparse(node))
    return None


def _changes(node: ast.stmt, names: set[str]) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return node.value.func.attr in _GROWS and ast.unparse(node.value.func.value) in names
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Subscript) and ast.unparse(target.value) in names for target in node.targets)
    if isinstance(node, ast.Delete):
        return any(isinstance(each, ast.Subscript) and ast.unparse(each.value) in names for each in node.targets)
    return isinstance(node, ast.AugAssign) and ast.unparse(node.target) in names
