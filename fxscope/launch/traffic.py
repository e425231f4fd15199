"""The traffic model: bytes that a graph moves run op by op, and bytes that it must move when its chains are fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fxscope.passes.analysis import categorise, node_bytes, node_flops, value_bytes
from fxscope.passes.cost import Machine
from fxscope.passes.module import value
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.order import is_compute
from fxscope.passes.partition import partition
from fxscope.passes.split import boundary
from fxscope.targets.target import Clause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import GraphModule, Node

FUSABLE = ("pointwise", "reduction", "view", "copy", "random", "normalization", "other", "indexing")
ON_CHIP = 64 * 1024  # bytes of one row that a kernel can keep between two passes


class Group(msgspec.Struct, kw_only=True):
    """What one fused kernel does.

    Attributes:
        passes: How often it must read its inputs when a row does not fit on the chip: one more than the reductions that wait
            for each other.
        row_bytes: Of the longest row that it reduces; 0 without a reduction.
    """

    nodes: list[str]
    bytes: int
    passes: int
    row_bytes: int


class Traffic(msgspec.Struct, kw_only=True):
    """Modelled bytes and launches of one run.

    Attributes:
        unfused_bytes: Every op reads its inputs and writes its output; views move nothing.
        fused_bytes: Each chain reads its inputs once per pass and writes what is used outside it.
        fused_launches: Chains, and ops that are kernels of their own (matrix products, convolutions, attention).
        floor_bytes: Every input of the graph once and every output once: no implementation moves less, caches aside.
    """

    unfused_bytes: int
    fused_bytes: int
    floor_bytes: int
    unfused_launches: int
    fused_launches: int
    flops: int
    groups: list[Group]
    assumptions: list[str]

    @property
    def intensity(self) -> float:
        """Floating-point operations per byte of the fused form."""
        return self.flops / self.fused_bytes if self.fused_bytes else 0.0


def traffic(gm: GraphModule, on_chip: int = ON_CHIP) -> Traffic:
    """Count what a graph moves.

    ``relu(x + b)`` on two tensors of n bytes moves 5n op by op (read x and b, write the sum, read it, write the result) and 3n
    fused. A reduction keeps its row on the chip where it fits; where not, each further pass reads the inputs again: softmax
    taken apart needs three (maximum, sum of exponentials, division), layer norm two.

    Args:
        gm: Functional ATen, composite ops taken apart, with ``meta["val"]``.
        on_chip: Bytes of a row that stay on the chip.
    """
    nodes = [node for node in gm.graph.nodes if is_compute(node)]
    unfused = sum(sum(node_bytes(node)) for node in nodes)
    heavy = [node for node in nodes if not _fusable(node)]
    parts = partition(gm, lambda node: () if _fusable(node) else (Clause("heavy", ""),), components=True)
    groups = [_group(island.nodes, on_chip) for island in parts.islands if island.dropped is None]
    outputs = gm.graph.output_node().all_input_nodes
    used = [node for node in gm.graph.nodes if node.op in ("placeholder", "get_attr") and node.users]
    return Traffic(
        unfused_bytes=unfused,
        fused_bytes=sum(group.bytes for group in groups) + sum(sum(node_bytes(node)) for node in heavy),
        floor_bytes=sum(value_bytes(value(node)) for node in {*used, *outputs}),
        unfused_launches=sum(not is_no_op(node) for node in nodes),
        fused_launches=len(groups) + len([node for node in heavy if not is_no_op(node)]),
        flops=sum(map(node_flops, nodes)),
        groups=groups,
        assumptions=[
            "modelled: every tensor crosses main memory whole; caches between ops are not counted",
            f"a reduced row of up to {on_chip // 1024} KiB stays on the chip between passes",
        ],
    )


def predicted_seconds(bytes_: int, flops: int, launches: int, machine: Machine) -> float:
    """The larger of bytes over bandwidth and flops over the matrix rate, and the launches (modelled)."""
    return launches * machine.launch + max(bytes_ / machine.bandwidth, flops / machine.flops)


def _fusable(node: Node) -> bool:
    return categorise(node) in FUSABLE


def _group(nodes: Sequence[Node], on_chip: int) -> Group:
    inputs, outputs = boundary(nodes)
    levels: dict[Node, int] = {}
    row = 0
    for node in nodes:
        reduces = categorise(node) in ("reduction", "normalization")
        before = [
            levels[used] + (categorise(used) in ("reduction", "normalization"))
            for used in node.all_input_nodes
            if used in levels
        ]
        levels[node] = max(before, default=0)
        if reduces:
            row = max(row, _row_bytes(node))
    read = _roots_by_level(nodes, inputs, levels)
    passes = max((len(found) for found in read.values()), default=1) or 1
    moved = 0
    for item in inputs:
        times = max(1, len(read[item])) if row > on_chip else 1
        moved += value_bytes(value(item)) * times
    moved += sum(value_bytes(value(_base(item, set(nodes)))) for item in outputs)
    return Group(nodes=[node.name for node in nodes], bytes=moved, passes=passes, row_bytes=row)


def _roots_by_level(nodes: Sequence[Node], inputs: list[Node], levels: dict[Node, int]) -> dict[Node, set[int]]:
    """For each input, the passes in which it is read: once at every level where a value computed from it, elementwise, is used."""
    sources: dict[Node, frozenset[Node]] = {item: frozenset((item,)) for item in inputs}
    read: dict[Node, set[int]] = {item: set() for item in inputs}
    for node in nodes:
        found: frozenset[Node] = frozenset().union(*(sources.get(used, frozenset()) for used in node.all_input_nodes))
        for item in found:
            read[item].add(levels[node])
        # After a reduction what is left is small: it stays on the chip.
        sources[node] = frozenset() if categorise(node) in ("reduction", "normalization") else found
    return read


def _base(node: Node, inside: set[Node]) -> Node:
    """What a view that leaves the group shows: it is written once, in the shape it has in memory."""
    while (
        is_no_op(node)
        and "clone" not in str(node.target)
        and node.all_input_nodes
        and node.all_input_nodes[0] in inside
    ):
        node = node.all_input_nodes[0]
    return node


def _row_bytes(node: Node) -> int:
    """Bytes of what one output element of a reduction is made of."""
    import torch

    source = next((value(used) for used in node.all_input_nodes if isinstance(value(used), torch.Tensor)), None)
    out = value(node)
    out = out[0] if isinstance(out, tuple | list) else out
    if source is None or not isinstance(out, torch.Tensor):
        return 0
    count = max(1, value_bytes(out) // max(1, out.element_size()))
    return value_bytes(source) // count
