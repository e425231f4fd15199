"""One graph out of a recording: parsed, its inputs named after the program, its symbols with the values the run had."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fxscope.errors import UsageError
from fxscope.graph.modules import adopt_originals
from fxscope.graph.parse import parse_graph
from fxscope.graph.records import Graph

_NUMBER = re.compile(r"-?[0-9]{1,18}")

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile


def load_graph(recording: Recording, compile_: Compile, stage: str = "dynamo", index: int = 0) -> Graph:
    """Parse one graph of a compile.

    Args:
        recording: From ``open_recording``.
        compile_: From ``recording.find``.
        stage: One of ``recording.records.STAGES`` that is a graph, not generated code.
        index: Which of several texts of that stage.

    Raises:
        UsageError: There is no such graph; the stages that are there are named.
    """
    if stage.endswith(".code"):
        raise UsageError(f"{stage} is generated code, not a graph; graphs are the stages without .code")
    text = recording.text(recording.graph(compile_, stage, index).event)
    graph = parse_graph(text, stage=stage)
    if stage not in ("dynamo", "pre_grad") and any(each.stage == "dynamo" for each in compile_.graphs):
        dynamo = parse_graph(recording.text(recording.graph(compile_, "dynamo").event), stage="dynamo")
        adopt_originals(graph, dynamo)
    return graph


def choose_compile(recording: Recording, graph_id: str | None) -> Compile:
    """The compile with the given id; without one, the only compile that has a graph.

    Raises:
        UsageError: No such id, no graph at all, or several to choose from; they are listed.
    """
    if graph_id is not None:
        return recording.find(graph_id)
    found = [each for each in recording.compiles if any(not text.stage.endswith(".code") for text in each.graphs)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{recording.path} has no graph: nothing was compiled, or the log ends before")
    names = [f"{each.key} ({each.function}, {each.nodes or '?'} nodes)" for each in found]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise UsageError(f"several graphs to choose from: {shown}; name one with --graph ID")


def recorded_symbols(recording: Recording, compile_: Compile) -> dict[str, int]:
    """Values that symbolic sizes had when the graph was made, as far as the log says (``create_symbol`` events)."""
    values: dict[str, int] = {}
    for event in recording.shape_events:
        if event.kind == "symbol" and event.compile_key == compile_.key and _NUMBER.fullmatch(event.value):
            values[event.symbol] = int(event.value)
    return values
