"""The graphs of a compile in the order of the stack."""

from __future__ import annotations

from fxscope.recording.records import STAGES, Compile


def graph_stages(compile_: Compile) -> list[tuple[str, int]]:
    """Stages of a compile that are graphs, in the order of the stack."""
    found = {(graph.stage, graph.index) for graph in compile_.graphs if not graph.stage.endswith(".code")}
    order = {stage: number for number, stage in enumerate(STAGES)}
    return sorted(found, key=lambda item: (order.get(item[0], 99), item))
