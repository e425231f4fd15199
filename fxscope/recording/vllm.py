"""What vLLM logs of its piecewise compiles: its configuration, how it split the model, and which part was compiled for which sizes.

vLLM writes ``vllm_compile_event`` (whether its own cache had the whole), ``vllm_compilation_config``, the patterns that its passes
look for (``vllm_patterns.PASS``), ``vllm_piecewise_split_graph``, one ``vllm_piecewise_compile_start`` per part and range of sizes,
and the graph of each part once (``vllm_submod_*``; ``vllm_subgraph_*`` in older versions). What Inductor writes until the next start
belongs to that part, the graph after each of vLLM's own passes included (``vllm_post_grad.N.PASS``). At the end comes the code that
calls the parts (``vllm_execution_code``). Formats: vLLM's ``compilation/backends.py``, ``piecewise_backend.py`` and ``codegen.py``
(0.33), the rest as tlparse's parser reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.recording.lookup import stage_name
from fxscope.recording.metrics import integer
from fxscope.recording.process import OUTSIDE
from fxscope.recording.state import split_number
from fxscope.trace.clock import naive_seconds
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording

_CONFIG = "vllm_compilation_config"
_START = "vllm_piecewise_compile_start"
_SPLIT = "vllm_piecewise_split_graph"
_EVENT = "vllm_compile_event"
_CODE = "vllm_execution_code"
_PATTERNS = "vllm_patterns."
_PASS = "vllm_post_grad."
_BEFORE_PASSES = "before_post_grad_graph"
_LEAP_YEAR = 2024  # the log prints none, and a difference of two times needs one that has every day


class VllmPass(msgspec.Struct, kw_only=True):
    """One of vLLM's own passes over the graph of a part, after Inductor's.

    Attributes:
        name: Of the pass, e.g. ``RMSNormQuantFusionPass``.
        graph: Number of the event with the graph after it.
        before: Of the one with the graph before it; None where the log does not have that.
    """

    name: str
    graph: int
    before: int | None = None


class VllmPart(msgspec.Struct, kw_only=True):
    """One part of the model, compiled for one range of sizes.

    Attributes:
        name: As vLLM calls it, e.g. ``submod_0``.
        index: Its number among the parts that are compiled.
        sizes: ``1-8192``, ``8`` for a single size, "" where the log does not say.
        cudagraph: Whether it is a size that is captured as a CUDA graph.
        seconds: From its start to the last that was written of it, by the clock of the log.
        graph: Number of the event with its printed graph; None where another range of the same part has it.
        artifacts: Names of what was written while it was compiled, in order; graphs and code as ``--stage`` takes them
            (``forward.code#2``).
        passes: vLLM's own passes, in the order in which they ran.
    """

    name: str
    index: int
    sizes: str
    cudagraph: bool = False
    seconds: float = 0.0
    graph: int | None = None
    artifacts: list[str] = msgspec.field(default_factory=list)
    passes: list[VllmPass] = msgspec.field(default_factory=list)


class VllmCompile(msgspec.Struct, kw_only=True):
    """One model (or part of one) that vLLM compiled.

    Attributes:
        compile_key: Key of the compile that Dynamo made of it; None where the log does not say.
        config: As logged: ``model``, ``prefix``, ``mode``, ``backend``, ``cudagraph_mode``, ``enabled_passes`` and so on, as text.
        event: ``fresh_compile`` or ``aot_cache_hit``; "" where the log does not say.
        split_graph: Number of the event with the split graph; None where none was logged.
        execution_code: Number of the event with the code that calls the parts; None where none was logged.
        patterns: Pass to the number of the event with the patterns that it looks for.
        parts: In the order in which they were compiled.
    """

    compile_key: str | None
    config: dict[str, str] = msgspec.field(default_factory=dict)
    event: str = ""
    split_graph: int | None = None
    execution_code: int | None = None
    patterns: dict[str, int] = msgspec.field(default_factory=dict)
    parts: list[VllmPart] = msgspec.field(default_factory=list)


def read_vllm(recording: Recording) -> list[VllmCompile]:
    """Every piecewise compile in a log, in order; an empty list where vLLM wrote none."""
    if not any(artifact.name.startswith("vllm_") for artifact in recording.artifacts):
        return []
    events = [(artifact.event, artifact.name, artifact.compile_key) for artifact in recording.artifacts]
    events += [
        (text.event, stage_name(text.stage, text.index), row.key) for row in recording.compiles for text in row.graphs
    ]
    reader = _Reader(recording)
    for event, name, key in sorted(set(events), key=lambda item: item[0]):
        reader.take(event, name, key)
    return reader.finish()


class _Reader:
    """Puts events, in the order of the log, into compiles and their parts."""

    def __init__(self, recording: Recording) -> None:
        self.found: list[VllmCompile] = []
        self._recording = recording
        self._log = -1  # of the last compile
        self._reading = -1
        self._event = ""  # what came before its configuration
        self._patterns: dict[str, int] = {}
        self._graph: int | None = None  # of the part, after the last pass
        self._began = 0.0  # the part

    def take(self, event: int, name: str, key: str | None) -> None:
        log = split_number(event)[0]
        if log != self._reading:
            self.finish()
            self._reading, self._event, self._patterns = log, "", {}
        # The cache is asked, and the passes are made, before the configuration of the compile is told.
        if name == _EVENT:
            self._event = str(_json(self._recording, event).get("type") or "")
            return
        if name.startswith(_PATTERNS):
            self._patterns[name.removeprefix(_PATTERNS)] = event
            return
        if name == _CONFIG or (not self.found and name in (_START, _SPLIT)):
            self.found.append(VllmCompile(compile_key=key, event=self._event, patterns=self._patterns))
            self._log, self._event, self._patterns, self._graph = log, "", {}, None
        if self.found and log == self._log and self._is_of(key):
            self._place(self.found[-1], event, name)

    def finish(self) -> list[VllmCompile]:
        """All compiles, when a log is at its end: patterns that no configuration followed are those of its last one."""
        if self.found and self._log == self._reading:
            self.found[-1].patterns.update(self._patterns)
        return self.found

    def _is_of(self, key: str | None) -> bool:
        """Whether an event may belong to the last compile: vLLM compiles parts in threads, whose events name no frame."""
        return key is None or OUTSIDE in key or key == self.found[-1].compile_key

    def _place(self, compile_: VllmCompile, event: int, name: str) -> None:
        last = compile_.parts[-1] if compile_.parts else None
        if name == _CONFIG:
            compile_.config = {str(k): str(v) for k, v in _json(self._recording, event).items()}
        elif name == _SPLIT:
            compile_.split_graph = event
        elif name == _START:
            part = _part(_json(self._recording, event), len(compile_.parts))
            # vLLM's own flag says whether the size is one that is compiled by itself, captured or not.
            part.cudagraph = part.cudagraph and compile_.config.get("cudagraph_mode") != "NONE"
            compile_.parts.append(part)
            self._graph, self._began = None, self._time(event)
        elif name == _CODE:
            compile_.execution_code = event
        elif last is not None:
            last.seconds = max(last.seconds, self._time(event) - self._began)
            self._place_in(last, event, name)

    def _time(self, event: int) -> float:
        return naive_seconds(self._recording.event(event).when, _LEAP_YEAR)

    def _place_in(self, last: VllmPart, event: int, name: str) -> None:
        if name.startswith(("vllm_submod_", "vllm_subgraph_")):
            last.graph = event
        elif name.startswith(_PASS):
            last.passes.append(VllmPass(name=name.split(".", 2)[-1], graph=event, before=self._graph))
            self._graph = event
        else:
            last.artifacts.append(name)
            if name == _BEFORE_PASSES:
                self._graph = event


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
