"""Before and after for code that decides by a tensor: if, while, assert and conditional expressions."""

from __future__ import annotations

import ast
import copy
import itertools
from typing import cast

import msgspec

from fxscope.diagnosis.conditions import NoRewrite, is_python, tensor_condition
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


def _where(condition: str, yes: ast.expr, no: ast.expr | str) -> str:
    """The choice between two values; tuples element by element, what is equal as it is."""
    if isinstance(no, str):
        no = ast.parse(no, mode="eval").body
    if ast.unparse(yes) == ast.unparse(no):
        return ast.unparse(yes)
    if isinstance(yes, ast.Tuple) and isinstance(no, ast.Tuple) and len(yes.elts) == len(no.elts):
        return f"({', '.join(_where(condition, a, b) for a, b in zip(yes.elts, no.elts, strict=True))})"
    if any(_no_tensor(each) for each in (yes, no)):
        raise NoRewrite("torch.where chooses between tensors and numbers")
    return f"torch.where({condition}, {ast.unparse(yes)}, {ast.unparse(no)})"


def _no_tensor(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, (str, bytes))
    return isinstance(
        node, (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.JoinedStr, ast.Lambda, ast.ListComp, ast.DictComp)
    )


def branch(statement: Statement) -> Rewrite | None:
    """``if`` on a tensor: torch.where for assignments and returns, an assertion for raises, torch.cond for the rest."""
    node = statement.node
    if isinstance(node, ast.If):
        return branch_block(statement, node)
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


def branch_block(statement: Statement, node: ast.If) -> Rewrite | None:
    """An ``if`` statement: an assertion for a raise, torch.where for a return or assignments, torch.cond for the rest."""
    if statement.whole and not node.orelse and (split := _behind_flags(statement, node)) is not None:
        return split
    condition = tensor_condition(node.test)
    if not statement.whole:
        return Rewrite(
            before=statement.text,
            after=f"result = torch.where({condition}, value_if_true, value_if_false)",
            note="both values are computed; torch.cond(condition, f, g, (operands,)) runs only one",
        )
    body, orelse = node.body, node.orelse
    if len(body) == 1 and isinstance(body[0], ast.Raise) and not orelse and statement.handler is not None:
        return _handled(statement, condition)
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
    if (leaves := _leaves_loop(statement, body, condition)) is not None and not orelse:
        return leaves
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


def _behind_flags(statement: Statement, node: ast.If) -> Rewrite | None:
    """``if self.training and x.any():``: what Python knows stays an ``if``, what the tensor says goes into it."""
    test = node.test
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return None
    flags = list(itertools.takewhile(is_python, test.values))
    rest = test.values[len(flags) :]
    if not flags or not rest:
        return None
    on_data = rest[0] if len(rest) == 1 else ast.BoolOp(op=ast.And(), values=rest)
    inner = branch_block(statement, ast.If(test=on_data, body=node.body, orelse=[]))
    if inner is None or inner.after.startswith(("#", "def ")):
        return None
    head = " and ".join(ast.unparse(flag) for flag in flags)
    after = f"if {head}:\n" + "\n".join("    " + line for line in inner.after.split("\n"))
    if inner.after.startswith("return ") and isinstance(statement.after, ast.Return):
        after += f"\n{ast.unparse(statement.after)}"
    return Rewrite(before=inner.before, after=after, note=inner.note)


def leaves_loop(node: ast.stmt) -> bool:
    """``if ...: break``: when the loop ends is decided by data."""
    return isinstance(node, ast.If) and any(isinstance(each, ast.Break) for each in node.body)


