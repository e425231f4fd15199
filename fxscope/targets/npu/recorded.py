"""Recorded graphs on the NPU: rebuilt, lowered to ATen, partitioned, compiled; and the choices that were open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.targets.npu.device import NpuTarget
from fxscope.targets.npu.encoder_layer import decompositions

if TYPE_CHECKING:
    from pathlib import Path

    from torch.fx import GraphModule

    from fxscope.targets.backend import Lowered
    from fxscope.targets.npu.machine import Machine


def _aten(path: str | Path, graph_id: str | None, stage: str) -> GraphModule:
    from fxscope.passes.aten import to_aten
    from fxscope.passes.recorded import load

    found = load(path, graph_id, stage)
    return to_aten(found.module, found.inputs, decompositions=decompositions())


def lower_recorded(path: str | Path, graph_id: str | None, stage: str, machine: Machine, softmax: str) -> Lowered:
    """A recorded graph as the NPU runs it.

    Raises:
        UsageError: No such graph, or it cannot be rebuilt or compiled.
    """
    from fxscope.targets.backend import lower

    return lower(NpuTarget(machine, softmax=softmax), _aten(path, graph_id, stage))


def islands_of(path: str | Path, graph_id: str | None, stage: str, machine: Machine) -> list[GraphModule]:
    """The islands of a recorded graph, not compiled yet."""
    from fxscope.passes.partition import partition
    from fxscope.passes.split import extract

    aten = _aten(path, graph_id, stage)
    parts = partition(aten, NpuTarget(machine).supports)
    return [extract(aten, island.nodes) for island in parts.kept]


def choices(made: Lowered, machine: Machine) -> list[dict[str, Any]]:
    """Softmax on the vector unit against softmax on the host: islands, modelled time and boundary bytes of both.

    The host's own time for softmax is not in the figures: only what the NPU and the boundary take.
    """
    names = [str(node.target) for node in made.aten.graph.nodes if node.op == "call_function"]
    if not any("softmax" in name for name in names):
        return []
    from fxscope.targets.backend import lower

    rows = []
    for softmax in ("decompose", "host"):
        other = lower(NpuTarget(machine, softmax=softmax, tried=1), made.aten)
        islands = list(other.executables.values())
        rows.append(
            {
                "softmax": softmax,
                "islands": len(islands),
                "microseconds": sum(island.modelled_seconds() or 0.0 for island in islands) * 1e6,
                "boundary_bytes": sum(island.boundary_bytes for island in islands),  # type: ignore[attr-defined]
            }
        )
    for row in rows:
        row["text"] = (
            f"softmax={row['softmax']}: {row['islands']} island{'s' if row['islands'] != 1 else ''}, "
            f"{row['microseconds']:,.1f} us modelled on the NPU, boundary {row['boundary_bytes']:,} bytes"
        )
    return rows
