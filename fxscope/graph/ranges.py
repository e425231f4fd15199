"""Which values an input may hold, from what the graph does with it: indices below the table's size, variances positive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fxscope.graph.arguments import refs
from fxscope.graph.cost import short_name
from fxscope.graph.records import Graph, Node, Ref, TensorMeta
from fxscope.graph.symbols import Number, whole

# Position of the index and of the table it looks into: (index, table, dimension argument or fixed dimension 0).
_LOOKUPS: dict[str, tuple[int, int, int | None]] = {
    "torch.nn.functional.embedding": (0, 1, None),
    "torch.embedding": (1, 0, None),
    "torch.ops.aten.embedding.default": (1, 0, None),
    "torch.ops.aten._embedding_bag.default": (1, 0, None),
    "torch.nn.functional.embedding_bag": (0, 1, None),
    "torch.gather": (2, 0, 1),
    "gather": (2, 0, 1),
    "torch.ops.aten.gather.default": (2, 0, 1),
    "torch.index_select": (2, 0, 1),
    "index_select": (2, 0, 1),
    "torch.ops.aten.index_select.default": (2, 0, 1),
    "torch.take_along_dim": (1, 0, 2),
}
_SCATTERS = ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill")
# What hands values on unchanged, so that a bound on its output bounds its input.
_PASSES = {
    *("view", "reshape", "expand", "unsqueeze", "squeeze", "contiguous", "clone", "to", "flatten", "detach", "long"),
    *("permute", "transpose", "t", "slice", "select", "_to_copy", "alias", "_unsafe_view", "int", "narrow", "type_as"),
    *(
        "convert_element_type",
        "getitem",
        "device_put",
        "repeat",
        "expand_as",
        "view_as",
        "float",
        "lift_fresh_copy",
        "copy",
    ),
}
_POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10", "sqrt_", "rsqrt_", "log_"}
_WRAPPED = {"add", "iadd", "clamp", "clamp_min", "maximum", "add_"}
# Position of the variance among the arguments of a batch normalisation.
_VARIANCES = {
    "torch.nn.functional.batch_norm": 2,
    "torch.batch_norm": 4,
    "torch.ops.aten._native_batch_norm_legit_no_training.default": 4,
    "torch.ops.aten.native_batch_norm.default": 4,
    "torch.ops.aten.batch_norm.default": 4,
}
_LOSSES = {
    "torch.nn.functional.cross_entropy": 1,
    "torch._C._nn.cross_entropy_loss": 1,
    "torch.nn.functional.nll_loss": 1,
    "torch._C._nn.nll_loss_nd": 1,
    "torch.ops.aten.nll_loss_forward.default": 1,
}


class Range(NamedTuple):
    """Which values a tensor may hold.

    Attributes:
        low: Least integer (for booleans, 1 makes all of them true).
        high: Integers stay below this.
        positive: Floating-point values are at least 0.5: variances, arguments of logarithms and roots.
        scale: Standard deviation of floating-point values.
        center: Mean of floating-point values.
    """

    low: int = 0
    high: int = 2
    positive: bool = False
    scale: float = 1.0
    center: float = 0.0


def sizes(entries: tuple[int | str, ...], values: Mapping[str, Number]) -> list[int]:
    """Sizes or strides as numbers."""
    return [entry if isinstance(entry, int) else whole(entry, values) for entry in entries]


class Uses:
    """What a graph does with its inputs, as far as it bounds their values."""

    def __init__(self, graph: Graph, values: Mapping[str, Number]) -> None:
        self.by_name = graph.by_name()
        self.values = values
        self.bounds: dict[str, int | None] = {}
        self.backwards = list(reversed(graph.nodes))
        self._bound()

    def range_of(self, node: Node) -> Range:
        """The range for one placeholder."""
        assert isinstance(node.meta, TensorMeta)  # the caller has looked
        bound = self.bounds.get(node.name)
        shape = sizes(node.meta.shape, self.values)
        fan_in = math.prod(shape[1:])
        scale = fan_in**-0.5 if node.role == "parameter" and len(shape) >= 2 and fan_in else 1
        name = node.original or node.target
        is_norm_weight = len(shape) == 1 and name.rstrip("_").endswith("weight")
        return Range(
            low=1 if node.role == "saved" and bound is None else 0,
            high=2 if bound is None else max(1, bound),
            positive=self._positive(node),
            scale=0.1 if is_norm_weight else float(scale),
            center=1.0 if is_norm_weight else 0.0,
        )

    def _bound(self) -> None:
        """Least bound on every node's values from all its users, last node first: one pass, linear."""
        for node in self.backwards:
            if node.op == "placeholder" or node.op == "output":
                continue
            for name, limit in self._demands(node):
                known = self.bounds.get(name)
                self.bounds[name] = limit if known is None else min(known, limit)

    def _demands(self, node: Node) -> list[tuple[str, int]]:
        """Bounds that a node puts on what it reads."""
        lookup = _LOOKUPS.get(node.target)
        if lookup is not None:
            index, table, dimension = lookup
            return self._lookup(node, index, table, dimension)
        for known, position in _LOSSES.items():
            if node.target == known and len(node.args) > position:
                return self._table(node.args[position], node.args[0], 1)
        short = short_name(node)
        if short in ("getitem", "index", "index_put", "index_put_", "setitem", "_unsafe_index", "_unsafe_index_put"):
            return self._indexing(node)
        if short.rstrip("_") in _SCATTERS and len(node.args) > 2:
            dimension = node.args[1] if isinstance(node.args[1], int) else 0
            return self._table(node.args[2], node.args[0], dimension)
        if short == "one_hot" and len(node.args) > 1 and isinstance(node.args[1], int) and node.args[1] > 0:
            return [(name, node.args[1]) for name in refs(node.args[0])]
        mine = self.bounds.get(node.name)
        if mine is None or not node.args:
            return []
        if short in _PASSES:
            return [(name, mine) for name in refs(node.args[0])]
        if short in ("add", "iadd", "sub") and len(node.args) > 1:
            # Half for each side: a sum of two stays below the bound; a constant takes its own share.
            constants = [arg for arg in node.args if isinstance(arg, int)]
            names = [name for arg in node.args for name in refs(arg)]
            rest = mine - sum(constants) if short != "sub" else mine
            return [(name, max(1, rest // max(1, len(names)))) for name in names]
        if short in ("where", "cat", "stack", "masked_fill"):
            return [(name, mine) for arg in node.args for name in refs(arg)]
        return []

    def _lookup(self, node: Node, index: int, table: int, dimension: int | None) -> list[tuple[str, int]]:
        if len(node.args) <= max(index, table):
            return []
        axis = 0
        if dimension is not None and len(node.args) > dimension and isinstance(node.args[dimension], int):
            axis = node.args[dimension]
        return self._table(node.args[index], node.args[table], axis)

    def _table(self, index: Any, table: Any, axis: int) -> list[tuple[str, int]]:
        """``index`` must stay below the table's size along ``axis``."""
        meta = self.by_name[table.node].meta if isinstance(table, Ref) and table.node in self.by_name else None
        if not isinstance(meta, TensorMeta) or not meta.shape:
            return []
        shape = sizes(meta.shape, self.values)
        return [(name, shape[axis if -len(shape) <= axis < len(shape) else -1]) for name in refs(index)]

    def _indexing(self, node: Node) -> list[tuple[str, int]]:
        """``x[i, j]``: every tensor among the indices stays below the size of its dimension."""
        if len(node.args) < 2 or not isinstance(node.args[0], Ref):
            return []
        demands: list[tuple[str, int]] = []
        indices = node.args[1] if isinstance(node.args[1], (tuple, list)) else [node.args[1]]
        axis = 0
        for index in indices:
            if isinstance(index, Ref):
                demands += self._table(index, node.args[0], axis)
            # In x[None, i] the None adds a dimension; in aten.index it stands for a whole one.
            axis += 0 if index is None and node.target == "operator.getitem" else 1
        mine = self.bounds.get(node.name)
        if mine is not None:
            demands.append((node.args[0].node, mine))
        return demands

    def _positive(self, node: Node) -> bool:
        """Whether a value must be positive: a variance, by name or by what happens to it."""
        if any(word in (node.original or node.target) for word in ("running_var", "exp_avg_sq")):
            return True
        seen = {node.name}
        queue = [node]
        while queue:
            current = queue.pop()
            for name in current.users:
                user = self.by_name[name]
                short = short_name(user)
                position = _VARIANCES.get(user.target)
                if short in _POSITIVE or (
                    position is not None and len(user.args) > position and user.args[position] == Ref(current.name)
                ):
                    return True
                if short in _PASSES | _WRAPPED and len(seen) < 20 and name not in seen:
                    operands = [*refs(user.args)]
                    if len(operands) == 1:  # x + eps, not x + y
                        seen.add(name)
                        queue.append(user)
        return False
