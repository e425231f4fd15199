"""Before and after for values that leave the graph and shapes that depend on data."""

from __future__ import annotations

import ast
import copy
import re
from typing import Any, Protocol, cast

from fxscope.diagnosis.ahead import is_sized_by_number
from fxscope.diagnosis.branching import Rewrite, branch_block
from fxscope.diagnosis.conditions import DropScalar, without_scalar_calls
from fxscope.diagnosis.statement import Statement


class Replacing(Protocol):
    """Replaces parts of a statement, and sets ``note`` where it did: what to know about the replacement."""

    note: str

    def visit(self, node: ast.AST) -> Any:
        """The node as it is to be."""


def replaced(statement: Statement, worker: Replacing) -> Rewrite | None:
    """The statement as the worker leaves it; None where it replaced nothing."""
    changed = worker.visit(copy.deepcopy(statement.node))
    if not worker.note:
        return None
    return Rewrite(before=statement.text, after=ast.unparse(ast.fix_missing_locations(changed)), note=worker.note)


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


def guard_while_compiling(statement: Statement) -> Rewrite | None:
    """A statement for people (print, log, warn): not while compiling."""
    if not isinstance(statement.node, ast.Expr):
        return None
    body = "\n".join("    " + line for line in statement.text.split("\n"))
    return Rewrite(before=statement.text, after=f"if not torch.compiler.is_compiling():\n{body}")


def scalar(statement: Statement) -> Rewrite | None:
    """``.item()`` and its like: keep the tensor, or mask where the number was a bound."""
    node = statement.node
    if isinstance(node, (ast.For, ast.While)):
        return None
    if isinstance(node, ast.If):
        return branch_block(statement, node)
    if is_for_people(statement):
        return guard_while_compiling(statement)
    if is_sized_by_number(node):
        return None  # no tensor can stand there
    masked = _Mask()
    changed = masked.visit(copy.deepcopy(node))
    if masked.done:
        return Rewrite(
            before=statement.text,
            after=ast.unparse(ast.fix_missing_locations(changed)),
            note="for a tensor of one dimension; zeros take the place of what was cut off; right for sums, and for means after dividing by the bound",
        )
    if any(isinstance(part, ast.Slice) for part in ast.walk(node)):
        return None
    picked = _PickRow()
    changed = picked.visit(copy.deepcopy(node))
    if picked.done:
        return Rewrite(
            before=statement.text,
            after=ast.unparse(ast.fix_missing_locations(changed)),
            note="for a tensor; where this picks a module of a list, run all of them, stack the results and pick the row",
        )
    keeps = _is_kept(node)
    dropped = ast.unparse(ast.fix_missing_locations(DropScalar(detach=keeps).visit(copy.deepcopy(node))))
    if dropped != ast.unparse(node):
        note = (
            "read the number where the compiled function has returned"
            if keeps
            else "item() also cut the gradient there: add .detach() where that matters"
        )
        return Rewrite(before=statement.text, after=dropped, note=note)
    return None


def indexed_by_tensor(statement: Statement) -> bool:
    """The line converts nothing itself, but takes an element by a name: ``x[i]`` asks a tensor of one element for its number."""
    text = ast.unparse(statement.node)
    if re.search(r"\.(item|tolist)\(|\b(int|float|bool|round|len)\(|\b(np|numpy|math)\.", text):
        return False
    return any(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) for node in ast.walk(statement.node)
    )


def gather(statement: Statement) -> Rewrite | None:
    """``torch.stack([x[i] for i in index])`` -> ``x[index]``; one ``x[i]`` -> its row by index_select."""
    if found := replaced(statement, _Gather()):
        return found
    changed = statement.node
    rows = [node for node in ast.walk(changed) if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name)]
    if len(rows) != 1 or isinstance(rows[0].ctx, ast.Store) or isinstance(changed, (ast.For, ast.While, ast.If)):
        return None
    row = ast.unparse(rows[0])
    after = f"({ast.unparse(rows[0].value)}).index_select(0, {ast.unparse(rows[0].slice)}.reshape(1)).squeeze(0)"
    text = ast.unparse(ast.parse(ast.unparse(changed).replace(row, after)))
    return Rewrite(before=statement.text, after=text, note="for a tensor of one element as the index")


