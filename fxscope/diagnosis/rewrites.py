"""Before and after for the line that broke: the hand-written rewrites, in tensor terms.

Each works on the syntax tree of the user's own statement, so that names are the user's. tests/unit/diagnosis/test_rewrites.py
runs every one of them before and after: same result, the break gone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import cast

from fxscope.diagnosis.branching import Rewrite, assertion, branch
from fxscope.diagnosis.conditions import NoRewrite, without_scalar_calls
from fxscope.diagnosis.rewrites_data import guard_while_compiling, output_shape, replaced, scalar
from fxscope.diagnosis.statement import Statement

Rewriter = Callable[[Statement], "Rewrite | None"]


def rewrite(advice: str, statement: Statement | None) -> Rewrite | None:
    """The rewrite of a statement for one advice key; None where none is safe to offer."""
    if statement is None or advice not in REWRITERS:
        return None
    try:
        return REWRITERS[advice](statement)
    except NoRewrite:
        return None


# --- calls that do not belong into a graph ------------------------------------------------------------------------


def clone(statement: Statement) -> Rewrite | None:
    """``copy.deepcopy(tensor)`` -> ``tensor.clone()``."""
    return replaced(statement, _Clone())


class _Clone(ast.NodeTransformer):
    note = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) in ("copy.deepcopy", "deepcopy", "copy.copy") and len(node.args) == 1:
            self.note = "for a tensor; copy configuration objects once, outside of the compiled function"
            return ast.Call(func=ast.Attribute(value=node.args[0], attr="clone", ctx=ast.Load()), args=[], keywords=[])
        return node


def remove_line(statement: Statement) -> Rewrite | None:
    """A statement that only asks for the break."""
    if not isinstance(statement.node, ast.Expr):
        return None
    return Rewrite(before=statement.text, after="# remove the line")


def backward_outside(statement: Statement) -> Rewrite | None:
    """``loss.backward()`` inside -> outside of the compiled function."""
    node = statement.node
    if not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
    ):
        return None
    if node.value.func.attr != "backward":
        return None
    loss = ast.unparse(node.value.func.value)
    return Rewrite(
        before=statement.text, after=f"# in the compiled function:\nreturn {loss}\n# outside:\n{statement.text}"
    )


def plain_iteration(statement: Statement) -> Rewrite | None:
    """``for x in tqdm(xs)`` -> ``for x in xs``."""
    node = statement.node
    if not isinstance(node, (ast.For, ast.AsyncFor)):
        return None
    changed = _NoBar().visit(copy.deepcopy(node.iter))
    if ast.unparse(changed) == ast.unparse(node.iter):
        return None
    head = f"for {ast.unparse(node.target)} in "
    return Rewrite(
        before=f"{head}{ast.unparse(node.iter)}:",
        after=f"{head}{ast.unparse(changed)}:",
        note="the bar goes where the compiled function is called",
    )


class _NoBar(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in ("tqdm", "track", "alive_it", "progressbar") and node.args:
            return node.args[0]
        if name == "trange":
            return ast.Call(func=ast.Name("range"), args=node.args, keywords=[])
        return node


def class_count(statement: Statement) -> Rewrite | None:
    """``one_hot(x)`` -> ``one_hot(x, num_classes=CLASSES)``."""
    return replaced(statement, _ClassCount())


class _ClassCount(ast.NodeTransformer):
    note = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func).endswith("one_hot") and len(node.args) == 1 and not node.keywords:
            self.note = "CLASSES: how many classes there are (a Python number)"
            node.keywords.append(ast.keyword(arg="num_classes", value=ast.Name("CLASSES")))
        return node


def sort_on_device(statement: Statement) -> Rewrite | None:
    """``sorted(x)`` over a tensor -> ``x.sort().values``; over a list by a key -> the rows of its stack in the key's order."""
    node = statement.node
    call = node.value if isinstance(node, (ast.Assign, ast.Return)) else None
    if isinstance(call, ast.Call) and ast.unparse(call.func) == "sorted" and (keyed := _sorted_by(call)):
        head = f"{ast.unparse(node.targets[0])} = " if isinstance(node, ast.Assign) else "return "
        rows, order = keyed
        return Rewrite(
            before=statement.text,
            after=f"rows = torch.stack(list({rows}))\n{head}rows[{order}]",
            note="for a list of tensors of one shape; the result is one tensor, whose rows stand in order",
        )
    return replaced(statement, _Sort())


def _sorted_by(call: ast.Call) -> tuple[str, str] | None:
    """List and order of ``sorted(xs, key=lambda t: t.norm())``; None without a key that is more than the value itself."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    key = named.get("key")
    if not isinstance(key, ast.Lambda) or len(key.args.args) != 1 or not call.args or _is_value(key):
        return None
    value = without_scalar_calls(key.body)
    name = key.args.args[0].arg
    descending = ", descending=True" if _descending(named.get("reverse")) else ""
    return ast.unparse(
        call.args[0]
    ), f"torch.stack([{ast.unparse(value)} for {name} in rows]).argsort(stable=True{descending})"


def _is_value(key: ast.expr) -> bool:
    """``lambda t: t.item()``: in the order of the values themselves."""
    if not isinstance(key, ast.Lambda) or len(key.args.args) != 1:
        return False
    return ast.unparse(without_scalar_calls(key.body)) == key.args.args[0].arg


def _descending(reverse: ast.expr | None) -> bool:
    if reverse is None:
        return False
    if not isinstance(reverse, ast.Constant) or not isinstance(reverse.value, bool):
        raise NoRewrite("the order is known only when it runs")
    return reverse.value


class _Sort(ast.NodeTransformer):
    note = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "torch.stack" and len(node.args) == 1 and self.note:
            return node.args[0]
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        by_itself = "key" not in named or _is_value(named["key"])
        if name == "sorted" and len(node.args) == 1 and by_itself and _may_be_tensor(node.args[0]):
            self.note = "for a tensor of one dimension"
            order = "descending=True" if _descending(named.get("reverse")) else ""
            return cast("ast.Expr", ast.parse(f"{ast.unparse(node.args[0])}.sort({order}).values").body[0]).value
        return node


def _may_be_tensor(node: ast.expr) -> bool:
    return not isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.GeneratorExp))


REWRITERS: dict[str, Rewriter] = {
    "branch": branch,
    "bool-object": branch,
    "assert": assertion,
    "scalar": scalar,
    "tensor-index": scalar,
    "output-shape": output_shape,
    "print": guard_while_compiling,
    "reorder": guard_while_compiling,
    "tensor-repr": guard_while_compiling,
    "logging": guard_while_compiling,
    "logging-root": guard_while_compiling,
    "warnings": guard_while_compiling,
    "deepcopy": clone,
    "explicit-break": remove_line,
    "explicit-skip": remove_line,
    "backward": backward_outside,
    "sort-key": sort_on_device,
    "progress": plain_iteration,
    "one-hot": class_count,
}
