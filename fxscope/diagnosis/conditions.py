"""Numbers and conditions that Python takes from tensors, as tensor expressions."""

from __future__ import annotations

import ast
import copy
import re
from typing import cast

# Functions on one number whose torch twin takes a tensor and means the same; pow, fmod and clip take a second number.
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
        "floor",
        "ceil",
        "trunc",
        "pow",
        "erf",
        "erfc",
        "lgamma",
        "fmod",
        "sign",
        "square",
        "clip",
        "abs",
        "amax",
        "amin",
    ]
} | {"fabs": "abs", "absolute": "abs"}
_ON_NUMBERS = re.compile(r"^(math|np|numpy|cmath)\.(\w+)$")
_OF_ARRAYS = re.compile(r"\b(math|np|numpy|cmath)\.\w+\(")
# What a condition may ask of such a function on a tensor itself: math.isfinite(loss).
_ASKS_TENSOR = re.compile(r"^(math|np|numpy)\.(isfinite|isnan|isinf)$")
_SEVERAL = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.Starred)
_SIZE = re.compile(r"\.(shape|ndim|dtype|device|type)\b|\.(dim|numel|nelement|size)\(|\blen\(")
_COUNTS = re.compile(r"\.(argmax|argmin|count_nonzero|long|any|all|numel)\(")
_REDUCED = re.compile(
    r"\.(item|tolist|sum|mean|max|min|amax|amin|any|all|norm|std|var|prod|abs|median|argmax|argmin|count_nonzero)\("
)
# What makes text or a count of it: a tensor in its place is not the same.
_NEEDS_NUMBER = frozenset({"str", "repr", "format", "hash", "range", "print", "hex", "bin", "chr", "divmod"})

