"""One printed expression, as Python's ``ast`` sees it, turned into a node's op, target and arguments. Nothing is evaluated."""

from __future__ import annotations

import ast
from collections.abc import Container
from typing import NamedTuple

from fxscope.graph.records import Arg, Op, Ref, Symbolic

# How torch.fx prints the functions of `operator` (torch/fx/graph.py: magic_methods, inplace_methods).
BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Div: "truediv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}
COMPARE: dict[type[ast.AST], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.Gt: "gt",
    ast.LtE: "le",
    ast.GtE: "ge",
}
UNARY: dict[type[ast.AST], str] = {ast.UAdd: "pos", ast.USub: "neg", ast.Invert: "invert"}


class Call(NamedTuple):
    """What a node does."""

    op: Op
    target: str
    args: tuple[Arg, ...]
    kwargs: dict[str, Arg]


def _function(name: str, *args: Arg) -> Call:
    return Call("call_function", name, args, {})


class UnknownExpression(Exception):
    """The expression is none that torch.fx prints."""


def dotted(expr: ast.expr) -> str | None:
    """``a.b.c`` (also through ``getattr(a, "0")``) as text; None for anything else."""
    parts: list[str] = []
    while True:
        if isinstance(expr, ast.Attribute):
            parts.append(expr.attr)
            expr = expr.value
        elif (
            isinstance(expr, ast.Call)
            and isinstance(expr.func, ast.Name)
            and expr.func.id == "getattr"
            and len(expr.args) == 2
            and isinstance(expr.args[1], ast.Constant)
            and isinstance(expr.args[1].value, str)
        ):
            parts.append(expr.args[1].value)
            expr = expr.args[0]
        elif isinstance(expr, ast.Name):
            return ".".join([expr.id, *reversed(parts)])
        else:
            return None


def _root(expr: ast.expr) -> str | None:
    text = dotted(expr)
    return text.partition(".")[0] if text else None


def convert(expr: ast.expr, scope: Container[str]) -> Arg:
    """An argument; ``scope`` holds the names of the nodes printed so far."""
    if isinstance(expr, ast.Constant):
        return Symbolic("Ellipsis") if expr.value is ... else expr.value
    if isinstance(expr, ast.Name):
        return Ref(expr.id) if expr.id in scope else Symbolic(expr.id)
    if isinstance(expr, ast.Tuple):
        return tuple(convert(item, scope) for item in expr.elts)
    if isinstance(expr, ast.List):
        return [convert(item, scope) for item in expr.elts]
    if isinstance(expr, ast.Dict) and None not in expr.keys:
        pairs = zip(expr.keys, expr.values, strict=True)
        return {_key(convert(key, scope)): convert(value, scope) for key, value in pairs if key is not None}
    if isinstance(expr, ast.Slice):
        return slice(*(None if end is None else convert(end, scope) for end in (expr.lower, expr.upper, expr.step)))
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
        value = convert(expr.operand, scope)
        if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            return -value
    if isinstance(expr, ast.Call) and not expr.keywords:
        function = dotted(expr.func)
        if function == "slice" and 1 <= len(expr.args) <= 3:
            return slice(*(convert(item, scope) for item in expr.args))
        if function == "torch.Size" and len(expr.args) == 1:
            sizes = convert(expr.args[0], scope)
            return tuple(sizes) if isinstance(sizes, (list, tuple)) else sizes
    names = dict.fromkeys(part.id for part in ast.walk(expr) if isinstance(part, ast.Name) and part.id in scope)
    return Symbolic(ast.unparse(expr), tuple(names))


def _key(value: Arg) -> Arg:
    try:
        hash(value)
    except TypeError:
        return Symbolic(repr(value))
    return value


def _arguments(call: ast.Call, scope: Container[str]) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
    args = tuple(convert(arg, scope) for arg in call.args)
    kwargs: dict[str, Arg] = {}
    for keyword in call.keywords:
        if keyword.arg is not None:
            kwargs[keyword.arg] = convert(keyword.value, scope)
        elif isinstance(keyword.value, ast.Dict):
            # torch.fx prints a keyword that is no identifier as **{"name": value}.
            kwargs.update({str(key): value for key, value in convert(keyword.value, scope).items()})
    return args, kwargs


def _call(expr: ast.Call, scope: Container[str]) -> Call:
    args, kwargs = _arguments(expr, scope)
    target = dotted(expr.func)
    if target is not None:
        root, _, rest = target.partition(".")
        if root == "self" and root not in scope:
            return Call("call_module", rest, args, kwargs) if rest else Call("call_function", target, args, kwargs)
        if root not in scope:
            return Call("call_function", target, args, kwargs)
    if isinstance(expr.func, ast.Attribute):
        return Call("call_method", expr.func.attr, (convert(expr.func.value, scope), *args), kwargs)
    if isinstance(expr.func, ast.Call) and dotted(expr.func) is not None:
        inner = expr.func  # getattr(x, "odd name")(...): a method whose name is no identifier
        name = convert(inner.args[1], scope)
        return Call("call_method", str(name), (convert(inner.args[0], scope), *args), kwargs)
    raise UnknownExpression(ast.unparse(expr.func))


def node_of(expr: ast.expr, scope: Container[str]) -> Call:
    """What the right-hand side of one printed line does.

    Raises:
        UnknownExpression: torch.fx prints no such line.
    """
    if isinstance(expr, ast.Call):
        path = dotted(expr)
        if path is None:
            return _call(expr, scope)
        if path.startswith("self.") and "self" not in scope:
            return Call("get_attr", path[5:], (), {})
        return _function("getattr", *(convert(arg, scope) for arg in expr.args))
    if isinstance(expr, ast.Attribute):
        path = dotted(expr)
        if path is not None and path.startswith("self.") and "self" not in scope:
            return Call("get_attr", path[5:], (), {})
        if _root(expr) in scope or path is None:
            return _function("getattr", convert(expr.value, scope), expr.attr)
    if isinstance(expr, ast.Subscript):
        return _function("operator.getitem", convert(expr.value, scope), convert(expr.slice, scope))
    if isinstance(expr, ast.BinOp) and type(expr.op) in BINARY:
        both = (convert(expr.left, scope), convert(expr.right, scope))
        return _function(f"operator.{BINARY[type(expr.op)]}", *both)
    if isinstance(expr, ast.Compare) and len(expr.ops) == 1 and type(expr.ops[0]) in COMPARE:
        both = (convert(expr.left, scope), convert(expr.comparators[0], scope))
        return _function(f"operator.{COMPARE[type(expr.ops[0])]}", *both)
    if isinstance(expr, ast.UnaryOp) and type(expr.op) in UNARY:
        power = expr.operand
        if isinstance(power, ast.BinOp) and isinstance(power.op, ast.Pow) and isinstance(power.left, ast.Constant):
            # torch.fx prints pow(-2, x) as "-2 ** x", without parentheses.
            base = convert(ast.UnaryOp(expr.op, power.left), scope)
            return _function("operator.pow", base, convert(power.right, scope))
        return _function(f"operator.{UNARY[type(expr.op)]}", convert(expr.operand, scope))
    raise UnknownExpression(ast.unparse(expr))
