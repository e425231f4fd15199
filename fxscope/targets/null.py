"""``torch.compile(f, backend="fxscope_null")``: runs graphs as they are and counts what Dynamo asks of a backend.

The first step of writing a backend: how often is it called, with which shapes, and how often does each graph run?
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule


class Counted(msgspec.Struct, kw_only=True):
    """One graph that Dynamo handed over.

    Attributes:
        inputs: One line per placeholder: name, dtype and shape.
        ops: Calls in the graph, by target.
        calls: How often the compiled graph ran.
    """

    inputs: list[str]
    ops: dict[str, int]
    nodes: int
    calls: int = 0


counts: list[Counted] = []
_lock = threading.Lock()


def fxscope_null(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Count one graph and run it unchanged."""
    ops: dict[str, int] = {}
    for node in gm.graph.nodes:
        if node.op.startswith("call"):
            name = getattr(node.target, "__name__", str(node.target))
            ops[name] = ops.get(name, 0) + 1
    placeholders = gm.graph.find_nodes(op="placeholder")
    names = [str(node.target) for node in placeholders]
    counted = Counted(
        inputs=[f"{name}: {_describe(value)}" for name, value in zip(names, inputs, strict=True)],
        ops=ops,
        nodes=len(gm.graph.nodes),
    )
    with _lock:
        counts.append(counted)

    def run(*args: Any) -> Any:
        counted.calls += 1
        return gm.forward(*args)

    return run


def _describe(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return f"{type(value).__name__} {value}"


def reset() -> None:
    """Forget all counts."""
    with _lock:
        counts.clear()


def table() -> str:
    """What was counted, as text."""
    if not counts:
        return "no graph was compiled"
    lines = []
    for number, counted in enumerate(counts):
        lines.append(f"graph {number}: {count(counted.nodes, 'node')}, ran {count(counted.calls, 'time')}")
        lines += [f"    {text}" for text in counted.inputs]
        lines.append("    " + ", ".join(f"{name} x{count}" for name, count in counted.ops.items()))
    return "\n".join(lines)
