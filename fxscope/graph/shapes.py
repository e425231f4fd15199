"""Shapes and sizes of what a node reads and writes, as far as the log holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fxscope.errors import UsageError
from fxscope.graph.arguments import node_refs
from fxscope.graph.dtypes import item_bytes
from fxscope.graph.records import Node, Ref, TensorMeta
from fxscope.graph.symbols import Number, metas, whole


class Unknown(Exception):
    """No formula, or a shape that the log does not hold."""


class Shapes:
    """Sizes of what a node reads and writes; every method raises ``Unknown`` where the log does not say."""

    def __init__(self, node: Node, by_name: Mapping[str, Node], values: Mapping[str, Number]) -> None:
        self.node = node
        self.by_name = by_name
        self.values = values

    def sizes(self, meta: TensorMeta) -> tuple[int, ...]:
        """A shape as numbers."""
        try:
            return tuple(size if isinstance(size, int) else whole(size, self.values) for size in meta.shape)
        except UsageError as error:
            raise Unknown(str(error)) from None

    def of(self, arg: Any) -> tuple[int, ...]:
        """Shape of an argument that is a tensor."""
        if isinstance(arg, Ref) and arg.node in self.by_name:
            meta = self.by_name[arg.node].meta
            if isinstance(meta, TensorMeta):
                return self.sizes(meta)
        raise Unknown("not a tensor whose shape is known")

    def arg(self, position: int, keyword: str = "") -> tuple[int, ...]:
        """Shape of the argument at a position, or by its keyword."""
        if len(self.node.args) > position:
            return self.of(self.node.args[position])
        return self.of(self.node.kwargs.get(keyword))

    def output(self) -> tuple[int, ...]:
        """Shape of the result."""
        if isinstance(self.node.meta, TensorMeta):
            return self.sizes(self.node.meta)
        raise Unknown("output shape is not printed")

    def output_or_first(self) -> int:
        """Elements of the output; where the log does not print it, of the largest tensor argument."""
        try:
            return math.prod(self.output())
        except Unknown:
            return self.largest()

    def largest(self) -> int:
        """Elements of the largest tensor argument."""
        found = [math.prod(self.sizes(meta)) for meta in self._inputs()]
        if not found:
            raise Unknown("no tensor argument")
        return max(found)

    def _inputs(self) -> list[TensorMeta]:
        names = dict.fromkeys(node_refs(self.node))
        return [meta for name in names if name in self.by_name for meta in metas(self.by_name[name])]

    def _bytes(self, meta: TensorMeta) -> int:
        size = item_bytes(meta.dtype)
        if size is None:
            raise Unknown(f"dtype {meta.dtype}")
        return int(math.prod(self.sizes(meta)) * size)

    def input_bytes(self) -> int:
        """Bytes of the tensors that the node reads, each once."""
        for name in dict.fromkeys(node_refs(self.node)):
            known = self.by_name.get(name)
            if known is not None and known.meta is None and known.symbol is None and known.role != "symbol":
                raise Unknown(f"{name} has no description")
        return sum(map(self._bytes, self._inputs()))

    def output_bytes(self) -> int:
        """Bytes of the output, or, of several outputs, of those that are taken out of it."""
        if self.node.symbol is not None:
            return 0
        found = list(metas(self.node))
        if not found:
            users = [self.by_name[name] for name in self.node.users if name in self.by_name]
            found = [meta for user in users if user.target == "operator.getitem" for meta in metas(user)]
        if not found:
            raise Unknown("output shape is not printed")
        return sum(map(self._bytes, found))
