"""What the program itself catches: errors of a line that lies in a ``try`` whose handlers take them."""

from __future__ import annotations

import ast
import builtins
import json
import re
from importlib.metadata import PackageNotFoundError

from fxscope.diagnosis.statement import source_tree
from fxscope.recording.records import Failure
from fxscope.recording.userline import is_torch_file
from fxscope.source import short_path

_CATCHES = "The program catches that error itself, but not while compiling: there it ends the compiled call."
_CALL_BEFORE = (
    "Put torch.compiler.disable on the function that holds the try, or, where it is a package's, on a function of yours around the call that leads there. "
    "Where its answer is kept (is this package installed?), calling it once before the first compiled call is enough."
)
_ASK_FIRST = (
    "Ask before instead of catching after: a test of sizes or dtypes (if x.numel() % n == 0:) is traced like any other code. "
    "Or put torch.compiler.disable on the function that holds the try."
)
_TRACED = ("TorchRuntimeError", "UserError", "ObservedException")
_GOT = re.compile(r"\bgot (\w*(?:Error|Exception))\(")
_BEGINS = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception|StopIteration))(?::|$)", re.MULTILINE)
# Errors that are no builtins and that programs catch by a base of theirs.
_CLASSES = {
    each.__name__: each
    for each in (*vars(builtins).values(), PackageNotFoundError, json.JSONDecodeError)
    if isinstance(each, type) and issubclass(each, BaseException)
}
_ALL = ("Exception", "BaseException")
# Dynamo's own checks raise these as well; a handler of everything does not tell whose it is.
_OWN_CHECKS = ("AssertionError", "AttributeError", "NotImplementedError", "RecursionError")


def explain_caught(failure: Failure, reason: str) -> tuple[list[str], str, str] | None:
    """Ids, cause and fix of an error that a handler of the program's would take, had the line run; None for any other.

    Args:
        failure: The failure, at a line of the program.
        reason: What its text says, on one line.
    """
    error = error_of(failure)
    taken = [each for each in _handlers(failure.file, failure.line) if _takes(each, error)]
    if not error or not taken:
        return None
    if is_traced(failure):
        # The operation runs on fake tensors: it fails there and then, through the program's own handler.
        return ["exception"], f"The operation fails on these shapes or dtypes ({reason}). {_CATCHES}", _ASK_FIRST
    if is_torch_file(failure.file) or (error in _OWN_CHECKS and not any(_names(each, error) for each in taken)):
        return None
    where = f"{short_path(failure.file)}:{failure.line}"
    return ["exception"], f"{where} raises {failure.type} ({reason}). {_CATCHES}", _CALL_BEFORE


def is_traced(failure: Failure) -> bool:
    """An operation failed on fake tensors, as it would on real ones."""
    return failure.type in _TRACED or "fake tensor" in failure.message


def error_of(failure: Failure) -> str:
    """Name of the exception that the line itself raised, inside of what Dynamo made of it; "" where nobody knows."""
    inside = _GOT.search(failure.message) or _BEGINS.match(failure.message)
    if inside is not None:
        return inside[1]
    if failure.type in _TRACED:
        return "RuntimeError"  # of an operator; another one is named in the text
    return failure.type if failure.type in _CLASSES else ""


def _handlers(file: str, line: int) -> list[ast.ExceptHandler]:
    """Handlers around a line in the same function that go on, innermost first."""
    tree = source_tree(file)
    if tree is None:
        return []
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    around.sort(key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    found: list[ast.ExceptHandler] = []
    for node in around:
        body: list[ast.stmt] = getattr(node, "body", [])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and line >= body[0].lineno:
            found = []  # a try around the definition is not around the call
        elif body and body[0].lineno <= line <= (body[-1].end_lineno or 0):
            # One that raises again is no end of the error.
            found = [
                *(each for each in getattr(node, "handlers", []) if not isinstance(each.body[-1], ast.Raise)),
                *found,
            ]
    return found


def _types(handler: ast.ExceptHandler) -> list[str]:
    """Last names of what a handler takes; ["BaseException"] for a bare one."""
    if handler.type is None:
        return ["BaseException"]
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [ast.unparse(each).rpartition(".")[2] for each in types]


def _names(handler: ast.ExceptHandler, error: str) -> bool:
    """The handler names the error or a base of it, and not just everything."""
    raised = _CLASSES.get(error)
    named = [each for each in _types(handler) if each not in _ALL]
    return error in named or (
        raised is not None and any(each in _CLASSES and issubclass(raised, _CLASSES[each]) for each in named)
    )


def _takes(handler: ast.ExceptHandler, error: str) -> bool:
    return _names(handler, error) or any(each in _ALL for each in _types(handler))
