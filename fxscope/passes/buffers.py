"""Buffers that running a graph may write to, put back afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxscope.passes.module import attribute
from fxscope.passes.order import written

if TYPE_CHECKING:
    from torch.fx import GraphModule


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """By name: the tensors themselves, and copies of what they held."""

    tensors: dict[str, Any]
    kept: dict[str, Any]

    def restore(self) -> None:
        """Write back what they held."""
        import torch

        with torch.no_grad():
            for name, value in self.kept.items():
                self.tensors[name].copy_(value)


def written_buffers(gm: GraphModule, more: Collection[str] = ()) -> dict[str, Any]:
    """Buffers that a run may write to: those that a node is known to write, all of them where modules are called.

    Args:
        gm: The graph.
        more: Names to add.
    """
    stored = {node for item in gm.graph.nodes if item.op not in ("placeholder", "output") for node in written(item)}
    names = {str(node.target) for node in stored if node.op == "get_attr"} | set(more)
    if any(node.op == "call_module" for node in gm.graph.nodes):
        return dict(gm.named_buffers())
    return {name: attribute(gm, name) for name in sorted(names)}


@contextmanager
def unchanged_buffers(gm: GraphModule, more: Collection[str] = ()) -> Iterator[Buffers]:
    """Put back what runs of the graph, by whatever executor, write into its buffers (``written_buffers``)."""
    tensors = written_buffers(gm, more)
    buffers = Buffers(tensors=tensors, kept={name: value.detach().clone() for name, value in tensors.items()})
    try:
        yield buffers
    finally:
        buffers.restore()
