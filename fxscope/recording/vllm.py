"""What vLLM logs of its piecewise compiles: its configuration, how it split the model, and which part was compiled for which sizes.

vLLM writes ``vllm_compilation_config``, ``vllm_piecewise_split_graph``, one ``vllm_piecewise_compile_start`` per part and range of
sizes, and the graph of each part once (``vllm_submod_*``; ``vllm_subgraph_*`` in older versions). What Inductor writes until the
next start belongs to that part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.recording.metrics import integer
from fxscope.recording.process import OUTSIDE
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording

_CONFIG = "vllm_compilation_config"
_START = "vllm_piecewise_compile_start"
_SPLIT = "vllm_piecewise_split_graph"


class VllmPart(msgspec.Struct, kw_only=True):
    """One part of the model, compiled for one range of sizes.

    Attributes:
        name: As vLLM calls it, e.g. ``submod_0``.
        index: Its number among the parts that are compiled.
        sizes: ``1-8192``, ``8`` for a single size, "" where the log does not say.
        cudagraph: Whether it is a size that is captured as a CUDA graph.
        graph: Number of the event with its printed graph; None where another range of the same part has it.
        artifacts: Names of what was written while it was compiled, in order.
    """

    name: str
    index: int
    sizes: str
    cudagraph: bool = False
    graph: int | None = None
    artifacts: list[str] = msgspec.field(default_factory=list)


class VllmCompile(msgspec.Struct, kw_only=True):
    """One model (or part of one) that vLLM compiled.

    Attributes:
        compile_key: Key of the compile that Dynamo made of it; None where the log does not say.
        config: As logged: ``model``, ``prefix``, ``mode``, ``backend``, ``cudagraph_mode``, ``enabled_passes`` and so on, as text.
        split_graph: Number of the event with the split graph; None where none was logged.
        parts: In the order in which they were compiled.
    """

    compile_key: str | None
    config: dict[str, str] = msgspec.field(default_factory=dict)
    split_graph: int | None = None
    parts: list[VllmPart] = msgspec.field(default_factory=list)


def read_vllm(recording: Recording) -> list[VllmCompile]:
    """Every piecewise compile in a log, in order; an empty list where vLLM wrote none."""
    if not any(artifact.name.startswith("vllm_") for artifact in recording.artifacts):
        return []
    events = [(artifact.event, artifact.name, artifact.compile_key) for artifact in recording.artifacts]
    events += [(text.event, text.stage, row.key) for row in recording.compiles for text in row.graphs]
    found: list[VllmCompile] = []
    for event, name, key in sorted(set(events), key=lambda item: item[0]):
        begins = name == _CONFIG or (not found and name in (_START, _SPLIT))
        if begins:
            found.append(VllmCompile(compile_key=key))
        if not found or _frame(key) != _frame(found[-1].compile_key):
            continue  # of another compile, or before vLLM's own backend began
        compile_ = found[-1]
        last = compile_.parts[-1] if compile_.parts else None
        if name == _CONFIG:
            compile_.config = {str(k): str(v) for k, v in _json(recording, event).items()}
        elif name == _SPLIT:
            compile_.split_graph = event
        elif name == _START:
            compile_.parts.append(_part(_json(recording, event), len(compile_.parts)))
        elif last is not None and name.startswith(("vllm_submod_", "vllm_subgraph_")):
            last.graph = event
        elif last is not None:
            last.artifacts.append(name)
    return found


def _frame(key: str | None) -> str | None:
    return None if key is None or OUTSIDE in key else key


def _part(value: dict[str, Any], number: int) -> VllmPart:
    low, high = value.get("compile_range_start"), value.get("compile_range_end")
    single = value.get("is_single_size") or low == high
    return VllmPart(
        name=str(value.get("submod_name") or f"part {number}"),
        index=integer(value.get("piecewise_index"), number) or 0,
        sizes="" if low is None else str(low) if single else f"{low}-{high}",
        cudagraph=bool(value.get("is_cudagraph_capture_size")),
    )


def _json(recording: Recording, event: int) -> dict[str, Any]:
    try:
        value = decode_json(recording.text(event).encode("utf-8", "replace"))
    except BadEnvelope:
        return {}  # cut off: the part is still one that was compiled
    return value if isinstance(value, dict) else {}