def _leaves_loop(statement: Statement, body: list[ast.stmt], condition: str) -> Rewrite | None:
    """``if converged: break`` (or ``continue``): a mask that keeps what the loop carries."""
    if len(body) != 1 or not isinstance(body[0], (ast.Break, ast.Continue)):
        return None
    then = statement.after
    target = then.targets[0] if isinstance(then, ast.Assign) and len(then.targets) == 1 else None
    if not isinstance(then, ast.Assign) or not isinstance(target, ast.Name):
        raise NoRewrite("what the loop carries is not seen behind its exit")
    name, value = target.id, ast.unparse(then.value)
    before = f"{statement.text}\n{name} = {value}"
    if isinstance(body[0], ast.Continue):
        after = f"skip = {condition}\n{name} = torch.where(skip, {name}, {value})"
        return Rewrite(
            before=before, after=after, note="every assignment behind it keeps the old value where skip holds"
        )
    return Rewrite(
        before=before,
        after=(
            f"# before the loop:\ndone = torch.zeros((), dtype=torch.bool, device={name}.device)\n# in its place:\n"
            f"done = done | ({condition})\n{name} = torch.where(done, {name}, {value})"
        ),
        note="every round is computed; every name that the loop carries keeps its value once done holds",
    )


def _handled(statement: Statement, condition: str) -> Rewrite | None:
    """A raise that the same function catches is a branch: both ways are computed where each is one return."""
    then = statement.after
    caught = statement.handler or []
    if len(caught) != 1 or not isinstance(caught[0], ast.Return) or not isinstance(then, ast.Return):
        return None
    if caught[0].value is None or then.value is None:
        return None
    return Rewrite(
        before=f"{statement.text}\n{ast.unparse(then)}",
        after=f"return {_where(condition, caught[0].value, then.value)}",
        note="torch.where computes both values, so neither may raise; the try around it is no longer needed",
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
    carried = _carried(node) if statement.whole and not node.orelse else None
    if carried is not None and (body is None or len(body) != 1 or len(carried) > 1):
        names = ", ".join(carried)
        lines = "\n".join("    " + line for each in node.body for line in ast.unparse(_out_of_place(each)).split("\n"))
        return Rewrite(
            before=statement.text,
            after=(
                f"def go_on({names}):\n    return {tensor_condition(node.test)}\ndef step({names}):\n{lines}\n    return {names}\n"
                f"{names} = torch._higher_order_ops.while_loop(go_on, step, ({', '.join(f'torch.as_tensor({name})' for name in carried)},))"
            ),
            note="what the loop carries are tensors that keep shape and dtype, plain numbers too; nothing is changed in place",
        )
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


def _carried(node: ast.While) -> list[str] | None:
    """Names that one round hands to the next, sorted; None where the body does more than assign to names."""
    written: list[str] = []
    live: set[str] = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
    for each in node.body:
        target = each.targets[0] if isinstance(each, ast.Assign) and len(each.targets) == 1 else None
        target = each.target if isinstance(each, ast.AugAssign) else target
        if not isinstance(target, ast.Name) or not isinstance(each, (ast.Assign, ast.AugAssign)):
            return None
        read = {part.id for part in ast.walk(each.value) if isinstance(part, ast.Name)}
        live |= (read | ({target.id} if isinstance(each, ast.AugAssign) else set())) - set(written)
        written.append(target.id)
    return sorted(set(written) & live) or None


def _out_of_place(node: ast.stmt) -> ast.stmt:
    """``n += 1`` -> ``n = n + 1``: a loop operator may not change its operands."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        value = ast.BinOp(left=ast.Name(node.target.id), op=node.op, right=node.value)
        return ast.fix_missing_locations(
            ast.copy_location(ast.Assign(targets=[ast.Name(node.target.id)], value=value), node)
        )
    return node


def assertion(statement: Statement) -> Rewrite | None:
    """``assert tensor_condition`` -> an assertion that stays in the graph."""
    node = statement.node
    if not isinstance(node, ast.Assert):
        return None
    message = node.msg.value if isinstance(node.msg, ast.Constant) else "assertion failed"
    return Rewrite(before=statement.text, after=f"torch._assert_async({tensor_condition(node.test)}, {str(message)!r})")
