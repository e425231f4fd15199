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

import msgspec

from fxscope.diagnosis.statement import Statement


class Rewrite(msgspec.Struct, frozen=True, kw_only=True):
    """Two pieces of Python that mean the same.

    Attributes:
        before: What stands there.
        after: What to write instead.
        note: What to know about it, "" for nothing.
    """

    before: str
    after: str
    note: str = ""

    def text(self) -> str:
        """For a report."""
        before = "\n".join("    " + line for line in self.before.split("\n"))
        after = "\n".join("    " + line for line in self.after.split("\n"))
        return f"before:\n{before}\nafter:\n{after}" + (f"\n({self.note})" if self.note else "")


Rewriter = Callable[[Statement], "Rewrite | None"]


def rewrite(advice: str, statement: Statement | None) -> Rewrite | None:
    """The rewrite of a statement for one advice key; None where none is safe to offer."""
    if statement is None or advice not in REWRITERS:
        return None
    return REWRITERS[advice](statement)


# --- values that decide -------------------------------------------------------------------------------------------


def tensor_condition(test: ast.expr) -> str:
    """A condition as a tensor expression: and, or and not become tensor operations."""
    if isinstance(test, ast.BoolOp):
        name = "torch.logical_and" if isinstance(test.op, ast.And) else "torch.logical_or"
        text = tensor_condition(test.values[0])
        for value in test.values[1:]:
            text = f"{name}({text}, {tensor_condition(value)})"
        return text
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"torch.logical_not({tensor_condition(test.operand)})"
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return f"{ast.unparse(_without_scalar_calls(test.left))} {_operator(test)} {ast.unparse(_without_scalar_calls(test.comparators[0]))}"
    return ast.unparse(_without_scalar_calls(test))


def _operator(test: ast.Compare) -> str:
    text = ast.unparse(ast.Compare(left=ast.Name("a"), ops=test.ops, comparators=[ast.Name("b")]))
    return text.removeprefix("a ").removesuffix(" b")


def _where(condition: str, yes: ast.expr, no: ast.expr | str) -> str:
    return f"torch.where({condition}, {ast.unparse(yes)}, {no if isinstance(no, str) else ast.unparse(no)})"


def branch(statement: Statement) -> Rewrite | None:
    """``if`` on a tensor: torch.where for assignments and returns, an assertion for raises, torch.cond for the rest."""
    node = statement.node
    if isinstance(node, ast.If):
        return _branch_block(statement, node)
    if isinstance(node, ast.While):
        return _while(statement, node)
    if isinstance(node, ast.Assert):
        return assertion(statement)
    changed = _IfExp().visit(copy.deepcopy(node))
    after = ast.unparse(ast.fix_missing_locations(changed))
    if after != ast.unparse(node):
        return Rewrite(before=statement.text, after=after, note="torch.where computes both values")
    return None


class _IfExp(ast.NodeTransformer):
    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return cast("ast.Expr", ast.parse(_where(tensor_condition(node.test), node.body, node.orelse)).body[0]).value


