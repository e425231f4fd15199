"""A graph as a table for the terminal: one row per node."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fxscope.graph.arguments import call_text
from fxscope.graph.gutter import gutter
from fxscope.graph.histogram import short_target
from fxscope.graph.modules import places
from fxscope.graph.records import Graph, Node, TensorMeta


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as text.

    Attributes:
        target: What is called, shortened (``aten.add.Tensor``, ``F.relu``, ``.view``).
        shape: Dtype and sizes, e.g. ``f32[4, 64]``, or ``Sym(s0)``; "" where the log does not say.
        users: Number of nodes that read this one.
        source: ``file.py:12`` of the user's line, "" where unknown.
        module: Module path, "" at the top; ``module_known`` is False where it is inferred.
    """

    index: int
    name: str
    op: str
    target: str
    args: str
    shape: str
    device: str
    users: int
    source: str
    code: str
    module: str
    module_known: bool
    role: str


def shape_text(node: Node) -> str:
    """``f32[4, 64]``, ``Sym(s0)``, ``(f32[4], i64[4])`` or ""."""
    if node.symbol is not None:
        return f"Sym({node.symbol})"
    return meta_text(node.meta)


def meta_text(meta: TensorMeta | tuple[TensorMeta | None, ...] | None) -> str:
    """Dtype and sizes."""
    if meta is None:
        return ""
    if isinstance(meta, tuple):
        return f"({', '.join(meta_text(each) or '?' for each in meta)})"
    return f"{meta.dtype}[{', '.join(map(str, meta.shape))}]"


def _device(node: Node) -> str:
    return node.meta.device or "" if isinstance(node.meta, TensorMeta) else ""


def rows(graph: Graph) -> list[Row]:
    """All nodes in order."""
    where = places(graph)
    return [
        Row(
            index=node.index,
            name=node.name,
            op=node.op,
            target=f".{node.target}" if node.op == "call_method" else short_target(node.target),
            args="" if node.op == "placeholder" else call_text(node),
            shape=shape_text(node),
            device=_device(node),
            users=len(node.users),
            source=node.source.site if node.source else "",
            code=node.source.code if node.source else "",
            module=where[node.name].path,
            module_known=where[node.name].known,
            role=node.role or "",
        )
        for node in graph.nodes
    ]


def lines(graph: Graph, lanes: int = 6) -> Iterator[str]:
    """The table as plain text with a gutter, one line per node, nothing cut."""
    cells = gutter(graph, lanes)
    listed = rows(graph)
    if not listed:
        return
    # Inputs have long names and no target: they do not set the width of the columns.
    inner = [row for row in listed if row.op != "placeholder"]
    edge = max(map(len, cells))
    name = max(4, *(len(row.name) for row in inner)) if inner else 4
    target = max(6, *(len(row.target) for row in inner)) if inner else 6
    shape = max(5, *(len(row.shape) for row in inner)) if inner else 5
    yield f"{'':{edge}}  {'name':{name}}  {'target':{target}}  {'shape':{shape}}  users  source"
    for cell, row, node in zip(cells, listed, graph.nodes, strict=True):
        called = node.original or row.name  # an input by its name in the program, where it is known
        what = (row.role or "input") if row.op == "placeholder" else row.target
        text = f"{cell:{edge}}  {called:{name}}  {what:{target}}  {row.shape:{shape}}  {row.users:5}  {row.source}"
        yield text.rstrip()
