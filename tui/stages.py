"""The graphs of a compile by stage: ``forward``, and ``forward#1`` for the second of several, as ``--stage`` takes it."""

from __future__ import annotations

from fxscope.recording.records import STAGES, Compile


def graph_stages(compile_: Compile) -> list[tuple[str, int]]:
    """Stages of a compile that are graphs, in the order of the stack."""
    found = {(graph.stage, graph.index) for graph in compile_.graphs if not graph.stage.endswith(".code")}
    order = {stage: number for number, stage in enumerate(STAGES)}
    return sorted(found, key=lambda item: (order.get(item[0], 99), item))


def stage_name(stage: str, index: int) -> str:
    """How a graph's stage is written."""
    return f"{stage}#{index}" if index else stage


def stage_of(name: str) -> tuple[str, int]:
    """A written stage in its parts."""
    stage, _, index = name.partition("#")
    return stage, int(index or 0)