def _branch_block(statement: Statement, node: ast.If) -> Rewrite | None:
    condition = tensor_condition(node.test)
    if not statement.whole:
        return Rewrite(
            before=statement.text,
            after=f"result = torch.where({condition}, value_if_true, value_if_false)",
            note="both values are computed; torch.cond(condition, f, g, (operands,)) runs only one",
        )
    body, orelse = node.body, node.orelse
    if len(body) == 1 and isinstance(body[0], ast.Raise) and not orelse:
        message = _message(body[0])
        inverted = (
            tensor_condition(node.test.operand)
            if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
            else f"torch.logical_not({condition})"
        )
        return Rewrite(
            before=statement.text,
            after=f"torch._assert_async({inverted}, {message!r})",
            note="the check runs on the device and raises RuntimeError there",
        )
    if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
        other = orelse[0] if len(orelse) == 1 else statement.after if not orelse else None
        if isinstance(other, ast.Return) and other.value is not None:
            before = statement.text if orelse else f"{statement.text}\n{ast.unparse(other)}"
            return Rewrite(
                before=before,
                after=f"return {_where(condition, body[0].value, other.value)}",
                note="torch.where computes both values",
            )
    assigned = _assignments(body)
    if assigned is not None:
        others = _assignments(orelse) if orelse else {}
        if others is not None and (not orelse or set(others) == set(assigned)):
            lines = [f"{name} = {_where(condition, value, others.get(name, name))}" for name, value in assigned.items()]
            if len(lines) > 1:
                lines = [
                    f"choose = {condition}",
                    *(line.replace(f"torch.where({condition}", "torch.where(choose", 1) for line in lines),
                ]
            return Rewrite(before=statement.text, after="\n".join(lines), note="torch.where computes both values")
    return Rewrite(
        before=statement.text,
        after=(
            f"def yes(...): ...  # the body of the if, as a function of its tensors\ndef no(...): ...\n"
            f"result = torch.cond({condition}, yes, no, (...,))"
        ),
        note="both functions take and return the same tensors, and change nothing outside",
    )


def _assignments(block: list[ast.stmt]) -> dict[str, ast.expr] | None:
    """Plain assignments to names, none of which reads a name assigned before it; None for anything else."""
    found: dict[str, ast.expr] = {}
    for node in block:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name, value = (
                node.target.id,
                cast("ast.expr", ast.BinOp(left=ast.Name(node.target.id), op=node.op, right=node.value)),
            )
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        else:
            return None
        if name in found or any(isinstance(part, ast.Name) and part.id in found for part in ast.walk(value)):
            return None
        found[name] = value
    return found or None


def _message(node: ast.Raise) -> str:
    if isinstance(node.exc, ast.Call) and node.exc.args and isinstance(node.exc.args[0], ast.Constant):
        return str(node.exc.args[0].value)
    return "condition failed"


def _while(statement: Statement, node: ast.While) -> Rewrite | None:
    body = _assignments(node.body)
    if not statement.whole or body is None or len(body) != 1 or node.orelse:
        return Rewrite(
            before=statement.text,
            after=f"(x,) = torch._higher_order_ops.while_loop(lambda x: {tensor_condition(node.test)}, lambda x: (body(x),), (x,))",
            note="the body returns its tensors in the same shapes; a fixed number of steps with torch.where works as well",
        )
    ((name, value),) = body.items()
    return Rewrite(
        before=statement.text,
        after=(
            f"({name},) = torch._higher_order_ops.while_loop(lambda {name}: {tensor_condition(node.test)}, "
            f"lambda {name}: ({ast.unparse(value)},), ({name},))"
        ),
    )


def assertion(statement: Statement) -> Rewrite | None:
    """``assert tensor_condition`` -> an assertion that stays in the graph."""
    node = statement.node
    if not isinstance(node, ast.Assert):
        return None
    message = node.msg.value if isinstance(node.msg, ast.Constant) else "assertion failed"
    return Rewrite(before=statement.text, after=f"torch._assert_async({tensor_condition(node.test)}, {str(message)!r})")


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


class _DropScalar(ast.NodeTransformer):
    """``x.item()``, ``float(x)`` and ``int(x)`` of a tensor expression become the tensor."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            return node.func.value
        if isinstance(node.func, ast.Name) and node.func.id in ("float", "int", "bool") and len(node.args) == 1:
            return node.args[0]
        return node


def _without_scalar_calls(node: ast.expr) -> ast.expr:
    return cast("ast.expr", ast.fix_missing_locations(_DropScalar().visit(copy.deepcopy(node))))


def scalar(statement: Statement) -> Rewrite | None:
    """``.item()`` and its like: keep the tensor, or mask where the number was a bound."""
    node = statement.node
    if isinstance(node, (ast.For, ast.While)):
        return None
    if isinstance(node, ast.If):
        return _branch_block(statement, node)
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
    dropped = ast.unparse(_DropScalar().visit(copy.deepcopy(node)))
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
            bound = ast.unparse(_without_scalar_calls(sliced.slice.upper))
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
