"""A whole graph as each executor runs it: by itself, compiled, or cut into a target's islands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.errors import MissingError
from fxscope.passes.aten import to_aten
from fxscope.passes.cost import ASSUMED, Machine, benefit_of, eager_seconds
from fxscope.passes.partition_report import PartitionReport, report
from fxscope.targets.backend import lower, nothing_supported
from fxscope.targets.registry import target as find_target
from fxscope.targets.target import Executable, Kind, Listing, Target
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule

REFERENCE = ("eager", "inductor")


@dataclass(kw_only=True)
class Executor:
    """One graph, ready to run.

    Attributes:
        launches: Kernels, programs or eager ops that one call starts.
        modelled: Modelled seconds of one call, None where the time is measured.
        note: What a reader of the row must know.
        partition: What a target runs of the graph, None for the reference executors.
        nodes: By name the line of every node of the graph that ``listings`` speak of; empty for the reference executors.
    """

    name: str
    kind: Kind
    call: Callable[..., Any]
    launches: int
    modelled: float | None = None
    note: str = ""
    listings: tuple[Listing, ...] = ()
    partition: PartitionReport | None = None
    nodes: dict[str, str] = field(default_factory=dict)


def prepare(
    name: str | Target,
    gm: GraphModule,
    inputs: Sequence[Any],
    *,
    machine: Machine = ASSUMED,
    benefit: bool = False,
    decompositions: str = "inductor",
) -> Executor:
    """Make a graph ready for one executor.

    ``eager`` and ``inductor`` take the graph as it is. Any other target gets it as functional ATen, cut into islands; what it
    does not support runs eagerly.

    Args:
        name: A target, or its name.
        gm: The graph.
        inputs: Example inputs.
        machine: Ceilings for what runs eagerly beside a modelled target.
        benefit: Drop islands whose modelled benefit is negative.
        decompositions: See ``passes.aten.decomposition_table``.

    Raises:
        MissingError: The target cannot run here; the message names what installs it.
        fxscope.errors.FxscopeError: Lowering or compiling failed, in one line.
    """
    machine_target = find_target(name) if isinstance(name, str) else name
    missing = machine_target.unavailable()
    if missing is not None:
        raise MissingError(missing)
    if machine_target.name in REFERENCE:
        executable = machine_target.compile(gm, inputs)
        return Executor(
            name=machine_target.name,
            kind=executable.kind,
            call=executable,
            launches=executable.launches,
            listings=tuple(executable.listings()),
        )
    aten = to_aten(gm, inputs, decompositions=decompositions)
    lowered = lower(machine_target, aten, benefit=benefit_of(machine_target, machine) if benefit else None)
    rest = _eager_rest(lowered.module, lowered.executables)
    seconds = [item.modelled_seconds() for item in lowered.executables.values()]
    modelled = None
    kind: Kind = "measured"
    if any(item.kind != "measured" for item in lowered.executables.values()):
        kind = next(item.kind for item in lowered.executables.values() if item.kind != "measured")
        if all(item is not None for item in seconds):
            modelled = sum(item for item in seconds if item is not None) + rest[1](machine)
    note = f"{count(len(lowered.executables), 'island')}, {lowered.coverage:.0%} of the nodes"
    if not lowered.executables:
        note = nothing_supported(machine_target.name, lowered)
    elif rest[0]:
        note += f", {count(rest[0], 'op runs', 'ops run')} eagerly beside"
    return Executor(
        name=machine_target.name,
        kind=kind,
        call=lowered.module,
        launches=sum(item.launches for item in lowered.executables.values()) + rest[0],
        modelled=modelled,
        note=note,
        listings=tuple(_titled(lowered.executables)),
        partition=report(aten, lowered.partition, lowered.coverage),
        nodes=node_lines(aten),
    )


def _titled(executables: Mapping[str, Executable]) -> Iterator[Listing]:
    """The sources of all islands, with the island's number in the title where there are several."""
    for name, executable in executables.items():
        for listing in executable.listings():
            title = f"{name.replace('_', ' ')}: {listing.title}" if len(executables) > 1 else listing.title
            yield msgspec.structs.replace(listing, title=title)


def node_lines(gm: GraphModule) -> dict[str, str]:
    """By name a line for every node that computes: ``relu: f32[4, 16] = aten.relu.default(add)``."""
    from fxscope.graph.arguments import call_text
    from fxscope.graph.histogram import short_target
    from fxscope.graph.table import shape_text
    from fxscope.passes.fx_records import records

    return {
        node.name: f"{node.name}: {shape_text(node)} = {short_target(node.target)}({call_text(node)})"
        for node in records(gm).nodes
        if node.op == "call_function"
    }


def _eager_rest(module: GraphModule, executables: Any) -> tuple[int, Callable[[Machine], float]]:
    """How many ops stay eager beside the islands, and what they would take (modelled)."""
    import operator

    from fxscope.passes.no_ops import is_no_op
    from fxscope.passes.order import is_compute

    ops = sum(
        is_compute(node)
        and str(node.target) not in executables
        and node.target is not operator.getitem
        and not is_no_op(node)
        for node in module.graph.nodes
    )

    def seconds(machine: Machine) -> float:
        total = eager_seconds(module, machine)
        return total - machine.launch * len(executables)  # eager_seconds counted a launch for each island's call

    return ops, seconds
