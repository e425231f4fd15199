"""The event model's timeline as a Chrome trace, which Perfetto opens."""

from __future__ import annotations

from typing import Any

from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.program import Program
from fxscope.targets.npu.simulate import Timing

SCHEMA = "fxscope.npu-timeline/1"
_LANES = {"l": (1, "load"), "x": (2, "execute"), "s": (3, "store")}


def chrome_trace(program: Program, timing: Timing, machine: Machine) -> dict[str, Any]:
    """One slice per instruction that takes time, on its engine's lane; tile loop nests on a lane of their own.

    Times are microseconds, as the format wants them; ``args`` carries cycles.
    """
    scale = 1e-3 / machine.clock_ghz
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"NPU {machine.name} (modelled)"}}
    ]
    for lane, name in ((0, "ops"), *_LANES.values()):
        events.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": lane, "args": {"name": name}})
    spans: dict[int, list[float]] = {}
    rows = zip(program.instructions, timing.starts, timing.ends, timing.done, timing.queues, timing.costs, strict=True)
    for index, (instruction, start, end, done, queue, cost) in enumerate(rows):
        entry = program.entry(instruction.dbg)
        span = spans.setdefault(entry.group, [start, done])
        span[0], span[1] = min(span[0], start), max(span[1], done)
        if end <= start:
            continue
        args: dict[str, Any] = {"instruction": index, "cycles": end - start, "node": entry.node, "source": entry.source}
        if cost.bytes:
            args["bytes"] = cost.bytes
        if cost.macs:
            args["macs"] = cost.macs
        events.append(
            {
                "name": f"{instruction.op} {entry.role}".strip(),
                "cat": queue,
                "ph": "X",
                "ts": start * scale,
                "dur": (end - start) * scale,
                "pid": 1,
                "tid": _LANES[queue][0],
                "args": args,
            }
        )
    for group, (start, end) in spans.items():
        name = program.groups[group] if group < len(program.groups) else "program"
        events.append(
            {
                "name": name,
                "cat": "op",
                "ph": "X",
                "ts": start * scale,
                "dur": (end - start) * scale,
                "pid": 1,
                "tid": 0,
            }
        )
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"schema": SCHEMA, "machine": machine.name, "clock_ghz": machine.clock_ghz, "modelled": True},
    }