class _Gather(ast.NodeTransformer):
    note = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        rows = node.args[0] if ast.unparse(node.func) == "torch.stack" and len(node.args) == 1 else None
        if not isinstance(rows, (ast.ListComp, ast.GeneratorExp)) or len(rows.generators) != 1 or node.keywords:
            return node
        loop, row = rows.generators[0], rows.elt
        if loop.ifs or not isinstance(row, ast.Subscript) or ast.unparse(row.slice) != ast.unparse(loop.target):
            return node
        self.note = "for a tensor x"
        return ast.Subscript(value=row.value, slice=loop.iter, ctx=ast.Load())


def _is_kept(node: ast.stmt) -> bool:
    """The statement puts the number away: ``history["loss"] = ...``, ``self.last = ...``, ``losses.append(...)``."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return node.value.func.attr in ("append", "add", "update", "setdefault", "insert", "appendleft")
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, (ast.Subscript, ast.Attribute)) for target in targets)


class _PickRow(ast.NodeTransformer):
    """``w[k.item()]`` -> ``w.index_select(0, k.reshape(1)).squeeze(0)``: a tensor as a plain index goes to the host again."""

    done = False

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        index = without_scalar_calls(node.slice)
        if ast.unparse(index) == ast.unparse(node.slice) or isinstance(node.slice, (ast.Slice, ast.Tuple)):
            return node
        self.done = True
        text = f"({ast.unparse(node.value)}).index_select(0, ({ast.unparse(index)}).reshape(1)).squeeze(0)"
        return cast("ast.Expr", ast.parse(text).body[0]).value


class _Mask(ast.NodeTransformer):
    """``x[:n].sum()`` -> ``(x * (torch.arange(x.shape[0]) < n)).sum()`` for a one-dimensional x."""

    done = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        sliced = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "sum" else None
        if (
            not node.args
            and not node.keywords
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
    return replaced(statement, _FixShape())


class _FixShape(ast.NodeTransformer):
    note = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else ""
        if (
            name in ("sum", "mean")
            and isinstance(func, ast.Attribute)
            and not node.args
            and not node.keywords
            and isinstance(func.value, ast.Subscript)
        ):
            mask = func.value.slice
            if _is_mask(mask):
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
        elif name == "bincount" and isinstance(func, ast.Attribute) and not _weighted(node, func):
            return self._bincount(node, func)
        return node

    def _bincount(self, node: ast.Call, func: ast.Attribute) -> ast.AST:
        is_function = isinstance(func.value, ast.Name) and func.value.id == "torch"
        values = node.args[0] if is_function and node.args else func.value
        classes = next((k.value for k in node.keywords if k.arg == "minlength"), None)
        self.note = "right where minlength is the true number of classes"
        if classes is None:
            classes = ast.Name("CLASSES")
            self.note = "CLASSES: how many classes there are (a Python number)"
        text = f"torch.nn.functional.one_hot({ast.unparse(values)}, {ast.unparse(classes)}).sum(0)"
        return cast("ast.Expr", ast.parse(text).body[0]).value


def _is_mask(node: ast.expr) -> bool:
    """What selects by truth: a comparison, a name, ``~m``, ``m & k``; not ``x[-1]`` or ``x[i + 1]``."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
    return isinstance(node, (ast.Compare, ast.Name))


def _weighted(node: ast.Call, func: ast.Attribute) -> bool:
    is_function = ast.unparse(func.value) == "torch"
    return any(keyword.arg == "weights" for keyword in node.keywords) or len(node.args) > (1 if is_function else 0)
