"""The pass that cuts out the islands of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.errors import UsageError
from fxscope.passes.application import Context
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule


def partition_for(gm: GraphModule, context: Context) -> GraphModule:
    """Cut out the islands that a target can run, each as a submodule (``partition:triton``).

    Islands are convex and as few as can be; each unsupported node is recorded with every clause it fails. Islands whose
    modelled benefit is negative are left where they are, with the figure. ``partition:npu:apart`` makes an island of each
    independent branch, ``partition:npu:without=mm_1+relu`` leaves nodes out.

    Raises:
        UsageError: No such target, or a node to leave out that the graph does not have.
    """
    from fxscope.passes.cost import benefit_of
    from fxscope.passes.partition import partition, without
    from fxscope.passes.partition_report import peak_bytes
    from fxscope.passes.split import split
    from fxscope.targets.registry import target

    name, apart, left_out = _choices(str(context.options.get("argument") or ""))
    if unknown := sorted(left_out - {node.name for node in gm.graph.nodes}):
        raise UsageError(f"partition:{name} cannot leave out {', '.join(unknown)}: no such node here")
    machine = target(name)
    parts = partition(gm, machine.supports, benefit=benefit_of(machine), components=apart)
    if left_out:
        parts = without(gm, parts, [node for node in gm.graph.nodes if node.name in left_out])
    for node, failing in parts.clauses.items():
        codes = dict.fromkeys(clause.code for clause in failing)
        context.skip([node], next(iter(codes)), "; ".join(clause.text for clause in failing))
    for island in parts.islands:
        if island.dropped is not None:
            context.skip(island.nodes, "benefit", island.dropped)
        else:
            saved = "" if island.benefit is None else f", saves {island.benefit * 1e6:.1f} µs (modelled)"
            size = f"{peak_bytes(island.nodes) / 1e3:.1f} kB alive at most"
            context.apply(island.nodes, f"{count(len(island.nodes), 'node')} on {machine.name}{saved}, {size}")
    return split(gm, parts)


def check_target(argument: str) -> None:
    """Raises UsageError where there is no such target, or no such choice; MissingError where its package is."""
    from fxscope.targets.registry import target

    target(_choices(argument)[0])


def _choices(argument: str) -> tuple[str, bool, set[str]]:
    """Target, whether branches are islands of their own, and names of nodes to leave out."""
    name, *more = argument.split(":")
    if not name:
        raise UsageError("partition needs a target: partition:triton")
    apart, left_out = False, set()
    for part in more:
        key, _, listed = part.partition("=")
        if part == "apart":
            apart = True
        elif key == "without" and listed:
            left_out.update(listed.split("+"))
        else:
            raise UsageError(f"partition:{name} takes apart and without=NODE+NODE, not '{part}'")
    return name, apart, left_out
