"""What kernels are called, and what their comments say."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from torch.fx import GraphModule, Node

from fxscope.passes.fx_records import source_line
from fxscope.targets.triton.nodes import packet

if TYPE_CHECKING:
    from fxscope.targets.triton.fuse import Plan
    from fxscope.targets.triton.ir import Kernel

DERIVED = ("", "_shifted")  # what the Python that starts kernels makes of a name; a kernel adds ``_ptr``


def comments(graph: GraphModule) -> dict[str, str]:
    """Per node the line of the program it came from, else the call itself."""
    out = {}
    for node in graph.graph.nodes:
        if node.op == "call_function":
            out[node.name] = _origin(node) or _call(node)
    return out


def _origin(node: Node) -> str:
    line = source_line(node)
    return f"{line.code}  [{line.site}]" if line is not None and line.code else ""


def _call(node: Node) -> str:
    args = ", ".join(a.name if isinstance(a, Node) else str(a) for a in node.args)
    return f"{node.name} = {packet(node)}({args})"


def kernel_name(plan: Plan, kernel: Kernel) -> str:
    """``fused_add_relu`` for a kernel of these ops, at most four of them."""
    nodes = {node.name: node for node in plan.island.graph.nodes}
    ops = [packet(nodes[name]).rsplit(".", 1)[-1].strip("_") for name in kernel.nodes]
    words = list(dict.fromkeys(ops))
    return "fused_" + "_".join(words[:4]) + ("_more" if len(words) > 4 else "")


def free_name(plan: Plan, name: str) -> str:
    """The name, or numbered, so that nothing else in the Python that starts kernels has it, nor what is derived from it; taken from now on."""
    numbered = (f"{name}_{count}" for count in itertools.count(2))
    found = next(n for n in itertools.chain([name], numbered) if plan.names.isdisjoint(n + end for end in DERIVED))
    plan.names.update(found + end for end in DERIVED)
    return found
