"""ATen nodes to groups: walks an island's graph, calls the table of lowerings, and lays out inputs and outputs."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError
from fxscope.recording.userline import is_user_file
from fxscope.targets.npu.access import View
from fxscope.targets.npu.builder import Builder
from fxscope.targets.npu.groups import Const, Reg, Value
from fxscope.targets.npu.machine import Machine

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

DTYPE_NAMES = {
    "torch.float32": "f32",
    "torch.bfloat16": "bf16",
    "torch.float16": "f16",
    "torch.int8": "i8",
    "torch.bool": "b8",
    "torch.int32": "i32",
}
Lowering = Callable[..., Any]
LOWERINGS: dict[str, Lowering] = {}


def lowering(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a function ``(island, node, *args, **kwargs) -> value`` for ATen overloads."""

    def register(function: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(names, function))
        return function

    return register


def dtype_name(dtype: Any) -> str:
    """isa.DTYPES name of a torch dtype.

    Raises:
        UsageError: The machine has no such type.
    """
    name = DTYPE_NAMES.get(str(dtype))
    if name is None:
        raise UsageError(f"the NPU has no {dtype}; it has {', '.join(DTYPE_NAMES)}")
    return name


class Island:
    """One island while it is lowered. ``values`` maps nodes to values (tuples for several outputs).

    Attributes:
        inputs: View of every placeholder, None for a number.
        outputs: View, number or None of every output.
    """

    def __init__(self, gm: GraphModule, machine: Machine, *, fuse: bool = True) -> None:
        from fxscope.targets.npu import (  # noqa: F401 (they register)
            lowering_conv,
            lowering_integers,
            lowering_matrix,
            lowering_norm,
            lowering_pointwise,
            lowering_pool,
            lowering_shape,
        )

        self.builder = Builder(machine, fuse=fuse)
        self.machine = machine
        self.values: dict[Node, Any] = {}
        self.inputs: list[View | None] = []
        self.outputs: list[View | float | None] = []
        self.sources: dict[str, str] = {}
        for node in gm.graph.nodes:
            self._visit(node)

    def _visit(self, node: Node) -> None:
        self.builder.node = node.name
        self.sources[node.name] = source_line(node)
        if node.op == "placeholder":
            self.values[node] = self._input(node)
        elif node.op == "output":
            self._outputs(node)
        elif node.op == "call_function" and node.target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]
        elif node.op == "call_function" and str(node.target) in LOWERINGS:
            args = [self._argument(arg) for arg in node.args]
            kwargs = {name: self._argument(arg) for name, arg in node.kwargs.items()}
            self.values[node] = LOWERINGS[str(node.target)](self, node, *args, **kwargs)
        else:
            raise UsageError(f"the NPU compiler has no lowering for {node.name} ({node.target}); supports() refuses it")

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, list | tuple):
            return [self._argument(item) for item in arg]
        return self.values[arg] if hasattr(arg, "op") and hasattr(arg, "users") else arg

    # Inputs and outputs

    def _input(self, node: Node) -> Value:
        meta = node.meta.get("val")
        if isinstance(meta, bool | int | float):
            self.inputs.append(None)
            return Const(float(meta))
        if meta is None or any(not isinstance(size, int) for size in meta.shape):
            raise UsageError(f"{node.name}: the NPU compiles static tensor inputs only; got {meta!r}")
        shape = tuple(int(size) for size in meta.shape)
        role, order = _layout(node, len(shape))
        # Zero points, all that ops.toml lets in as int64, are narrowed as they enter.
        dtype = "i32" if str(meta.dtype) == "torch.int64" else dtype_name(meta.dtype)
        view = self.builder.dense(node.name, dtype, shape, role, order)
        self.inputs.append(view)
        return view

    def _outputs(self, node: Node) -> None:
        results = node.args[0]
        for result in results if isinstance(results, list | tuple) else (results,):
            value = self._argument(result)
            if not hasattr(result, "op") or value is None:
                self.outputs.append(value)
                continue
            meta = result.meta["val"]
            dtype = dtype_name(meta.dtype)
            view = self.builder.materialise(value, dtype)
            if view.dtype != dtype:
                view = self.builder.materialise(self.cast(view, tuple(meta.shape), dtype))
            self.outputs.append(view.expand(tuple(meta.shape)))

    # What lowerings use

    def shape(self, node: Node, index: int | None = None) -> tuple[int, ...]:
        """Shape of a node's (or of its index-th) result."""
        meta = node.meta["val"] if index is None else node.meta["val"][index]
        return tuple(int(size) for size in meta.shape)

    def dtype(self, node: Node, index: int | None = None) -> str:
        """Data type of a node's result, as the machine names it."""
        meta = node.meta["val"] if index is None else node.meta["val"][index]
        return dtype_name(meta.dtype)

    def value(self, arg: Any) -> Value:
        """An argument as a value: numbers become constants."""
        return Const(float(arg)) if isinstance(arg, bool | int | float) else arg

    def unary(self, fn: str, x: Value, shape: Sequence[int], dtype: str) -> Reg:
        """Ewu."""
        return self.builder.elementwise("ewu", fn, [x], shape, dtype)

    def binary(self, fn: str, a: Value, b: Value, shape: Sequence[int], dtype: str) -> Value:
        """ewb, or ewi where one side is a number; folds two numbers."""
        if isinstance(a, Const) and isinstance(b, Const):
            return Const(_fold(fn, a.value, b.value))
        if isinstance(b, Const):
            return self.builder.elementwise("ewi", fn, [a], shape, dtype, b.value)
        if isinstance(a, Const) and fn in _SWAPPED:
            return self.builder.elementwise("ewi", _SWAPPED[fn], [b], shape, dtype, a.value)
        return self.builder.elementwise("ewb", fn, [a, b], shape, dtype)

    def select(self, condition: Value, a: Value, b: Value, shape: Sequence[int], dtype: str) -> Value:
        """Where condition is not 0: a, else b."""
        if isinstance(condition, Const):
            return a if condition.value else b
        return self.builder.elementwise("ewb", "sel", [condition, a, b], shape, dtype)

    def cast(self, x: Value, shape: Sequence[int], dtype: str) -> Value:
        """Another storage type, rounded as torch does."""
        if isinstance(x, Const):
            return x
        if dtype == "b8":
            return self.builder.elementwise("ewi", "ne", [x], shape, dtype, 0.0)
        fn = {"bf16": "bf16", "f16": "f16", "i8": "trunc", "i32": "trunc"}.get(dtype, "copy")
        return self.unary(fn, x, shape, dtype)


