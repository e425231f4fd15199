"""A torch.fx graph as graph records, so that diff, drawing and tables work on what a pass made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fxscope.graph import records as r
from fxscope.graph.dtypes import TORCH_NAMES
from fxscope.source import SourceLine

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>[^\n]*))?(?:\n\s*(?P<code>[^\n]*))?'
)


def records(gm: GraphModule, name: str = "") -> r.Graph:
    """The records of a torch.fx graph.

    Args:
        gm: Its nodes' ``meta["val"]`` or ``example_value`` give shapes, ``stack_trace`` or the rebuilt node gives lines.
        name: Of the graph.
    """
    nodes = []
    for index, node in enumerate(gm.graph.nodes):
        was = node.meta.get("fxscope")
        same = was is not None and was.name == node.name
        nodes.append(
            r.Node(
                name=node.name,
                op=node.op,
                target=target_text(node),
                args=tuple(_argument(item) for item in node.args),
                kwargs={key: _argument(item) for key, item in node.kwargs.items()},
                users=[user.name for user in node.users],
                meta=_meta(node.meta.get("val", node.meta.get("example_value"))),
                source=source_line(node),
                module=was.module if same else _module(node),
                role=was.role if same else None,
                original=was.original if same else None,
                index=index,
            )
        )
    return r.Graph(name=name or type(gm).__name__, nodes=nodes)


def source_line(node: Node) -> SourceLine | None:
    """The user's line that a node came from: the innermost frame of its stack."""
    was = node.meta.get("fxscope")
    if was is not None and was.source is not None:
        found: SourceLine = was.source
        return found
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    if not frames:
        return None
    last = frames[-1]
    return SourceLine(
        file=last["file"],
        line=int(last["line"]),
        function=(last["function"] or "").strip(),
        code=(last["code"] or "").strip(),
    )


def source_site(node: Node) -> str | None:
    """``model.py:12`` of a node, None where unknown."""
    line = source_line(node)
    return line.site if line is not None else None


def target_text(node: Node) -> str:
    """What a node calls, as PyTorch prints it in a graph."""
    import torch

    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, torch._ops.OpOverload):
        return f"torch.ops.{node.target}"
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{node.target.name()}"
    from torch.fx.node import _get_qualified_name

    return str(_get_qualified_name(node.target))


def _argument(value: Any) -> r.Arg:
    import torch

    if isinstance(value, torch.fx.Node):
        return r.Ref(node=value.name)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple):
        return tuple(_argument(item) for item in value)
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if isinstance(value, dict):
        return {key: _argument(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(_argument(value.start), _argument(value.stop), _argument(value.step))
    return r.Symbolic(text=repr(value))


def _meta(value: Any) -> r.TensorMeta | tuple[r.TensorMeta | None, ...] | None:
    import torch

    if isinstance(value, tuple | list):
        return tuple(item if isinstance(item, r.TensorMeta) else None for item in map(_meta, value))
    if not isinstance(value, torch.Tensor):
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    strided = value.layout is torch.strided
    return r.TensorMeta(
        dtype=TORCH_NAMES.get(dtype, dtype),
        shape=tuple(size if isinstance(size, int) else str(size) for size in value.shape),
        stride=tuple(size if isinstance(size, int) else str(size) for size in value.stride()) if strided else None,
        device=str(value.device),
    )


def _module(node: Node) -> str | None:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0]
    path = re.sub(r"^L\['self'\]\.?", "", str(path))
    return re.sub(r"(?:_modules)?\['([^']+)'\]", r".\1", path).strip(".") or None
