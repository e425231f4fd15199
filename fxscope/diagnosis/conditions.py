"""Numbers and conditions that Python takes from tensors, as tensor expressions."""

from __future__ import annotations

import ast
import copy
import re
from typing import cast

# Functions on numbers whose torch twin takes a tensor and means the same.
_TWINS = {
    name: name
    for name in [
        "isfinite",
        "isnan",
        "isinf",
        "sqrt",
        "log",
        "log2",
        "log10",
        "log1p",
        "exp",
        "expm1",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
        "atan2",
        "floor",
        "ceil",
        "trunc",
        "pow",
        "erf",
        "erfc",
        "lgamma",
        "hypot",
        "fmod",
        "sign",
        "square",
        "maximum",
        "minimum",
        "mean",
        "sum",
        "std",
        "var",
        "argmax",
        "argmin",
        "clip",
        "where",
        "abs",
        "max",
        "min",
        "amax",
        "amin",
    ]
} | {"fabs": "abs", "absolute": "abs"}
_ON_NUMBERS = re.compile(r"^(math|np|numpy|cmath)\.(\w+)$")
# What makes text or a count of it: a tensor in its place is not the same.
_NEEDS_NUMBER = frozenset({"str", "repr", "format", "hash", "range", "print", "hex", "bin", "chr", "divmod"})


class NoRewrite(Exception):
    """An expression of numbers that cannot be written in tensor terms."""


class DropScalar(ast.NodeTransformer):
    """``x.item()``, ``float(x)`` and ``int(x)`` of a tensor expression become the tensor, and what is called on it its torch twin.

    Args:
        detach: Without its history, as the number was.

    Raises:
        NoRewrite: A function is called on the number that has no twin.
    """

    def __init__(self, *, detach: bool = False) -> None:
        self.detach = detach

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Unwrap one call, or put its twin in its place."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            return self._kept(node.func.value)
        if isinstance(node.func, ast.Name) and node.func.id in ("float", "int", "bool") and len(node.args) == 1:
            return self._kept(node.args[0])
        if any(_dropped(each) for each in (*node.args, *(keyword.value for keyword in node.keywords))):
            return _twin(node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """A text with the number in it."""
        self.generic_visit(node)
        if _dropped(node):
            raise NoRewrite("a text needs the number")
        return node

    def _kept(self, value: ast.expr) -> ast.expr:
        if self.detach and not ast.unparse(value).endswith(".detach()"):
            value = ast.Call(func=ast.Attribute(value=value, attr="detach", ctx=ast.Load()), args=[], keywords=[])
        value.was_number = True  # type: ignore[attr-defined]
        return value


def _dropped(node: ast.AST) -> bool:
    return any(getattr(part, "was_number", False) for part in ast.walk(node))


def _twin(node: ast.Call) -> ast.Call:
    """The call on a tensor: ``math.isfinite(x)`` -> ``torch.isfinite(x)``, ``round(x, 2)`` -> ``torch.round(x, decimals=2)``."""
    name = ast.unparse(node.func)
    if name in _NEEDS_NUMBER or name.endswith(".format"):
        raise NoRewrite(f"{name}() needs the number")
    if name == "round":
        decimals = [ast.keyword(arg="decimals", value=node.args[1])] if len(node.args) == 2 else []
        return _torch("round", [node.args[0]], decimals)
    on_numbers = _ON_NUMBERS.match(name)
    if on_numbers is None:
        return node
    if on_numbers[2] not in _TWINS:
        raise NoRewrite(f"{name} has no twin")
    return _torch(_TWINS[on_numbers[2]], node.args, node.keywords)


def _torch(name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.Call:
    call = ast.Call(
        func=ast.Attribute(value=ast.Name("torch"), attr=name, ctx=ast.Load()), args=args, keywords=keywords
    )
    call.was_number = True  # type: ignore[attr-defined]
    return call


def without_scalar_calls(node: ast.expr) -> ast.expr:
    """An expression whose scalar conversions are dropped.

    Raises:
        NoRewrite: It calls something on the number that has no twin.
    """
    changed = DropScalar().visit(copy.deepcopy(node))
    if isinstance(changed, ast.Call) and not _dropped(changed) and _ON_NUMBERS.match(ast.unparse(changed.func)):
        changed = _twin(changed)  # math.isfinite(loss): the function itself asks for the number
    return cast("ast.expr", ast.fix_missing_locations(changed))


def is_python(test: ast.expr) -> bool:
    """A condition that Python knows while it traces: None or not, a type, a flag of an object, a shape."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_python(test.operand)
    text = ast.unparse(test)
    if isinstance(test, ast.Compare):
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in test.ops):
            return True
        return (
            bool(re.search(r"\.(shape|ndim|dim\(\)|size\(|numel\(\)|dtype|device|type)\b|\.dim\(\)|^len\(", text))
            and ".item()" not in text
        )
    if isinstance(test, ast.Call):
        return bool(
            re.match(
                r"(isinstance|hasattr|callable|len|torch\.is_grad_enabled|torch\.is_tensor|torch\.compiler\.\w+)\(",
                text,
            )
        )
    return isinstance(test, ast.Constant) or bool(
        re.match(
            r"self(\.\w+)*\.(training|\w*(enabled|use|with|do|is|has|return|output|debug|verbose|check)\w*)$", text
        )
    )


def tensor_condition(test: ast.expr) -> str:
    """A condition as a tensor expression: and, or and not become tensor operations.

    Raises:
        NoRewrite: It calls something on a number that has no twin.
    """
    if isinstance(test, ast.BoolOp):
        if any(is_python(value) for value in test.values):
            sign = " & " if isinstance(test.op, ast.And) else " | "
            on_data = sorted(test.values, key=is_python)  # a Python bool may stand on the right of & and |
            return sign.join(f"({ast.unparse(v) if is_python(v) else tensor_condition(v)})" for v in on_data)
        name = "torch.logical_and" if isinstance(test.op, ast.And) else "torch.logical_or"
        text = tensor_condition(test.values[0])
        for value in test.values[1:]:
            text = f"{name}({text}, {tensor_condition(value)})"
        return text
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"torch.logical_not({tensor_condition(test.operand)})"
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return f"{ast.unparse(without_scalar_calls(test.left))} {_operator(test)} {ast.unparse(without_scalar_calls(test.comparators[0]))}"
    return ast.unparse(without_scalar_calls(test))


def _operator(test: ast.Compare) -> str:
    text = ast.unparse(ast.Compare(left=ast.Name("a"), ops=test.ops, comparators=[ast.Name("b")]))
    return text.removeprefix("a ").removesuffix(" b")
