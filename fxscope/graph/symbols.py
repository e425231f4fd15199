"""Symbolic sizes: which symbols a graph has, values for them, and the value of an expression such as ``4*s0 + 1``."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fxscope.errors import UsageError
from fxscope.graph.records import Graph, Node, TensorMeta

Number = int | float | bool
_SYMBOL = re.compile(r"\b(?:s|u|zf|zuf)\d+\b")  # sizes and floats, backed and unbacked (torch/utils/_sympy/symbol.py)
# An expression from a stranger's log must not be able to fill the memory.
_MAX_EXPONENT = 64
_MAX_BITS = 4096

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# Functions of torch/utils/_sympy/functions.py and of sympy itself, as they print.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": max,
    "Min": min,
    "Abs": abs,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": lambda x, divisor, modulus: (x // divisor) % modulus,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": float,
    "Identity": lambda x: x,
    "TruncToInt": int,
    "TruncToFloat": lambda x: float(int(x)),
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "RoundToInt": round,
    "floor": math.floor,
    "ceiling": math.ceil,
    "sqrt": math.sqrt,
    "OpaqueUnaryFn_sqrt": math.sqrt,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Where": lambda condition, yes, no: yes if condition else no,
}


def _power(base: Number, exponent: Number) -> Number:
    if abs(exponent) > _MAX_EXPONENT:
        raise UsageError(f"the exponent {exponent} in a size expression is out of range")
    if isinstance(base, int) and base.bit_length() * exponent > _MAX_BITS:
        raise UsageError("a power in a size expression is out of range")
    value: Number = base**exponent
    if isinstance(value, complex):
        raise UsageError(f"{base} to the power of {exponent} is no size")
    return value


def evaluate(expression: str, values: Mapping[str, Number]) -> Number:
    """Value of a printed size expression. Only arithmetic and the functions that torch prints are known.

    Raises:
        UsageError: A symbol has no value, or the expression holds something else; it is named.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        return _value(tree, values)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise UsageError(f"cannot work out the size '{expression[:200]}': {error}") from None


def whole(expression: str, values: Mapping[str, Number]) -> int:
    """``evaluate`` as a size.

    Raises:
        UsageError: As there; or the value is infinite or no number.
    """
    value = evaluate(expression, values)
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise UsageError(f"the size '{expression[:200]}' is {value}") from None


def _value(expr: ast.expr, values: Mapping[str, Number]) -> Number:
    if isinstance(expr, ast.Constant) and isinstance(expr.value, (int, float)):
        return expr.value
    if isinstance(expr, ast.Name):
        if expr.id not in values:
            raise UsageError(f"the symbol {expr.id} has no value; give it one with {expr.id}=NUMBER")
        return values[expr.id]
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, (ast.USub, ast.UAdd, ast.Not)):
        value = _value(expr.operand, values)
        return -value if isinstance(expr.op, ast.USub) else not value if isinstance(expr.op, ast.Not) else value
    if isinstance(expr, ast.BinOp):
        left, right = _value(expr.left, values), _value(expr.right, values)
        if isinstance(expr.op, ast.Pow):
            return _power(left, right)
        if type(expr.op) in _BINARY:
            return _BINARY[type(expr.op)](left, right)
    if isinstance(expr, ast.Compare) and len(expr.ops) == 1 and type(expr.ops[0]) in _COMPARE:
        return _COMPARE[type(expr.ops[0])](_value(expr.left, values), _value(expr.comparators[0], values))
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and not expr.keywords:
        arguments = [_value(argument, values) for argument in expr.args]
        if expr.func.id in ("PowByNatural", "FloatPow", "Pow"):
            return _power(*arguments)
        if expr.func.id in _FUNCTIONS:
            return _FUNCTIONS[expr.func.id](*arguments)
    raise UsageError(f"a size expression holds '{ast.unparse(expr)[:200]}', which is no arithmetic")


def metas(node: Node) -> Iterator[TensorMeta]:
    """The tensors a node stands for, as far as the log describes them."""
    if isinstance(node.meta, TensorMeta):
        yield node.meta
    elif node.meta is not None:
        yield from (meta for meta in node.meta if meta is not None)


def symbols_of(graph: Graph) -> list[str]:
    """Symbols in the inputs' sizes and values, in order of appearance."""
    found: dict[str, None] = {}
    for node in graph.nodes:
        if node.op not in ("placeholder", "get_attr"):
            continue
        texts = [str(size) for meta in metas(node) for size in (*meta.shape, *(meta.stride or ()))]
        for text in [*texts, node.symbol or ""]:
            found.update(dict.fromkeys(_SYMBOL.findall(text)))
    return list(found)


def symbol_values(graph: Graph, given: Mapping[str, int] | None = None) -> dict[str, Number]:
    """A value for every symbol of the inputs: the given one, else a small multiple of 8, different for each.

    Different values keep two sizes that the program distinguishes from being equal by accident.
    """
    values: dict[str, Number] = {}
    for position, symbol in enumerate(symbols_of(graph), 1):
        values[symbol] = 8.0 * position if symbol.startswith("z") else 8 * position
    values.update(given or {})
    return values
