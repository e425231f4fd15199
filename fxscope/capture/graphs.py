"""The choke point: every graph that Dynamo hands to a backend passes here, and what the backend returns is counted."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from fxscope.capture.describe import describe_backend, describe_constants, describe_inputs
from fxscope.capture.events import compile_envelope, compile_id_text
from fxscope.capture.facts import unavailable
from fxscope.capture.launches import ENTRIES, FLUSHER, Entry
from fxscope.capture.recorder import ACTIVE
from fxscope.capture.tracelog import warn
from fxscope.names import EVENT_GRAPH

_faults: set[str] = set()


def hook_output_graph(module: ModuleType) -> None:
    """Wrap ``OutputGraph.call_user_compiler``: below the cache of backends, so that no guard sees a new backend."""
    owner = getattr(module, "OutputGraph", None)
    original = getattr(owner, "call_user_compiler", None)
    if owner is None or original is None:
        unavailable("graphs and call counts", "torch._dynamo.output_graph.OutputGraph.call_user_compiler is missing")
        return

    @functools.wraps(original)
    def call_user_compiler(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        if not ACTIVE:
            return original(self, gm, *args, **kwargs)
        entry = _announce(self, gm)
        compiled = original(self, gm, *args, **kwargs)
        return compiled if entry is None else _count(self, compiled, entry, gm)

    owner.call_user_compiler = call_user_compiler


def _announce(output_graph: Any, gm: Any) -> Entry | None:
    """Write ``fxscope.graph`` for one graph; None where a fault of ours kept us from it."""
    try:
        envelope = compile_envelope()
        root = getattr(output_graph, "root_tx", None)
        code = getattr(root, "f_code", None)
        entry = Entry(compile_id_text(envelope), envelope.get("attempt", 0), len(ENTRIES), code)
        ENTRIES.append(entry)
        nodes = list(gm.graph.nodes)
        payload: dict[str, Any] = {
            **describe_backend(getattr(output_graph, "compiler_fn", None)),
            "fullgraph": getattr(root, "one_graph", None),
            "graph": entry.graph,
            "nodes": len(nodes),
            "ops": sum(node.op.startswith("call_") for node in nodes),
            "inputs": describe_inputs(nodes),
            "constants": describe_constants(gm),
        }
        for recorder in list(ACTIVE):
            tensors = None
            if recorder.options.save_tensors:
                from fxscope.capture.tensors import tensor_file

                tensors = tensor_file(entry)
            recorder.artifact(EVENT_GRAPH, {**payload, "tensors": tensors}, envelope)
    except Exception as error:  # noqa: BLE001 - the compile goes on without our event
        _fault("describing a graph", error)
        return None
    return entry


def _count(output_graph: Any, compiled: Any, entry: Entry, gm: Any) -> Any:
    """The compiled function, counted; as it was where somebody downstream needs the very object."""
    if getattr(output_graph, "package", None) is not None or getattr(output_graph, "export", False):
        return compiled  # precompilation serialises the object itself
    try:
        function = _materialise(compiled)
        if any(recorder.options.save_tensors for recorder in ACTIVE):
            from fxscope.capture.tensors import saving

            function = saving(function, gm, entry)
        if any(recorder.options.time_launches for recorder in ACTIVE):
            from fxscope.capture.timing import timed

            function = timed(function, entry)
        FLUSHER.start()
        return entry.counting(function)
    except Exception as error:  # noqa: BLE001 - the compiled function itself is fine
        _fault("counting calls", error)
        return compiled


def _materialise(compiled: Any) -> Any:
    """What Dynamo does to a lazy graph module that a backend returns, before our wrapper hides it."""
    lazy = getattr(sys.modules.get("torch.fx._lazy_graph_module"), "_LazyGraphModule", None)
    if lazy is None:
        return compiled
    owner = getattr(compiled, "__self__", None)
    if isinstance(compiled, lazy):
        lazy.force_recompile(compiled)
    elif isinstance(owner, lazy) and compiled.__name__ == "_lazy_forward":
        lazy.force_recompile(owner)
        return owner.forward
    return compiled


def _fault(feature: str, error: Exception) -> None:
    """One line per feature that failed, however often it fails."""
    if feature not in _faults:
        _faults.add(feature)
        warn(f"{feature} failed on this torch ({type(error).__name__}: {error}); recording goes on without it")
