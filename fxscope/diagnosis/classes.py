"""What the program's text says of a class: whether its objects are modules, which have buffers, or plain ones."""

from __future__ import annotations

import ast
import os
import re
from typing import Literal

from fxscope.diagnosis.statement import source_tree
from fxscope.diagnosis.story import Frame

_PLAIN = frozenset({"object", "ABC", "abc.ABC", "NamedTuple"})
_MODULE = re.compile(r"(torch\.)?nn\.(modules\.\w+\.)?(?!\w*(Parameter|Buffer)$)\w+")  # a Parameter is a tensor
_LEVELS = 4  # folders above a file in which a package that it imports from is looked for

Class = tuple[str, ast.ClassDef]  # with the file that it stands in


def kind_of(frame: Frame, owner: str = "self") -> Literal["module", "plain", "unknown"]:
    """What ``self``, or a part of it that ``self.part = Part(...)`` makes, is by the text of its class and of that one's bases.

    Args:
        frame: Its own function is a method of the class of ``self``.
        owner: ``self``, ``self.part``, ...; anything else is unknown.
    """
    own = class_of(frame, owner)
    waiting, seen = [own] if own is not None else [], []
    while waiting:
        each = waiting.pop()
        seen.append(each)
        for base in map(ast.unparse, each[1].bases):
            if base in _PLAIN:
                continue
            written = _imported(source_tree(each[0]), base)
            if _MODULE.fullmatch(written):
                return "module"
            found = _found(each[0], base, written)
            if found is None:
                return "unknown"  # of elsewhere: it may be anything
            if found not in seen:
                waiting.append(found)
    return "plain" if own is not None else "unknown"


def class_of(frame: Frame, owner: str) -> Class | None:
    """The class of ``self`` or of a part of it; only what the frame's own file says counts."""
    first, *parts = owner.split(".")
    tree = source_tree(frame.file)
    own = class_at(tree, frame.line) if first == "self" else None
    for part in parts:
        made = {
            ast.unparse(node.value.func)
            for node in (ast.walk(own) if own is not None else [])
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if ast.unparse(target) == f"self.{part}"
        }
        own = _class_named(tree, made.pop()) if len(made) == 1 else None
    return (frame.file, own) if own is not None else None


def class_at(tree: ast.Module | None, line: int) -> ast.ClassDef | None:
    """The class of the method that begins at a line."""
    return next(
        (
            node
            for node in (ast.walk(tree) if tree is not None else [])
            if isinstance(node, ast.ClassDef) and any(_begins_at(each, line) for each in node.body)
        ),
        None,
    )


def _class_named(tree: ast.Module | None, name: str) -> ast.ClassDef | None:
    """The one class of that name in a file."""
    found = [node for node in (ast.walk(tree) if tree is not None else []) if isinstance(node, ast.ClassDef)]
    named = [node for node in found if node.name == name]
    return named[0] if len(named) == 1 else None


def _begins_at(node: ast.stmt, line: int) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return line in (node.lineno, *(decorator.lineno for decorator in node.decorator_list))


def _imported(tree: ast.Module | None, name: str) -> str:
    """A name with what the file's imports say that its first part is: ``nn.Linear`` -> ``torch.nn.Linear``."""
    first, dot, rest = name.partition(".")
    for node in ast.walk(tree) if tree is not None else []:
        for each in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []:
            if (each.asname or each.name) != first:
                continue
            above = ""
            if isinstance(node, ast.ImportFrom):
                above = "." * node.level + (f"{node.module}." if node.module else "")
            return f"{above}{each.name}{dot}{rest}"
    return name


def _found(file: str, name: str, written: str) -> Class | None:
    """A class of the same file, or of a file beside or above it that this one imports it from."""
    own = _class_named(source_tree(file), name)
    if own is not None:
        return file, own
    module, _, last = written.rpartition(".")
    folder = os.path.dirname(file)
    path = module.lstrip(".")
    levels = len(module) - len(path)
    if not path:
        return None
    for above in range(_LEVELS) if not levels else (levels - 1,):
        place = os.path.normpath(os.path.join(folder, *[os.pardir] * above, *path.split("."))) + ".py"
        found = _class_named(source_tree(place), last) if os.path.isfile(place) else None
        if found is not None:
            return place, found
    return None
