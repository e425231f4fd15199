"""Ops that move no data and compute nothing, whatever their overload."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

# An island of these alone is not worth a launch.
NO_OPS = frozenset(
    ("view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "alias", "detach",
     "slice", "select", "split", "split_with_sizes", "as_strided", "lift_fresh_copy", "getitem", "sym_size", "clone")
)  # fmt: skip


def is_no_op(node: Node) -> bool:
    """Whether a node only renames data (view, clone, cat of one tensor), whatever its overload."""
    import torch

    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.split("::")[-1]
    if name == "cat":
        first = node.args[0] if node.args else ()
        return isinstance(first, list | tuple) and len(first) == 1
    return node.op in ("call_function", "call_method") and name in NO_OPS
