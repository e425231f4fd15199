"""What comes behind a line that takes a value or a size from data: where torch's hint would only move the break to.

Tried with torch 2.13: with capture_scalar_outputs or capture_dynamic_output_shape_ops the line itself is captured, a branch
or a loop on the number breaks again, or raises GuardOnDataDependentSymNode (``if n`` does). As a bound, a size or an index of a
tensor the captured number works, where the tensor in its place (without ``.item()``) breaks or loses the frame.
"""

from __future__ import annotations

import ast
import re
from typing import Literal

import msgspec

from fxscope.diagnosis.branching import Rewrite, branch
from fxscope.diagnosis.conditions import NoRewrite, without_scalar_calls
from fxscope.diagnosis.program import statements
from fxscope.diagnosis.statement import Statement, source_tree, statement_at

Kind = Literal["here", "branch", "loop", "size", "number", "module"]
_SHAPED_BY_DATA = re.compile(r"\b(nonzero|unique|unique_consecutive|masked_select|argwhere)\(")
_NUMBERS = re.compile(
    r"(^|\.)(\w*dropout\w*|leaky_relu|elu|celu|hardtanh|threshold|layer_norm|group_norm|interpolate|pad|one_hot|topk|roll|rot90)$"
)
_TENSORS_TOO = frozenset({"min", "max", "other", "input", "weight", "mask", "exponent", "target", "src"})
_SHAPES = re.compile(
    r"(^|\.)(new_)?(zeros|ones|empty|full|rand|randn|randint|arange|eye|expand|view|reshape|narrow|repeat|tile|pad|unflatten|select|topk|roll)$"
)
_TO_HOST = re.compile(r"\.(item|tolist)\(\)|\b(int|float|bool)\(")


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """The next statement that a captured number would trip over.

    Attributes:
        kind: It branches or loops on the number (``here``: the line itself does), takes it for a size, a bound or an index, gives
            it to a function that takes numbers only, or picks a module of a list by it.
        name: The user's name of the number, or of the tensor whose size it is.
    """

    kind: Kind
    name: str
    line: int
    code: str


def ahead(file: str, line: int, statement: Statement | None) -> Ahead | None:
    """The trouble behind a statement in the same function; None where nothing is seen, or the source is not there."""
    if statement is None or not statement.whole:
        return None
    scope = function_around(source_tree(file), line)
    if (own := _own(source_tree(file), statement, scope, line)) is not None:
        return own
    names = _bound(statement.node)
    is_number = bool(_TO_HOST.search(statement.text))
    if scope is None or not names:
        return None
    as_size: Ahead | None = None
    for node in statements(scope):
        if node.lineno <= line:
            continue
        found = _trouble(node, names, is_number)
        if found is not None:
            kind, name = found
            return Ahead(kind=kind, name=name, line=node.lineno, code=ast.unparse(node).split("\n", 1)[0])
        if is_number and as_size is None:
            as_size = _size(source_tree(file), node, names)
        if any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(_value(node))):
            names |= _bound(node)  # boxes = boxes[keep]: its size comes from data, too
    return as_size


def _own(tree: ast.Module | None, statement: Statement, scope: ast.AST | None, line: int) -> Ahead | None:
    """The statement itself decides by the number or picks a module by it, or stands in a loop that ends by data."""
    node = statement.node
    first = statement.text.split("\n", 1)[0]
    if isinstance(node, (ast.If, ast.While)) and _TO_HOST.search(ast.unparse(node.test)):
        return Ahead(kind="here", name="", line=line, code=first)
    if isinstance(node, (ast.For, ast.AsyncFor)) and _TO_HOST.search(ast.unparse(node.iter)):
        return Ahead(kind="here", name="", line=line, code=first)
    if isinstance(node, (ast.For, ast.AsyncFor)) and _SHAPED_BY_DATA.search(ast.unparse(node.iter)):
        return Ahead(kind="here", name="", line=line, code=first)
    if isinstance(node, ast.Return) and re.fullmatch(
        r"__(len|int|float|bool|index|hash)__", getattr(scope, "name", "")
    ):
        return Ahead(kind="size", name="", line=line, code=first)
    if is_sized_by_number(node):
        return Ahead(kind="size", name="", line=line, code=first)
    if _wants_number(node):
        return Ahead(kind="number", name="", line=line, code=first)
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and _TO_HOST.search(ast.unparse(part.slice)):
            owner = ast.unparse(part.value)
            if is_module_list(tree, owner):
                return Ahead(kind="module", name=owner, line=line, code=first)
    for loop in ast.walk(scope) if scope is not None else []:
        if isinstance(loop, ast.While) and loop.lineno < line <= (loop.end_lineno or line):
            for name in _carried_sizes(loop):
                return Ahead(kind="loop", name=name, line=loop.lineno, code=f"while {ast.unparse(loop.test)}:")
    return None


