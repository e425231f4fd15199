"""What a partition means: coverage, islands and what crosses their edges, reasons, and what one more op would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fxscope.passes.analysis import value_bytes
from fxscope.passes.fx_records import source_site, target_text
from fxscope.passes.module import value
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.order import is_compute
from fxscope.passes.partition import Island, Partition, assign_phases, connected_parts
from fxscope.passes.split import boundary
from fxscope.words import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import GraphModule, Node

    from fxscope.targets.target import Clause


class IslandRow(msgspec.Struct, kw_only=True):
    """One island.

    Attributes:
        bytes_in: Tensors that enter it, each once; parameters are counted apart.
        bytes_parameters: Parameters and other attributes that it reads.
        bytes_out: Tensors that leave it.
        peak_bytes: Most that is alive inside at one time, when its nodes run in program order (parameters left out).
        branches: Parts that do not depend on each other; together they need ``peak_bytes``.
        peak_bytes_apart: What the largest of them needs alone (``partition:TARGET:apart`` makes an island of each).
    """

    index: int
    phase: int
    nodes: list[str]
    bytes_in: int
    bytes_parameters: int
    bytes_out: int
    peak_bytes: int
    branches: int
    peak_bytes_apart: int
    dropped: str | None
    benefit_us: float | None


class Reason(msgspec.Struct, kw_only=True):
    """Nodes that stay outside for the same set of clauses."""

    target: str
    codes: list[str]
    texts: list[str]
    nodes: list[str]
    source: str | None


class WhatIf(msgspec.Struct, kw_only=True):
    """What supporting one more op would change.

    Attributes:
        islands: Change of the number of islands (negative: fewer).
        boundary_bytes: Change of the bytes that cross island edges.
        nodes: Nodes that would move onto the target.
    """

    target: str
    nodes: int
    islands: int
    boundary_bytes: int
    text: str


class PartitionReport(msgspec.Struct, kw_only=True):
    """The report.

    Attributes:
        coverage: Share of the compute nodes that the kept islands hold.
        boundary_bytes: What crosses island edges in one run; a parameter that several islands read counts once.
    """

    coverage: float
    nodes: int
    islands: list[IslandRow]
    boundary_bytes: int
    reasons: list[Reason]
    what_if: list[WhatIf]


def report(
    gm: GraphModule, partition: Partition, coverage: float | None = None, *, what_if: int = 5
) -> PartitionReport:
    """Describe a partition.

    Args:
        gm: The graph that was partitioned.
        partition: Its partition.
        coverage: Where the caller has it already.
        what_if: How many of the commonest unsupported ops to try out.
    """
    inside = {node for island in partition.kept for node in island.nodes}
    total = len(partition.phases)
    return PartitionReport(
        coverage=len(inside) / total if coverage is None and total else (coverage or 0.0),
        nodes=total,
        islands=[_row(island) for island in partition.islands],
        boundary_bytes=boundary_bytes([list(island.nodes) for island in partition.kept]),
        reasons=_reasons(partition.clauses),
        what_if=_what_if(gm, partition, what_if),
    )


def boundary_bytes(groups: list[list[Node]]) -> int:
    """Bytes that enter and leave groups of nodes, attributes counted once over all of them."""
    total = 0
    attributes: dict[str, int] = {}
    for nodes in groups:
        inputs, outputs = boundary(nodes)
        for node in inputs:
            if node.op == "get_attr":
                attributes[str(node.target)] = value_bytes(value(node))
            else:
                total += value_bytes(value(node))
        total += sum(value_bytes(value(node)) for node in outputs)
    return total + sum(attributes.values())


def peak_bytes(nodes: Sequence[Node]) -> int:
    """Most bytes alive at one time in an island whose nodes run in program order.

    Inputs are alive up to their last use, results up to theirs, what leaves the island up to its end; parameters do not count.
    """
    inputs, outputs = boundary(nodes)
    last: dict[Node, int] = {}
    for at, node in enumerate(nodes):
        for used in node.all_input_nodes:
            last[used] = at
    last.update(dict.fromkeys(outputs, len(nodes)))
    ends: dict[int, int] = {}
    size = {
        node: value_bytes(value(node)) for node in (*inputs, *nodes) if node.op != "get_attr" and not is_no_op(node)
    }
    for node, at in last.items():
        ends[at] = ends.get(at, 0) + size.get(node, 0)
    alive = sum(size.get(node, 0) for node in inputs)
    peak = alive
    for at, node in enumerate(nodes):
        alive += size.get(node, 0)
        peak = max(peak, alive)
        alive -= ends.get(at, 0) + (size.get(node, 0) if node not in last else 0)
    return peak


def _row(island: Island) -> IslandRow:
    inputs, outputs = boundary(island.nodes)
    parts = connected_parts(list(island.nodes))
    return IslandRow(
        index=island.index,
        phase=island.phase,
        nodes=[node.name for node in island.nodes],
        bytes_in=sum(value_bytes(value(node)) for node in inputs if node.op != "get_attr"),
        bytes_parameters=sum(value_bytes(value(node)) for node in inputs if node.op == "get_attr"),
        bytes_out=sum(value_bytes(value(node)) for node in outputs),
        peak_bytes=peak_bytes(island.nodes),
        branches=len(parts),
        peak_bytes_apart=max(map(peak_bytes, parts)),
        dropped=island.dropped,
        benefit_us=None if island.benefit is None else island.benefit * 1e6,
    )


def _reasons(clauses: dict[Node, tuple[Clause, ...]]) -> list[Reason]:
    found: dict[tuple[str, tuple[str, ...]], Reason] = {}
    for node, failing in clauses.items():
        key = (target_text(node), tuple(dict.fromkeys(clause.code for clause in failing)))
        if key not in found:
            found[key] = Reason(
                target=key[0],
                codes=list(key[1]),
                texts=[clause.text for clause in failing],
                nodes=[],
                source=source_site(node),
            )
        found[key].nodes.append(node.name)
    return sorted(found.values(), key=lambda reason: (-len(reason.nodes), reason.target))


def _what_if(gm: GraphModule, partition: Partition, most: int) -> list[WhatIf]:
    """Try each of the commonest unsupported ops as if it were supported: phases again, without splitting."""
    nodes = [node for node in gm.graph.nodes if is_compute(node)]
    by_target: dict[str, list[Node]] = {}
    for node, failing in partition.clauses.items():
        if any(clause.code != "producer" for clause in failing):
            by_target.setdefault(target_text(node), []).append(node)
    islands, crossing = _count(nodes, partition.clauses, partition)
    found = []
    for target, members in sorted(by_target.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:most]:
        freed = {
            *members,
            *(user for node in members for user in node.users if user in partition.clauses and _follows(user)),
        }
        fewer = {node: failing for node, failing in partition.clauses.items() if node not in freed}
        now, moved = _count(nodes, fewer, partition)
        change, saved = now - islands, moved - crossing
        how = count(abs(change), f"{'fewer' if change < 0 else 'more'} island") if change else "as many islands"
        size = f"{abs(saved):,} bytes {'fewer' if saved < 0 else 'more'}" if saved else "the same bytes"
        found.append(
            WhatIf(
                target=target,
                nodes=len(members),
                islands=change,
                boundary_bytes=saved,
                text=f"support {target} ({len(members)}x): {how}, {size} across island edges",
            )
        )
    return sorted(found, key=lambda item: (item.islands, item.boundary_bytes))


def _follows(node: Node) -> bool:
    import operator

    return node.target is operator.getitem


def _count(nodes: list[Node], clauses: dict[Node, tuple[Clause, ...]], partition: Partition) -> tuple[int, int]:
    phases = assign_phases(nodes, clauses, partition.edges)
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        if node not in clauses:
            groups.setdefault(phases[node], []).append(node)
    return len(groups), boundary_bytes(list(groups.values()))
