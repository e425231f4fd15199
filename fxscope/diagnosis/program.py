"""What the program's own text says, where no log does: hooks after compiling, settings made in another thread, modes."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.diagnosis.statement import source_tree
from fxscope.recording.userline import is_user_file

if TYPE_CHECKING:
    from fxscope.diagnosis.context import Context

_HOOK = re.compile(r"^register_(forward|forward_pre|full_backward|full_backward_pre|backward|module_forward)_hook$")
_COMPILE = frozenset({"torch.compile", "torch._dynamo.optimize"})
_SETTING = re.compile(r"(?:^|\.)_?dynamo\.config\.(\w+)$|^dynamo_config\.(\w+)$")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of the program, with what it is about."""

    file: str
    line: int
    text: str
    value: Any = None


def files_of(context: Context) -> list[str]:
    """Source files of the user's program that can be read: the script, and those that the log names."""
    session = context.recording.session
    found = []
    for word in session.argv[:3]:
        if word.endswith(".py"):
            found.append(word if os.path.isabs(word) else os.path.join(session.cwd or "", word))
            break
    for compile_ in context.recording.compiles[:200]:
        files = (compile_.file, compile_.user_file, *(line.file for line in compile_.stack[-4:]))
        found.extend(file for file in files if is_user_file(file))
    once: dict[str, str] = {}
    for file in found:
        if source_tree(file) is not None:
            once.setdefault(os.path.realpath(file), file)  # a log may name the script as it was given, too
    return list(once.values())


def is_compile_call(node: ast.AST) -> bool:
    """``torch.compile(...)``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in _COMPILE


def statements(scope: ast.AST) -> list[ast.stmt]:
    """Statements of a scope in order, without those of functions and classes inside of it."""
    found: list[ast.stmt] = []
    waiting = list(getattr(scope, "body", []))
    while waiting:
        node = waiting.pop(0)
        found.append(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner: list[ast.stmt] = []
        for field in ("body", "orelse", "finalbody"):
            inner.extend(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            inner.extend(handler.body)
        waiting[:0] = inner
    return found


def scopes(tree: ast.Module) -> list[ast.AST]:
    """The module and every function in it."""
    return [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef))]


def late_hooks(file: str) -> list[Place]:
    """Hooks registered behind a call of what the same scope compiled, and before another call of it."""
    tree = source_tree(file)
    found: list[Place] = []
    for scope in scopes(tree) if tree is not None else []:
        compiled: set[str] = set()
        called = False
        waiting: list[Place] = []
        for node in statements(scope):
            for name in _bound_by_compile(node):
                compiled.add(name)
            heads = own_expressions(node)
            calls = {ast.unparse(part.func) for head in heads for part in ast.walk(head) if isinstance(part, ast.Call)}
            if calls & compiled:
                found.extend(waiting)
                waiting, called = [], True
            for head in heads:
                for part in ast.walk(head):
                    if (
                        called
                        and isinstance(part, ast.Call)
                        and isinstance(part.func, ast.Attribute)
                        and _HOOK.match(part.func.attr)
                    ):
                        waiting.append(Place(file=file, line=part.lineno, text=ast.unparse(part)))
    return found


def _bound_by_compile(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign) and is_compile_call(node.value):
        return [ast.unparse(target) for target in node.targets]
    call = node.value if isinstance(node, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "compile"
        and not is_compile_call(call)
    ):
        return [ast.unparse(call.func.value)]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names = [ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list]
        return [node.name] if any(name in _COMPILE for name in names) else []
    return []


def own_expressions(node: ast.stmt) -> list[ast.AST]:
    """What a statement evaluates itself: the head of a loop or ``with``, not its body; nothing of a definition."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try)):
        return []
    if isinstance(node, (ast.If, ast.While)):
        return [node.test]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.iter]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in node.items]
    return [node]


# Older names of settings, and what they are called now.
_RENAMED = {
    "cache_size_limit": "recompile_limit",
    "accumulated_cache_size_limit": "accumulated_recompile_limit",
}


def dynamo_settings(file: str, *, computed: bool = False) -> list[Place]:
    """``torch._dynamo.config.NAME = constant`` anywhere in a file; ``text`` is the name.

    Args:
        file: The file.
        computed: Also settings whose value the text does not tell; their ``value`` is None.
    """
    tree = source_tree(file)
    found = []
    for node in ast.walk(tree) if tree is not None else []:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            continue
        name = _SETTING.search(ast.unparse(node.targets[0]))
        if name is None:
            continue
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            if not computed:
                continue  # nothing to compare with
            value = None
        text = name[1] or name[2]
        found.append(Place(file=file, line=node.lineno, text=_RENAMED.get(text, text), value=value))
    return found


def static_marks(file: str) -> list[Place]:
    """Calls of ``mark_static`` in a file; ``text`` is the call."""
    tree = source_tree(file)
    return [
        Place(file=file, line=node.lineno, text=ast.unparse(node))
        for node in (ast.walk(tree) if tree is not None else [])
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "mark_static"
    ]


def generator_compiled(file: str) -> Place | None:
    """A generator function that the program hands to torch.compile."""
    tree = source_tree(file)
    if tree is None:
        return None
    generators = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            own = [part for each in statements(node) for head in own_expressions(each) for part in ast.walk(head)]
            if any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in own):
                generators[node.name] = node
                decorators = [
                    ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list
                ]
                if any(name in _COMPILE for name in decorators):
                    return Place(file=file, line=node.lineno, text=node.name)
    modules = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(each is generators.get("forward") for each in node.body)
    }
    for node in ast.walk(tree):
        if not (is_compile_call(node) and isinstance(node, ast.Call) and node.args):
            continue
        compiled = node.args[0]
        if ast.unparse(compiled) in generators:
            return Place(file=file, line=node.lineno, text=ast.unparse(compiled))
        if isinstance(compiled, ast.Call) and ast.unparse(compiled.func) in modules:
            return Place(file=file, line=node.lineno, text=f"{ast.unparse(compiled.func)}.forward")
    return None


def create_graph_call(file: str) -> Place | None:
    """A call with ``create_graph=True``: the gradient of a gradient follows."""
    tree = source_tree(file)
    for node in ast.walk(tree) if tree is not None else []:
        if isinstance(node, ast.Call) and any(
            keyword.arg == "create_graph" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            for keyword in node.keywords
        ):
            return Place(file=file, line=node.lineno, text=ast.unparse(node)[:120])
    return None


def only_backward(file: str) -> Place | None:
    """``backward`` of the one class in a file that derives from autograd.Function; None where there is none or a choice."""
    tree = source_tree(file)
    found = [
        Place(file=file, line=method.lineno, text=f"{node.name}.backward")
        for node in (ast.walk(tree) if tree is not None else [])
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Function") for base in node.bases)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "backward"
    ]
    return found[0] if len(found) == 1 else None
