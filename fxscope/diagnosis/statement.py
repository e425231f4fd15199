"""The statement at a logged line: from the source file where it still says the same, else from the logged text alone."""

from __future__ import annotations

import ast
import copy
import linecache
import os
import stat
from functools import lru_cache
from typing import Any

import msgspec

_LARGEST = 2_000_000  # bytes of a source file that is worth parsing for one line
_LONGEST = 200  # characters of a statement of several lines that are shown
_DEEPEST = 150  # levels of a tree: ast's own walkers recurse, and Python stops them at about 330
_UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)


class Statement(msgspec.Struct, kw_only=True):
    """One statement.

    Attributes:
        node: Its tree.
        text: Its source, dedented.
        whole: The body is known (the file was there); else the text is one line and blocks are empty.
        after: The statement that follows in the same block, None where there is none or nobody knows.
        handler: Body of the one ``except`` around it in the same function; [] for several, None for none.
    """

    node: ast.stmt
    text: str
    whole: bool = False
    after: ast.stmt | None = None
    handler: list[ast.stmt] | None = None


@lru_cache(maxsize=64)
def _source(path: str) -> tuple[str, ast.Module | None]:
    """Text and tree of a Python file; ("", None) where it is absent, strange or too large.

    Logs name paths, and a log can be a stranger's: only regular ``.py`` files are opened, and they are only parsed. The cells
    of a notebook and what is typed at a prompt are no files: where this process is theirs, ``linecache`` has the text.
    """
    try:
        cell = linecache.cache.get(path)
        if cell is not None and len(cell) == 4 and not os.path.exists(path):
            text = "".join(cell[2])
            return text, _within_reach(ast.parse(text))
        if not path.endswith(".py"):
            return "", None
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return "", None
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            text = file.read()
        return text, _within_reach(ast.parse(text))
    except (OSError, *_UNPARSED):
        return "", None  # the logged text of the line is used instead


def parsed(code: str) -> ast.Module:
    """The tree of a stranger's code.

    Raises:
        SyntaxError: It is no Python; a ValueError, RecursionError or MemoryError where that takes too much to find out.
        RecursionError: It is nested deeper than ast's own walkers go.
    """
    tree = ast.parse(code)
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise RecursionError(f"nested deeper than {_DEEPEST} levels")


def _within_reach(tree: ast.Module) -> ast.Module:
    """A file's tree in which ``pass`` stands for each statement that reaches too deep: the 160th elif, a sum of 160 strings."""
    level: list[tuple[ast.AST, tuple[list[Any], int]]] = [(each, (tree.body, i)) for i, each in enumerate(tree.body)]
    for _ in range(_DEEPEST):
        if not level:
            return tree
        below: list[tuple[ast.AST, tuple[list[Any], int]]] = []
        for node, place in level:
            for _, value in ast.iter_fields(node):
                if isinstance(value, ast.AST):
                    below.append((value, place))
                elif isinstance(value, list):
                    below.extend(
                        (each, (value, i) if isinstance(each, ast.stmt) else place)
                        for i, each in enumerate(value)
                        if isinstance(each, ast.AST)
                    )
        level = below
    for _, (block, i) in level:
        block[i] = ast.copy_location(ast.Pass(), block[i])
    return tree


def source_text(path: str) -> str:
    """Text of a source file, "" where it cannot be had."""
    return _source(path)[0]


def source_lines(path: str) -> list[str]:
    """Lines of a source file as Python counts them: a form feed, at which ``str.splitlines`` splits too, ends none."""
    text = source_text(path)
    return text.removesuffix("\n").split("\n") if text else []


def source_tree(path: str) -> ast.Module | None:
    """Syntax tree of a source file, None where it cannot be had."""
    return _source(path)[1]


def code_at(path: str, line: int) -> str:
    """One line of a source file, stripped; "" where it cannot be had."""
    lines = source_lines(path)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def statement_at(path: str, line: int, code: str) -> Statement | None:
    """The innermost statement that begins at or spans ``line``.

    Args:
        path: File as logged.
        line: 1-based.
        code: The line as logged; the file is believed only where it has the same text there.
    """
    text, tree = _source(path)
    lines = source_lines(path)
    logged = code.strip()
    if tree is not None and 0 < line <= len(lines) and (not logged or logged in lines[line - 1]):
        found = _innermost(tree, line)
        if found is not None:
            node, after, handler = found
            segment = ast.get_source_segment(text, node) or logged
            if isinstance(node, ast.Pass) and segment != "pass":
                return _parse_line(logged or lines[line - 1])  # too deep to be read whole
            return Statement(
                node=node, text=_dedent(segment, node.col_offset), whole=True, after=after, handler=handler
            )
    return _parse_line(logged)


def whole_code(path: str, line: int, code: str) -> str:
    """The logged line; where it is the first of several, its statement (the head of a block) on one line, "" where nobody knows it."""
    logged = code.strip()
    if all(logged.count(begin) == logged.count(end) for begin, end in ("()", "[]", "{}")):
        return logged
    found = statement_at(path, line, code)
    if found is None or not found.whole:
        return ""
    head = copy.copy(found.node)
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        if getattr(head, block, None):
            setattr(head, block, [])
    text = " ".join(ast.unparse(head).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _innermost(tree: ast.Module, line: int) -> tuple[ast.stmt, ast.stmt | None, list[ast.stmt] | None] | None:
    best: tuple[ast.stmt, ast.stmt | None, list[ast.stmt] | None] | None = None
    blocks: list[tuple[list[ast.stmt], list[ast.stmt] | None]] = [(tree.body, None)]
    while blocks:
        block, caught = blocks.pop()
        for index, node in enumerate(block):
            if not node.lineno <= line <= (node.end_lineno or node.lineno):
                continue
            best = (node, block[index + 1] if index + 1 < len(block) else None, caught)
            inside = None if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else caught
            handlers = getattr(node, "handlers", [])
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(node, field, None)
                if inner and line >= inner[0].lineno:
                    tried = handlers and field == "body"
                    blocks.append((inner, (handlers[0].body if len(handlers) == 1 else []) if tried else inside))
            blocks.extend((handler.body, inside) for handler in handlers)
    return best


def _dedent(text: str, column: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(line[column:] if line[:column].isspace() else line.lstrip() for line in rest)])


def _parse_line(code: str) -> Statement | None:
    bare = code.strip()
    if bare.startswith("elif "):
        bare = bare[2:]
    for candidate in (bare, bare + " pass", bare + "\n    pass"):
        try:
            # A bare `return x` is a syntax error outside of a function only for compile(), not for ast.parse().
            body = parsed(candidate).body
        except _UNPARSED:
            continue
        if body:
            return Statement(node=body[0], text=bare)
    return None