def _wants_number(node: ast.stmt) -> bool:
    """The number is an argument of torch's that takes no tensor (``p=float(self.p)``)."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not re.match(r"(torch|F|nn)\.", ast.unparse(call.func)):
            continue
        takes_numbers = _NUMBERS.search(ast.unparse(call.func)) is not None
        named = [keyword.value for keyword in call.keywords if keyword.arg not in _TENSORS_TOO]
        for each in [*named, *(call.args if takes_numbers else [])]:
            if isinstance(each, ast.Call) and _TO_HOST.search(ast.unparse(each)) and _host_call(each):
                return True
    return False


def is_sized_by_number(node: ast.stmt) -> bool:
    """The statement itself makes a size of the number it takes to the host: ``torch.zeros(n.item())``, ``x.view(int(n), -1)``."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        if not _SHAPES.search(name) or _NUMBERS.search(name):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "fill_value")]
        for each in given[:1] if name.endswith("full") else given:
            if any(isinstance(part, ast.Call) and _host_call(part) and not _of_shape(part) for part in ast.walk(each)):
                return True
    return False


def _of_shape(node: ast.Call) -> bool:
    """``int(x.shape[0] * 0.5)``: of sizes that Python knows."""
    text = ast.unparse(node)
    return ".item()" not in text and re.search(r"\.shape\b|\.(size|numel|nelement|dim)\(|\blen\(", text) is not None


def _host_call(node: ast.Call) -> bool:
    return ast.unparse(node.func) in ("int", "float", "bool") or (
        isinstance(node.func, ast.Attribute) and node.func.attr == "item"
    )


def _size(tree: ast.Module | None, node: ast.stmt, names: set[str]) -> Ahead | None:
    """A statement that takes the number for an index, a bound or a size."""
    code = ast.unparse(node).split("\n", 1)[0]
    for part in ast.walk(node) if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []:
        used: list[ast.AST] = []
        if isinstance(part, ast.Subscript):
            used = [part.slice]
        elif isinstance(part, ast.Call) and _SHAPES.search(ast.unparse(part.func)):
            used = [*part.args, *(keyword.value for keyword in part.keywords)]
        for each in used:
            if any(isinstance(name, ast.Name) and name.id in names for name in ast.walk(each)):
                owner = ast.unparse(part.value) if isinstance(part, ast.Subscript) else ""
                if owner and is_module_list(tree, owner):
                    return Ahead(kind="module", name=owner, line=node.lineno, code=code)
                return Ahead(kind="size", name=owner, line=node.lineno, code=code)
    return None


def is_module_list(tree: ast.Module | None, owner: str) -> bool:
    """``self.experts`` is made by nn.ModuleList or nn.Sequential somewhere in the file."""
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and re.search(r"(^|\.)(ModuleList|Sequential|ModuleDict)$", ast.unparse(node.value.func))
        and ast.unparse(node.targets[0]) == owner
        for node in (ast.walk(tree) if tree is not None else [])
    )


def _carried_sizes(loop: ast.While) -> list[str]:
    """Tensors whose size the test of a loop asks for, and which its body cuts by a mask or an index."""
    test = ast.unparse(loop.test)
    return [
        name
        for node in statements(loop)
        if isinstance(node, ast.Assign)
        for name in sorted(_bound(node))
        if re.search(rf"\b{name}\.(numel\(\)|nelement\(\)|shape\b|size\()|\blen\({name}\)", test)
    ]


def advice_ahead(file: str, statement: Statement, found: Ahead, setting: str) -> str:
    """Why the setting does not help here, and what does: the two statements together in tensor terms."""
    if found.kind == "size":
        return (
            f"The number is a size, a bound or an index in line {found.line}, `{found.code}`, where a tensor cannot stand in for it: dropping the conversion only moves the "
            f"break. Torch's hint helps here: torch._dynamo.config.{setting} = True captures the number as a symbol. Without it keep the full length and mask "
            "(x * (torch.arange(x.shape[0], device=x.device) < bound)), or take one row by x.index_select(0, i.reshape(1)).squeeze(0)."
        )
    if found.kind == "number":
        return (
            f"The function wants a Python number there, and a tensor in its place is asked for its number again. Torch's hint ({setting}) only leads on into the function, "
            "where what checks the number (dropout: 0 <= p <= 1) breaks in its turn. Keep it a Python number from the start (an attribute of the module instead of a buffer), or write "
            "the operation out in tensor terms: x * (torch.rand_like(x) > p) / (1 - p)."
        )
    if found.kind == "module":
        return (
            f"The number picks a module in line {found.line}, `{found.code}`. Torch's hint ({setting}) does not help: which module runs must be known while compiling. "
            f"Run all of them and choose on the device:\nbefore:\n    y = {found.name}[i](x)\nafter:\n    every = torch.stack([each(x) for each in {found.name}])\n"
            "    y = every.index_select(0, i.reshape(1)).squeeze(0)  # i stays a tensor\n(all modules are computed; for many, choose outside of the compiled function and compile each)"
        )
    if found.kind == "here" and found.code.startswith("for "):
        return (
            f"Torch's hint ({setting}) does not help here, it loses the whole function: the number of rounds is only known from data. Do what the body does for all rounds at once: "
            "index with the whole tensor (x[index], index_add, scatter, torch.where with the mask)."
        )
    if found.kind == "here":
        return f"Torch's hint ({setting}) does not help here: Python still decides by the number, which breaks in its turn or fails with GuardOnDataDependentSymNode."
    does = {
        "branch": "which breaks in its turn or fails with GuardOnDataDependentSymNode",
        "loop": "whose number of rounds stays unknown, so it breaks in its turn",
    }[found.kind]
    text = (
        f"Here torch's hint ({setting}) does not help: it only leads on to line {found.line}, `{found.code}`, {does}."
    )
    if found.code.startswith("while "):
        return (
            f"{text} A loop over a tensor that gets shorter is decided by data in every round. Keep the tensor whole and a mask of what is left, for a number of "
            "rounds that is known (torch.where instead of cutting); or make the whole loop one operator: torch.library.custom_op with a fake kernel (as torchvision.ops.nms "
            "is), or call it outside of the compiled function."
        )
    changed = _together(file, statement, found)
    if changed is not None:
        return f"{text} Change both:\n{changed.text()}"
    kept = _mask_of(statement)
    if kept is not None:
        tensor, mask = kept
        return (
            f"{text} Keep every element and carry the mask along:\nbefore:\n    {statement.text}\nafter:\n    keep = {mask}\n"
            f"    total = torch.where(keep, {tensor}, 0).sum()  # a sum over what was kept\n    number = keep.sum()  # how many; keep.any() for whether there is one\n"
            f"    mean = total / number.clamp(min=1)\n(what `{found.code}` decides becomes torch.where(keep.any(), a, b))"
        )
    return (
        text
        + " Keep the number a tensor and decide with torch.where, or do this part outside of the compiled function."
    )


