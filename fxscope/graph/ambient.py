"""What surrounded a graph when it was recorded and is not in it: autocast.

A model that is called under ``torch.autocast`` has no trace of it in its Dynamo graph, but the shapes printed beside the nodes
show it: a matrix product of two f32 tensors that is bf16. (AOT graphs hold the casts themselves.)
"""

from __future__ import annotations

from fxscope.graph.arguments import node_refs
from fxscope.graph.cost import classes, short_name
from fxscope.graph.dtypes import DTYPES
from fxscope.graph.records import Graph, TensorMeta

_LOWER = ("bf16", "f16")


def ambient_autocast(graph: Graph) -> tuple[str, str] | None:
    """Device type and torch's name of the dtype of the autocast around a graph; None where none shows."""
    by_name = graph.by_name()
    depth = 0
    for node in graph.nodes:
        short = short_name(node)
        depth += (short == "_enter_autocast") - (short == "_exit_autocast")
        if depth or classes().get(short) != "matmul" or node.target.startswith("torch.ops."):
            continue
        meta = node.meta
        if not isinstance(meta, TensorMeta) or meta.dtype not in _LOWER:
            continue
        read = [by_name[name].meta for name in node_refs(node) if name in by_name]
        dtypes = {each.dtype for each in read if isinstance(each, TensorMeta)}
        if "f32" in dtypes:
            return (meta.device or "cpu").split(":")[0], DTYPES[meta.dtype][0]
    return None