_ANSWERS = re.compile(r"\btorch\.(equal|allclose|is_\w+)\(|\.(equal|allclose|is_\w+)\(")
_VALUES = frozenset(
    {
        "sum",
        "mean",
        "max",
        "min",
        "amax",
        "amin",
        "norm",
        "std",
        "var",
        "prod",
        "abs",
        "median",
        "argmax",
        "argmin",
        "count_nonzero",
    }
)


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
            value = node.args[0]
            if _SIZE.search(ast.unparse(value)) and not _dropped(value) and not _REDUCED.search(ast.unparse(value)):
                return node  # int(x.shape[0] * 0.5): of what Python knows
            return self._whole(value) if node.func.id == "int" else self._kept(value)
        if any(_dropped(each) for each in (*node.args, *(keyword.value for keyword in node.keywords))):
            return _twin(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """``"%d" % x.item()``: a text with the number in it."""
        self.generic_visit(node)
        is_text = isinstance(node.left, ast.JoinedStr) or (
            isinstance(node.left, ast.Constant) and isinstance(node.left.value, (str, bytes))
        )
        if is_text and _dropped(node.right):
            raise NoRewrite("a text needs the number")
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """A text with the number in it."""
        self.generic_visit(node)
        if _dropped(node):
            raise NoRewrite("a text needs the number")
        return node

    def _whole(self, value: ast.expr) -> ast.expr:
        """int() also cuts off the fraction: ``x.mean().long()``, but for what counts, and for a bare name, which says nothing."""
        text = ast.unparse(value)
        counts = any(isinstance(part, ast.Compare) for part in ast.walk(value)) or _COUNTS.search(text)
        if counts or _OF_ARRAYS.search(text) or not (_dropped(value) or _REDUCED.search(text)):
            return self._kept(value)
        if isinstance(value, ast.IfExp) or (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
            raise NoRewrite("max(x, 1.0) may be the number")
        whole = ast.Call(func=ast.Attribute(value=value, attr="long", ctx=ast.Load()), args=[], keywords=[])
        whole.was_number = True  # type: ignore[attr-defined]
        return whole

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
        if node.keywords:
            raise NoRewrite("round() with keywords")
        decimals = [ast.keyword(arg="decimals", value=node.args[1])] if len(node.args) == 2 else []
        return _torch("round", [node.args[0]], decimals)
    on_numbers = _ON_NUMBERS.match(name)
    if on_numbers is None:
        return node
    if on_numbers[1] == "cmath" or on_numbers[2] not in _TWINS or not _fits(_TWINS[on_numbers[2]], node):
        raise NoRewrite(f"{name} has no twin")
    return _torch(_TWINS[on_numbers[2]], node.args, node.keywords)


def _fits(name: str, node: ast.Call) -> bool:
    """The arguments suit the twin: one tensor; the base or the exponent of pow; a tensor and numbers for fmod and clip."""
    if node.keywords or not node.args or any(isinstance(each, _SEVERAL) for each in node.args):
        return False
    if name == "pow":
        return len(node.args) == 2
    rest = node.args[1:]
    return len(rest) <= {"fmod": 1, "clip": 2}.get(name, 0) and not any(_dropped(each) for each in rest)


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
    if isinstance(changed, ast.Call) and not _dropped(changed) and _ASKS_TENSOR.match(ast.unparse(changed.func)):
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
        return bool(_SIZE.search(text)) and not _REDUCED.search(text)
    if isinstance(test, ast.Call):
        return bool(
            re.match(
                r"(isinstance|hasattr|callable|len|torch\.is_grad_enabled|torch\.is_tensor|torch\.compiler\.\w+|[\w.]+\.(numel|nelement|dim|size))\(",
                text,
            )
        )
    return isinstance(test, ast.Constant) or bool(
        re.match(
            r"self(\.\w+)*\.(training|\w*(enabled|use|with|do|is|has|return|output|debug|verbose|check)\w*)$", text
        )
    )


def tensor_condition(test: ast.expr) -> str:
    """A condition as a tensor expression: and, or, not and chains of comparisons become tensor operations.

    Raises:
        NoRewrite: It calls something on a number that has no twin, or Python must decide a part of it before the rest may be computed.
    """
    if isinstance(test, ast.BoolOp):
        return _joined(test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"torch.logical_not({tensor_condition(test.operand)})"
    if isinstance(test, (ast.Compare, ast.Call, ast.Constant)) and is_python(test):
        raise NoRewrite("Python knows the answer: there is no tensor to choose by")
    if isinstance(test, ast.Compare):
        return _compared(test)
    if _ANSWERS.search(ast.unparse(test)):
        raise NoRewrite("torch.equal and its like answer with a Python bool")
    changed = without_scalar_calls(test)
    # torch.where wants a bool tensor
    is_value = isinstance(changed, ast.BinOp) and isinstance(changed.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod))
    called = changed.func.attr if isinstance(changed, ast.Call) and isinstance(changed.func, ast.Attribute) else ""
    is_value = is_value or called in _VALUES
    return f"{ast.unparse(changed)} != 0" if is_value else ast.unparse(changed)


def _joined(test: ast.BoolOp) -> str:
    """``and`` and ``or``. Tensor operations compute every part, where Python stops at the first that decides."""
    values = test.values
    moved = sorted(values, key=is_python) != values
    if any(is_python(value) and not _is_harmless(value, moved=moved) for value in values):
        raise NoRewrite("what Python asks first guards what is computed then")
    tensors = [(tensor_condition(value), value) for value in values if not is_python(value)]
    sure = [text for text, value in tensors if _is_tensor(text) or _is_tensor(ast.unparse(value))]
    unsure = [(text, value) for text, value in tensors if text not in sure]
    if not all(isinstance(value, ast.Compare) for _, value in unsure):
        raise NoRewrite("a flag, a list or a Python bool is no operand")
    if unsure or len(tensors) < len(values):
        # n < 3 is a bool, of Python or of torch: & and | take both
        sign = " & " if isinstance(test.op, ast.And) else " | "
        texts = [*sure, *(text for text, _ in unsure), *(ast.unparse(value) for value in values if is_python(value))]
        return sign.join(f"({text})" for text in texts)
    name = "torch.logical_and" if isinstance(test.op, ast.And) else "torch.logical_or"
    joined = sure[0]
    for text in sure[1:]:
        joined = f"{name}({joined}, {text})"
    return joined


def _is_tensor(text: str) -> bool:
    """An operation of tensors stands in it, and none that answers with a Python bool."""
    own = text.replace("torch.logical_not(", "(")
    return not _ANSWERS.search(own) and bool(_REDUCED.search(own) or "torch." in own)


def _is_harmless(part: ast.expr, *, moved: bool) -> bool:
    """A flag, wherever it stands; a question of the type or for None only behind the tensors, where it guards nothing."""
    if isinstance(part, ast.UnaryOp):
        return _is_harmless(part.operand, moved=moved)
    if isinstance(part, ast.Compare):
        return not moved and all(isinstance(op, (ast.Is, ast.IsNot)) for op in part.ops)
    return not isinstance(part, ast.Call) or (
        not moved and ast.unparse(part.func) in ("isinstance", "hasattr", "callable")
    )


def _compared(test: ast.Compare) -> str:
    if any(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in test.ops):
        raise NoRewrite("in and is are decided by Python")
    sides = [test.left, *test.comparators]
    if len(test.ops) > 1:
        pairs: list[ast.expr] = [
            ast.Compare(left=left, ops=[op], comparators=[right])
            for left, op, right in zip(sides, test.ops, sides[1:], strict=False)
        ]
        return tensor_condition(ast.BoolOp(op=ast.And(), values=pairs))
    left, right = (ast.unparse(without_scalar_calls(side)) for side in sides)
    for own, other in ((left, ast.unparse(test.comparators[0])), (right, ast.unparse(test.left))):
        # A bound may be computed from numbers (math.sqrt(self.dim)); a tensor in there would be asked for its number again.
        if _OF_ARRAYS.search(own) and (_REDUCED.search(own) or not _REDUCED.search(other)):
            raise NoRewrite("a function on numbers is left")
    return f"{left} {_operator(test)} {right}"


def _operator(test: ast.Compare) -> str:
    text = ast.unparse(ast.Compare(left=ast.Name("a"), ops=test.ops, comparators=[ast.Name("b")]))
    return text.removeprefix("a ").removesuffix(" b")
