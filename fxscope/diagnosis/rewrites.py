"""Before and after for the line that broke: the hand-written rewrites, in tensor terms.

Each works on the syntax tree of the user's own statement, so that names are the user's. tests/unit/diagnosis/test_rewrites.py
runs every one of them before and after: same result, the break gone.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable
from typing import cast

from fxscope.diagnosis.branching import DropScalar, Rewrite, assertion, branch, branch_block, without_scalar_calls
from fxscope.diagnosis.statement import Statement

Rewriter = Callable[[Statement], "Rewrite | None"]


def rewrite(advice: str, statement: Statement | None) -> Rewrite | None:
    """The rewrite of a statement for one advice key; None where none is safe to offer."""
    if statement is None or advice not in REWRITERS:
        return None
    return REWRITERS[advice](statement)


# --- values that leave ---------------------------------------------------------------------------------------------


_FOR_PEOPLE = re.compile(
    r"^(print|warnings\.warn|(\w+\.)*(log|logger|logging|wandb|writer)\.\w+|\w*(bar|tqdm)\w*\.\w+)$", re.IGNORECASE
)


def is_for_people(statement: Statement) -> bool:
    """The statement only tells people something: print, a logger, a progress bar."""
    node = statement.node
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and bool(_FOR_PEOPLE.search(ast.unparse(node.value.func)))
    )


def scalar(statement: Statement) -> Rewrite | None:
    """``.item()`` and its like: keep the tensor, or mask where the number was a bound."""
    node = statement.node
    if isinstance(node, (ast.For, ast.While)):
        return None
    if isinstance(node, ast.If):
        return branch_block(statement, node)
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _FOR_PEOPLE.search(ast.unparse(node.value.func))
    ):
        return guard_while_compiling(statement)
    masked = _Mask()
    changed = masked.visit(copy.deepcopy(node))
    if masked.done:
        return Rewrite(
            before=statement.text,
            after=ast.unparse(ast.fix_missing_locations(changed)),
            note="zeros take the place of what was cut off; right for sums, and for means after dividing by the bound",
        )
    if any(isinstance(part, ast.Slice) for part in ast.walk(node)):
        return None
    dropped = ast.unparse(DropScalar().visit(copy.deepcopy(node)))
    if dropped != ast.unparse(node):
        return Rewrite(before=statement.text, after=dropped)
    return None


class _Mask(ast.NodeTransformer):
    """``x[:n].sum()`` -> ``(x * (torch.arange(x.shape[0]) < n)).sum()`` for a one-dimensional x."""

    done = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        sliced = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "sum" else None
        if (
            not node.args
            and isinstance(sliced, ast.Subscript)
            and isinstance(sliced.slice, ast.Slice)
            and sliced.slice.upper is not None
            and sliced.slice.lower is None
            and sliced.slice.step is None
        ):
            self.done = True
            x = ast.unparse(sliced.value)
            bound = ast.unparse(without_scalar_calls(sliced.slice.upper))
            text = f"({x} * (torch.arange({x}.shape[0], device={x}.device) < {bound})).sum()"
            return cast("ast.Expr", ast.parse(text).body[0]).value
        self.generic_visit(node)
        return node


# --- shapes that depend on data ------------------------------------------------------------------------------------


def output_shape(statement: Statement) -> Rewrite | None:
    """Boolean masks under a reduction, repeat_interleave, bincount."""
    worker = _FixShape()
    changed = worker.visit(copy.deepcopy(statement.node))
    if not worker.note:
        return None
    return Rewrite(before=statement.text, after=ast.unparse(ast.fix_missing_locations(changed)), note=worker.note)


class _FixShape(ast.NodeTransformer):
    note = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else ""
        if (
            name in ("sum", "mean")
            and isinstance(func, ast.Attribute)
            and not node.args
            and isinstance(func.value, ast.Subscript)
        ):
            mask = func.value.slice
            if isinstance(mask, (ast.Compare, ast.Name, ast.UnaryOp, ast.BinOp)) and not isinstance(mask, ast.Slice):
                x, m = ast.unparse(func.value.value), ast.unparse(mask)
                text = f"torch.where({m}, {x}, 0).sum()" + (f" / ({m}).sum()" if name == "mean" else "")
                self.note = (
                    "every element is computed, the masked ones as 0; the mask must have the shape of the tensor"
                )
                return cast("ast.Expr", ast.parse(text).body[0]).value
        self.generic_visit(node)
        keywords = {keyword.arg for keyword in node.keywords}
        if name == "repeat_interleave" and "output_size" not in keywords:
            node.keywords.append(ast.keyword(arg="output_size", value=ast.Name("TOTAL")))
            self.note = "TOTAL: the length of the result, where it is known before the call (a Python number)"
        elif name == "bincount" and isinstance(func, ast.Attribute):
            return self._bincount(node, func)
        return node

    def _bincount(self, node: ast.Call, func: ast.Attribute) -> ast.AST:
        is_function = isinstance(func.value, ast.Name) and func.value.id == "torch"
        values = node.args[0] if is_function and node.args else func.value
        classes = next((k.value for k in node.keywords if k.arg == "minlength"), None)
        if classes is None:
            return node
        self.note = "right where minlength is the true number of classes"
        text = f"torch.nn.functional.one_hot({ast.unparse(values)}, {ast.unparse(classes)}).sum(0)"
        return cast("ast.Expr", ast.parse(text).body[0]).value


# --- calls that do not belong into a graph ------------------------------------------------------------------------


def guard_while_compiling(statement: Statement) -> Rewrite | None:
    """A statement for people (print, log, warn): not while compiling."""
    if not isinstance(statement.node, ast.Expr):
        return None
    body = "\n".join("    " + line for line in statement.text.split("\n"))
    return Rewrite(before=statement.text, after=f"if not torch.compiler.is_compiling():\n{body}")


def clone(statement: Statement) -> Rewrite | None:
    """``copy.deepcopy(tensor)`` -> ``tensor.clone()``."""
    worker = _Clone()
    changed = worker.visit(copy.deepcopy(statement.node))
    if not worker.done:
        return None
    return Rewrite(
        before=statement.text,
        after=ast.unparse(ast.fix_missing_locations(changed)),
        note="for a tensor; copy configuration objects once, outside of the compiled function",
    )


class _Clone(ast.NodeTransformer):
    done = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) in ("copy.deepcopy", "deepcopy", "copy.copy") and len(node.args) == 1:
            self.done = True
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


def sort_on_device(statement: Statement) -> Rewrite | None:
    """``sorted(x)`` over a tensor -> ``x.sort().values``."""
    worker = _Sort()
    changed = worker.visit(copy.deepcopy(statement.node))
    if not worker.done:
        return None
    return Rewrite(before=statement.text, after=ast.unparse(ast.fix_missing_locations(changed)))


class _Sort(ast.NodeTransformer):
    done = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "torch.stack" and len(node.args) == 1 and self.done:
            return node.args[0]
        if name == "sorted" and len(node.args) == 1:
            self.done = True
            return cast("ast.Expr", ast.parse(f"{ast.unparse(node.args[0])}.sort().values").body[0]).value
        return node


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
    "warnings": guard_while_compiling,
    "deepcopy": clone,
    "explicit-break": remove_line,
    "explicit-skip": remove_line,
    "backward": backward_outside,
    "sort-key": sort_on_device,
}