def _together(file: str, statement: Statement, found: Ahead) -> Rewrite | None:
    """``n = x.sum().item()`` and the ``if`` on n, both rewritten."""
    node = statement.node
    if found.kind != "branch" or not _TO_HOST.search(statement.text) or not isinstance(node, ast.Assign):
        return None
    later = statement_at(file, found.line, "")
    try:
        changed = branch(later) if later is not None and isinstance(later.node, (ast.If, ast.Assert)) else None
        value = without_scalar_calls(node.value)
    except NoRewrite:
        return None
    if changed is None or "..." in changed.after:
        return None
    first = f"{ast.unparse(node.targets[0])} = {ast.unparse(value)}"
    return Rewrite(before=f"{statement.text}\n{changed.before}", after=f"{first}\n{changed.after}", note=changed.note)


def _mask_of(statement: Statement) -> tuple[str, str] | None:
    """Tensor and mask of ``y = x[mask]`` or ``i = torch.nonzero(mask)``."""
    for node in ast.walk(statement.node):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.nonzero" and node.args:
            return "x", ast.unparse(node.args[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "nonzero":
            return "x", ast.unparse(node.func.value)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Compare, ast.UnaryOp, ast.BinOp, ast.Name)):
            return ast.unparse(node.value), ast.unparse(node.slice)
    return None


def function_around(tree: ast.Module | None, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The innermost function that holds a line."""
    inside = [
        node
        for node in (ast.walk(tree) if tree is not None else [])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(inside, key=lambda node: node.lineno, default=None)


def function_named(tree: ast.Module | None, name: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The innermost function of a name that holds a line; Python counts the line of its first decorator as its first."""
    inside = [
        node
        for node in (ast.walk(tree) if tree is not None else [])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name == name
        and min([node.lineno, *(each.lineno for each in node.decorator_list)]) <= line <= (node.end_lineno or 0)
    ]
    return max(inside, key=lambda node: node.lineno, default=None)


def _bound(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _value(node: ast.stmt) -> ast.AST:
    value = getattr(node, "value", None)
    return value if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(value, ast.AST) else ast.Pass()


def _trouble(node: ast.stmt, names: set[str], is_number: bool) -> tuple[Kind, str] | None:
    for name in sorted(names):
        size = rf"\b{name}\.(numel\(\)|nelement\(\)|shape\b|size\()|\blen\({name}\)"
        number = re.compile(rf"{size}|(?<![.\w]){name}\b(?!\s*[.(\[])" if is_number else size)
        if isinstance(node, (ast.If, ast.While, ast.Assert)) and number.search(ast.unparse(node.test)):
            return "branch", name
        if any(number.search(ast.unparse(part.test)) for part in _choices(node)):
            return "branch", name
        if isinstance(node, ast.For) and re.search(rf"\brange\(.*\b{name}\b|^{name}$", ast.unparse(node.iter)):
            return "loop", name
    return None


def _choices(node: ast.stmt) -> list[ast.IfExp]:
    """``a if test else b`` that a plain statement comes to itself: not in a lambda or a comprehension, whose names are its own."""
    found: list[ast.IfExp] = []
    waiting: list[ast.AST] = [] if hasattr(node, "body") or hasattr(node, "cases") else [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        if isinstance(part, ast.IfExp):
            found.append(part)
        waiting.extend(ast.iter_child_nodes(part))
    return found