_SWAPPED = {
    "add": "add",
    "mul": "mul",
    "max": "max",
    "min": "min",
    "sub": "rsub",
    "div": "rdiv",
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "eq": "eq",
    "ne": "ne",
    "and": "and",
    "or": "or",
}


def _fold(fn: str, a: float, b: float) -> float:
    import torch

    functions: dict[str, Callable[..., Any]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "max": max,
        "min": min,
        "lt": operator.lt,
        "le": operator.le,
        "gt": operator.gt,
        "ge": operator.ge,
        "eq": operator.eq,
        "ne": operator.ne,
        "div": lambda x, y: torch.div(torch.tensor(x), y).item(),
        "pow": lambda x, y: torch.pow(torch.tensor(x), y).item(),
        "and": lambda x, y: bool(x) and bool(y),
        "or": lambda x, y: bool(x) or bool(y),
    }
    return float(functions[fn](a, b))


def _layout(node: Node, rank: int) -> tuple[str, tuple[int, ...] | None]:
    """Role and dimension order of an input: images channels-last, convolution weights as [kh, kw, in, out]."""
    role = "input"
    order: tuple[int, ...] | None = None
    for user in node.users:
        name = str(user.target)
        if "quantize_per" in name and user.args[0] is not node:
            return "weight", None  # scales, zero points
        if "dequantize" in name:
            found = _layout(user, rank)
            role, order = (found[0], found[1]) if found[1] is not None or found[0] != "input" else (role, order)
            continue
        first = user.args[0] if user.args else None
        if name.startswith("aten.convolution"):
            backward = "backward" in name
            weight, transposed = user.args[1 + backward], bool(user.args[6 + backward]) != backward
            if weight is node:
                spatial = tuple(range(2, rank))
                return "weight", (*spatial, 0, 1) if transposed else (*spatial, 1, 0)
            if first is node or user.args[backward] is node:
                order = (0, *range(2, rank), 1)
        elif ("pool" in name or "batch_norm" in name) and first is node and rank > 2:
            order = (0, *range(2, rank), 1)
        if ("batch_norm" in name and first is not node) or (
            name.startswith(("aten.addmm", "aten.mm", "aten.permute", "aten.t."))
            and rank <= 2
            and _is_weight(node, user)
        ):
            role = "weight"
    return role, order


def _is_weight(node: Node, user: Node) -> bool:
    """A matrix that is transposed for a product, or the second operand of one: a linear layer's weight."""
    if str(user.target).startswith(("aten.permute", "aten.t.")):
        return any(str(after.target).startswith(("aten.addmm", "aten.mm")) for after in user.users)
    return bool(user.args) and node is not user.args[-2]


_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)


def source_line(node: Node) -> str:
    """``file:line`` that a node came from: the deepest of the user's own lines, else the deepest; "" where unknown."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    if not frames:
        return ""
    own = [frame for frame in frames if is_user_file(frame[0])]
    file, line = (own or frames)[-1]
    return f"{file}:{line}"
