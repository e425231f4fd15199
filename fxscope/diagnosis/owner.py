"""What the program's text says of a guarded name: where it is set, and the statement that makes a container grow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fxscope.diagnosis.classes import class_at, class_of
from fxscope.diagnosis.program import statements
from fxscope.diagnosis.statement import source_tree
from fxscope.diagnosis.story import Change, Frame
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


def is_enum(file: str, name: str) -> bool:
    """A file defines the class as an enumeration: its members are constants, like strings."""
    tree = source_tree(file)
    return any(
        isinstance(node, ast.ClassDef)
        and node.name == name
        and any(re.search(r"(Enum|Flag)$", ast.unparse(base)) for base in node.bases)
        for node in (ast.walk(tree) if tree is not None else [])
    )


def own_constant(frame: Frame, change: Change) -> bool:
    """An attribute of ``self`` that only ``__init__`` of its class sets, so that it differs between objects and never changes in one."""
    owner, _, attribute = change.name.rpartition(".")
    tree = source_tree(frame.file) if owner == "self" and attribute else None
    own = class_at(tree, frame.line)
    if tree is None or own is None or any(_is_setattr(node) for node in ast.walk(tree)):
        return False
    init = next((each for each in own.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    in_class, in_init = set(ast.walk(own)), set(ast.walk(init) if init is not None else [])
    sets = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == attribute
        and not isinstance(node.ctx, ast.Load)
        # Another class sets its own attribute of that name.
        and (node in in_class or ast.unparse(node.value) != "self")
    ]
    return bool(sets) and all(node in in_init and ast.unparse(node.value) == "self" for node in sets)


def _is_setattr(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr"


def grown_at(frame: Frame, change: Change) -> SourceLine | None:
    """The statement of the compiled function (or of what it calls) that changes the guarded container; None for none."""
    name = change.name.rpartition(".")[2] if change.name.startswith("self.") else change.name
    names = {change.name, f"self.{name}" if change.name.startswith("self.") else name}
    for file, _, node in _statements_about(frame, change):
        if name and _changes(node, names):
            return SourceLine(file=file, line=node.lineno, code=ast.unparse(node))
    return None


def set_at(frame: Frame, change: Change) -> tuple[SourceLine, str] | None:
    """Where the compiled function itself sets the guarded attribute, and the condition on it that the statement stands under.

    Returns:
        The statement, and the text of the innermost ``if`` around it that names the attribute ("" for none); None where
        the compiled function does not set it.
    """
    attribute = change.name.rpartition(".")[2]
    names = {change.name, f"self.{attribute}" if change.name.startswith("self.") else change.name}
    for file, scope, node in _statements_about(frame, change):
        if not any(ast.unparse(target) in names for target in _targets(node)):
            continue
        asked = [
            ast.unparse(each.test)
            for each in ast.walk(scope)
            if isinstance(each, ast.If)
            and any(part is node for inner in each.body for part in ast.walk(inner))
            and attribute in ast.unparse(each.test)
        ]
        return SourceLine(file=file, line=node.lineno, code=ast.unparse(node)), asked[-1] if asked else ""
    return None


def begun_at(frame: Frame, change: Change) -> tuple[str, str] | None:
    """Statement and value by which some ``__init__`` in the file first sets the guarded attribute of ``self``; None for none, or a choice."""
    attribute = change.name.rpartition(".")[2]
    for file in dict.fromkeys((frame.file, change.guard.asked_file or "")):
        tree = source_tree(file)
        found = {
            (ast.unparse(node), ast.unparse(node.value))
            for scope in (ast.walk(tree) if tree is not None else [])
            if isinstance(scope, ast.FunctionDef) and scope.name == "__init__"
            for node in statements(scope)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if ast.unparse(target) == f"self.{attribute}"
        }
        if len(found) == 1:
            return found.pop()
    return None


def is_left_behind(frame: Frame, change: Change) -> bool:
    """The compiled function, or ``forward`` of the part of ``self`` that it calls, sets the guarded attribute: a call leaves it behind.

    Only what the frame's own file says counts: the class of a part is that of the one call ``self.part = Part(...)``.
    """
    first, *parts, attribute = change.name.split(".") if "." in change.name else ("", "")
    if first != "self":
        return False
    if not parts:
        return set_at(frame, change) is not None
    own = class_of(frame, ".".join([first, *parts]))
    return any(
        ast.unparse(target) == f"self.{attribute}"
        for method in (own[1].body if own is not None else [])
        if isinstance(method, ast.FunctionDef) and method.name == "forward"
        for node in statements(method)
        for target in _targets(node)
    )


def is_kept_by(package_file: str, frame: Frame, change: Change) -> bool:
    """A package's file changes the guarded attribute of ``self`` in a method, and the user's files, all readable, nowhere do."""
    attribute = change.name.rpartition(".")[2]
    package = source_tree(package_file)
    users = [source_tree(file) for file in {frame.file, frame.place[0], *(file for file, _ in frame.places)} if file]
    if package is None or any(tree is None for tree in users):
        return False
    for node in (each for tree in users if tree is not None for each in ast.walk(tree)):
        if _is_setattr(node) or (
            isinstance(node, ast.Attribute) and node.attr == attribute and not isinstance(node.ctx, ast.Load)
        ):
            return False
    return any(
        ast.unparse(target) == f"self.{attribute}"
        for method in ast.walk(package)
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name not in _MAKES
        for node in statements(method)
        for target in _targets(node)
    )


_MAKES = frozenset({"__init__", "__post_init__", "__new__", "__setstate__"})
_SET = (ast.AugAssign, ast.AnnAssign)


def _targets(node: ast.stmt) -> list[ast.expr]:
    """What a statement sets, an item of a tuple each on its own."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, _SET) else []
    return [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]


def _statements_about(frame: Frame, change: Change) -> Iterator[tuple[str, ast.AST, ast.stmt]]:
    """File, function and statement of the function at the frame's own line, and of the one that asked for the guard."""
    for file, line in ((frame.file, frame.line), (change.guard.asked_file or "", change.guard.asked_line or 0)):
        tree = source_tree(file) if line else None
        around = [
            node
            for node in (ast.walk(tree) if tree is not None else [])
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and min([node.lineno, *(each.lineno for each in node.decorator_list)]) <= line <= (node.end_lineno or line)
        ]
        if around:
            # The innermost: what the function around it does is not compiled.
            scope = max(around, key=lambda node: node.lineno)
            yield from ((file, scope, node) for node in statements(scope))


def _changes(node: ast.stmt, names: set[str]) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return node.value.func.attr in _GROWS and ast.unparse(node.value.func.value) in names
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Subscript) and ast.unparse(target.value) in names for target in node.targets)
    if isinstance(node, ast.Delete):
        return any(isinstance(each, ast.Subscript) and ast.unparse(each.value) in names for each in node.targets)
    return isinstance(node, ast.AugAssign) and ast.unparse(node.target) in names
