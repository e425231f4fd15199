"""What an FX node calls, with which arguments, and whether that is a view or a library call."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx import Node

Key = tuple[Node, int]  # a node's result, 0 where it has one
EXTERN = {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"}
# Views that only regroup axes; any other view of a value that a kernel computes is read back from memory.
REGROUPING = {
    "aten.view", "aten.reshape", "aten._unsafe_view", "aten._reshape_alias", "aten.permute", "aten.transpose", "aten.t", "aten.numpy_T",
    "aten.unsqueeze", "aten.squeeze", "aten.expand", "aten.alias", "aten.detach", "aten.lift_fresh", "prims.broadcast_in_dim",
}  # fmt: skip
VIEWS = REGROUPING | {
    "aten.slice", "aten.select", "aten.split", "aten.split_with_sizes", "aten.unbind", "aten.as_strided",
    "aten.diagonal",
}  # fmt: skip


def packet(node: Node) -> str:
    """``aten.add`` of a node that calls ``torch.ops.aten.add.Tensor``."""
    target: Any = node.target
    if target is operator.getitem:
        return "getitem"
    name = str(getattr(target, "overloadpacket", target))
    return name.replace("torch.ops.", "")


def arguments(node: Node) -> list[Any]:
    """Positional arguments with the schema's defaults filled in, keyword-only ones after them."""
    target: Any = node.target
    args = list(node.args)
    for position, argument in enumerate(target._schema.arguments):
        if position < len(args):
            continue
        default = argument.default_value if argument.has_default_value() else None
        args.append(node.kwargs.get(argument.name, default))
    return args


MIN_OUTER = 512  # rows from which a sum over the outer dimensions is taken in partial sums


def adds_neighbours(node: Node) -> bool:
    """Whether a sum adds up elements of its last dimension (of more than one element)."""
    source: Any = node.args[0]
    value = source.meta["val"]
    sized = [d for d in range(value.dim()) if value.shape[d] > 1]
    dims = node.args[1] if len(node.args) > 1 else None
    return not sized or not dims or sized[-1] in {d % value.dim() for d in dims}


def sums_outer(node: Node) -> bool:
    """Whether a sum runs over many outer dimensions and keeps inner ones: rows of memory are added to one another."""
    source: Any = node.args[0]
    value = source.meta["val"]
    dims = node.args[1] if len(node.args) > 1 else None
    if not dims or value.dim() < 2:
        return False
    gone = {d % value.dim() for d in dims}
    kept = [d for d in range(value.dim()) if d not in gone and value.shape[d] > 1]
    inner = [d for d in range(value.dim()) if value.shape[d] > 1]
    if not kept or not inner or inner[-1] in gone or value.stride(kept[-1]) != 1:
        return False
    return math.prod(value.shape[d] for d in gone) >= MIN_OUTER and min(gone) < min(kept)


def dense(value: torch.Tensor) -> tuple[int, ...]:
    """Strides for a new tensor: the value's own where they leave no holes, else contiguous ones."""
    strides = tuple(value.stride())
    sized = sorted((stride, size) for stride, size in zip(strides, value.shape, strict=True) if size != 1)
    expected = 1
    for stride, size in sized:
        if stride != expected:
            return tuple(torch.empty(value.shape, device="meta").stride())
        expected *= size
    return strides
