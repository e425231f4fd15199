"""The name behind ``f.__closure__[0].cell_contents``: a variable that a function closes over, by the program's text."""

from __future__ import annotations

import ast
import re

from fxscope.diagnosis.statement import source_tree
from fxscope.recording.records import FailedGuard

_CELL = re.compile(r"\.__closure__\[(\d+)\]\.cell_contents$")


def closed_over(guard: FailedGuard) -> str:
    """Name of the closed-over variable that a guard checks; "" for any other guard, or where the text does not tell.

    Python keeps the cells of a function in alphabetical order of the names, so that the number in the guard tells which.
    """
    cell = _CELL.search(guard.source or "")
    tree = source_tree(guard.asked_file or "") if cell is not None else None
    if cell is None or tree is None:
        return ""
    line = guard.asked_line or 0
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    # From the innermost outwards: the last one that is a closure at all.
    for node in sorted(inside, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        outer = [each for each in inside if each is not node and any(part is node for part in ast.walk(each))]
        free = sorted(_loaded(node) & set().union(*(_own(each) for each in outer)) - _own(node)) if outer else []
        if int(cell[1]) < len(free):
            return free[int(cell[1])]
    return ""


def _loaded(function: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(function) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def _own(function: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Arguments and assigned names of a function."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    names = {each.arg for each in every if each is not None}
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    return names | {
        part.id
        for each in body
        for part in ast.walk(each)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
