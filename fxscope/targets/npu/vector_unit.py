"""The element-wise unit: what each function of ewu, ewb, ewi, red and pool computes, as torch calls on bound views."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from fxscope.targets.npu.encoding import bits_float

if TYPE_CHECKING:
    from fxscope.targets.npu.execute import Memories
    from fxscope.targets.npu.operands import Step

Thunk = Callable[[], Any]
_nn = torch._C._nn  # the functions behind torch.nn.functional, which take out=

# With out= where torch has it: no temporary, one call.
_UNARY_OUT: dict[str, Callable[..., Any]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "relu": functools.partial(torch.clamp, min=0.0),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": _nn.gelu,
    "gelu_tanh": functools.partial(_nn.gelu, approximate="tanh"),
    "silu": _nn.silu,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "recip": torch.reciprocal,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "sign": torch.sign,
    "trunc": torch.trunc,
    "exp2": torch.exp2,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
}
_UNARY_COPY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "not": lambda x: x == 0,
    "isnan": torch.isnan,
    "bf16": lambda x: x.to(torch.bfloat16),
    "f16": lambda x: x.to(torch.float16),
}
_BINARY_OUT: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "pow": torch.pow,
}
_BINARY_COPY: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": lambda a, b: (a != 0) & (b != 0),
    "or": lambda a, b: (a != 0) | (b != 0),
    "rsub": lambda a, b: b - a,
    "rdiv": lambda a, b: b / a,
}
REDUCE: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
    "mean": torch.mean,
    "prod": torch.prod,
}
_COMBINE: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "prod": torch.mul,
}


def _copy(function: Callable[..., torch.Tensor], target: torch.Tensor, *sources: Any) -> None:
    target.copy_(function(*sources))


def one(fn: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """A unary function as a function of a tensor."""
    if fn in _UNARY_OUT:
        return _UNARY_OUT[fn]
    if fn in _UNARY_COPY:
        function = _UNARY_COPY[fn]
        return lambda x: function(x).to(torch.float32)
    return lambda x: x.to(torch.int32 if fn == "f2i" else torch.float32)


def two(fn: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A binary function as a function of tensors."""
    if fn in _BINARY_OUT:
        return _BINARY_OUT[fn]
    function = _BINARY_COPY[fn]
    return lambda a, b: function(a, b).to(torch.float32)


def with_number(fn: str, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """A binary function whose second operand is a number."""
    if fn in ("max", "min"):
        return functools.partial(torch.clamp, **{"min" if fn == "max" else "max": value})
    if fn in _BINARY_OUT:
        function = _BINARY_OUT[fn]
        return lambda x: function(x, value)
    compare = _BINARY_COPY[fn]
    return lambda x: compare(x, value).to(torch.float32)


def unary(memories: Memories, step: Step) -> Thunk:
    """Ewu. Conversions (copy, i2f, f2i) are copies between views of the right types; f2i truncates, as C does."""
    source, target = memories.view(step.reads[0]), memories.view(step.writes[0])
    name = str(step.instruction.args["fn"])
    if name in _UNARY_OUT:
        return functools.partial(_UNARY_OUT[name], source, out=target)
    if name in _UNARY_COPY:
        return functools.partial(_copy, _UNARY_COPY[name], target, source)
    return functools.partial(target.copy_, source)


def binary(memories: Memories, step: Step) -> Thunk:
    """ewb; broadcast operands are [1, cols], [rows, 1] or [1, 1] views."""
    first, second = memories.view(step.reads[0]), memories.view(step.reads[1])
    target = memories.view(step.writes[0])
    name = str(step.instruction.args["fn"])
    if name == "sel":
        return functools.partial(_select, target, first, second)
    if name in _BINARY_OUT and torch.broadcast_shapes(first.shape, second.shape) == target.shape:
        return functools.partial(_BINARY_OUT[name], first, second, out=target)
    return functools.partial(_copy, {**_BINARY_OUT, **_BINARY_COPY}[name], target, first, second)


def _select(target: torch.Tensor, condition: torch.Tensor, value: torch.Tensor) -> None:
    torch.where(condition != 0, value, target, out=target)


def immediate(memories: Memories, step: Step) -> Thunk:
    """ewi; the immediate is an f32."""
    source, target = memories.view(step.reads[0]), memories.view(step.writes[0])
    name = str(step.instruction.args["fn"])
    stored = step.instruction.args["imm"]
    value = bits_float(stored) if isinstance(stored, int) else float(stored)
    if name == "max":
        return functools.partial(torch.clamp, source, min=value, out=target)
    if name == "min":
        return functools.partial(torch.clamp, source, max=value, out=target)
    if name == "sel":
        return functools.partial(_select_value, target, source, value)
    if name in ("add", "sub", "mul", "div", "pow"):
        return functools.partial(_BINARY_OUT[name], source, value, out=target)
    return functools.partial(_copy, _BINARY_COPY[name], target, source, value)


def _select_value(target: torch.Tensor, condition: torch.Tensor, value: float) -> None:
    target.masked_fill_(condition != 0, value)


def reduce(memories: Memories, step: Step) -> Thunk:
    """red: over columns to [rows, 1] or over rows to [1, cols]."""
    source, target = memories.view(step.reads[0]), memories.view(step.writes[0])
    a = step.instruction.args
    name, dim = str(a["fn"]), 1 if a["axis"] == "cols" else 0
    function = REDUCE[name]
    if a["acc"]:
        combine = _COMBINE[name]
        return lambda: combine(target, function(source, dim, keepdim=True), out=target)
    return functools.partial(function, source, dim, keepdim=True, out=target)


def pool(memories: Memories, step: Step) -> Thunk:
    """pool: over the window positions of [rows, window, cols]."""
    gathered, target = step.reads[0], memories.view(step.writes[0])
    cols = int(step.instruction.args["cols"])
    source = memories.strided(
        gathered.memory,
        "f32",
        (gathered.rows, gathered.cols // cols, cols),
        (gathered.row_pitch // 4, cols, 1),
        gathered.start,
    )
    return functools.partial(REDUCE[str(step.instruction.args["fn"])], source, 1, out=target)


def transpose(memories: Memories, step: Step) -> Thunk:
    """Xpose."""
    source, target = memories.view(step.reads[0]), memories.view(step.writes[0])
    return functools.partial(target.copy_, source.t())
