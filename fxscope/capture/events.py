"""What the recorder adds to a trace log: ``artifact`` events named ``fxscope.*``, each with one JSON object as payload.

An event carries PyTorch's envelope: ``rank`` where there is one and, where it belongs to a compile, ``frame_id``,
``frame_compile_id``, ``attempt`` and ``compiled_autograd_id``. Times are Unix seconds, durations seconds, sizes counts of
elements. A reader must take a missing field as unknown, and ignore fields that it does not know.

``fxscope.session`` (first event of every log): ``fxscope`` (version of the recorder), ``argv`` (sys.argv, list of str),
    ``executable``, ``python`` ("3.11.7"), ``torch`` ("2.13.0+cpu"), ``triton`` (str or null), ``platform``, ``host``,
    ``cwd``, ``pid``, ``ppid``, ``rank`` and ``world_size`` (int or null), ``forked_from`` (pid of the process that this one
    was forked from after recording began there, or null), ``started`` (when recording began in this process),
    ``devices`` (list of {"type": "cpu"|"cuda"|..., "name", "count"}; GPUs appear once the program has used them),
    ``threads`` (torch.get_num_threads()), ``options`` (what ``fxscope run`` overrode: backend, mode, dynamic, config...),
    ``unavailable`` (list of {"feature", "reason"}: hooks that this torch lacks).
``fxscope.config`` (before the first compile of a thread and whenever it changed): ``thread`` (native id), ``main`` (bool: the
    main thread), ``values`` ({"torch._dynamo.config.recompile_limit": 8, ...}: settings that differ from their defaults;
    values that JSON lacks are given by their repr).
``fxscope.graph`` (per graph handed to a backend, before it compiles; within the compile): ``backend`` (name),
    ``backend_module`` (where the callable lives), ``mode`` (str or null), ``options`` (object or null), ``fullgraph`` (bool or null),
    ``dynamic`` (bool or null), ``ddp`` (bool: DDPOptimizer splits what it gets), ``nodes`` (all nodes), ``ops`` (call_* nodes), ``graph`` (its number in this process, 0-based), ``inputs``, ``constants``,
    ``tensors`` (file under the recording with their values, or null).
    ``inputs``: list, in placeholder order, of {"name", "source" ("L['x']" or null), "kind": "tensor"|"symint"|"symfloat"|
    "symbool"|"object", and for a tensor "dtype" ("torch.float32"), "shape" (list of int, or of str for a symbolic size:
    "s27"), "hint" (list of int or null: the shape at the first call), "stride" (as shape), "stride_hint" (as hint), "device" ("cpu"),
    "requires_grad", "parameter" (bool), "layout", "subclass" (class name or null); for a symbolic number "expression", "hint"; for an object "type" (class name)}.
    ``constants``: list of {"name" (the attribute that get_attr names), "dtype", "shape", "stride", "device",
    "requires_grad", "parameter"}.
``fxscope.launches`` (every second or two where something changed, and at the end): ``at``, ``final`` (bool), ``entries``: list of
    {"id": "0/0" (compile id as in a report, without attempt), "attempt", "graph" (as in fxscope.graph), "calls" (since the process or the recording
    began, a running total, never a difference)} and with --time-launches "forward" and, where a backward ran,
    "backward": {"samples", "total", "mean", "min", "max" (seconds of the samples), "clock": "host"|"device"}.
    Only entries that changed since the last flush are listed.
``fxscope.failure`` (an exception that leaves torch.compile for the program; within the compile): ``id``, ``phase``
    ("dynamo"|"backend"|"backward"|"fullgraph"|"constraint"; an exception that ended the program or a thread in a backward through
    compiled code has "backward", ``id`` "" and the whole traceback as ``stack``), ``type`` (class name of the exception), ``message`` (whole
    text), ``file``, ``line`` and ``function`` (the deepest user line that Dynamo was at, else the frame's own; "" and 0 where unknown), ``stack`` (list of
    {"file", "line", "function", "code"}, outermost first), ``cause`` ({"type", "message"} of the exception behind it, or null).
``fxscope.limit`` (a frame ran into the recompile limit; within the refused compile): ``function``, ``file``, ``line`` (first
    line of the function), ``limit`` ("recompile_limit"|"accumulated_recompile_limit"), ``value``, ``raised`` (bool: the program got an exception),
    ``calls`` (calls that its compiled entries had taken before, or null), ``counting`` (bool: ``fxscope.eager`` will say how many calls run eager).
``fxscope.eager`` (flushed as ``fxscope.launches``; Python 3.12 and later): ``at``, ``final``, ``entries``: list of {"function", "file", "line" (as in
    fxscope.limit), "calls" (that ran eager since the limit was hit, a running total)}, those that changed since the last flush.
``fxscope.fusion`` (--fusion-log; within the compile): ``lines``: list of str, Inductor's fusion decisions as it logs them.
``fxscope.end`` (last event, where the process lived to write it): ``at``, ``reason`` ("exit"|"stopped"), ``events`` (lines written),
    ``handler_seconds`` (time spent in our handler).
"""

from __future__ import annotations

import sys
from typing import Any


def compile_envelope() -> dict[str, Any]:
    """The envelope fields of the compile that is going on in this thread, as torch writes them; empty outside one."""
    guards = sys.modules.get("torch._guards")
    context = getattr(guards, "CompileContext", None)
    trace_id = context.current_trace_id() if context is not None else None
    if trace_id is None:
        return {}
    fields: dict[str, Any] = {}
    for name in ("compiled_autograd_id", "frame_id", "frame_compile_id"):
        value = getattr(trace_id.compile_id, name, None)
        if value is not None:
            fields[name] = value
    fields["attempt"] = trace_id.attempt
    return fields


def compile_id_text(envelope: dict[str, Any]) -> str:
    """``0/1``, or ``!2/0/1`` under compiled autograd; "" for an empty envelope. Attempts are not part of it."""
    autograd = envelope.get("compiled_autograd_id")
    frame = envelope.get("frame_id")
    parts = [] if autograd is None else [f"!{autograd}"]
    if frame is not None:
        parts.append(f"{frame}/{envelope.get('frame_compile_id')}")
    return "/".join(parts)


def rank_of_process() -> int | None:
    """The rank in an initialised process group, as torch's own log gives it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank: int = distributed.get_rank()
        return rank
    return None
