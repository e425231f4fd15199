"""``fxscope bench --json``: the table, and what it is read against."""

from __future__ import annotations

from typing import Literal

import msgspec

from fxscope.launch.compare import Comparison, Row
from fxscope.launch.sweep import Sweep
from fxscope.launch.traffic import Traffic
from fxscope.passes.cost import Machine
from fxscope.passes.partition_report import PartitionReport
from fxscope.targets.target import Listing


class BenchDocument(msgspec.Struct, kw_only=True):
    """Everything ``fxscope bench`` shows.

    Attributes:
        reference: What the results were compared with.
        listings: Sources by executor, with ``--sources``.
        nodes: By target, the line of each node that its sources speak of, by name; with ``--sources``.
    """

    schema: Literal["fxscope.bench/1"] = "fxscope.bench/1"
    graph: str
    stage: str
    device: str
    rows: list[Row]
    reference: str
    traffic: Traffic | None
    machine: Machine
    partitions: dict[str, PartitionReport]
    notes: list[str]
    sweep: Sweep | None = None
    listings: dict[str, list[Listing]] | None = None
    nodes: dict[str, dict[str, str]] | None = None


def bench_document(
    found: Comparison,
    *,
    graph: str,
    stage: str,
    device: str,
    notes: list[str],
    sources: bool,
    sweep: Sweep | None = None,
) -> BenchDocument:
    """The document of a comparison."""
    return BenchDocument(
        graph=graph,
        stage=stage,
        device=device,
        rows=found.rows,
        reference=found.reference,
        traffic=found.traffic,
        machine=found.machine,
        partitions=found.partitions,
        notes=[*notes, *found.notes],
        sweep=sweep,
        listings=found.listings if sources else None,
        nodes=found.nodes if sources else None,
    )
