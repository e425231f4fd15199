"""The event model's timeline as a Chrome trace, which Perfetto opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.program import Program
from fxscope.targets.npu.simulate import Timing

SCHEMA = "fxscope.npu-timeline/1"
_LANES = {"l": (1, "load"), "x": (2, "execute"), "s": (3, "store")}
_OPS = 10  # lanes of loop nests, from here on


def merged(traces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several islands in one trace, each a process of its own from time 0."""
    return {**traces[0], "traceEvents": [event for trace in traces for event in trace["traceEvents"]]}


def chrome_trace(program: Program, timing: Timing, machine: Machine, *, island: int = 0) -> dict[str, Any]:
    """One slice per instruction that takes time, on its engine's lane; tile loop nests on lanes of their own.

    Slices of one lane never overlap: an engine does one thing at a time, and a loop nest that begins (its operands are
    prefetched) before another has ended takes the next lane. Times are microseconds, as the format wants them, in whole
    nanoseconds; ``args`` carries cycles.
    """

    def nanoseconds(cycles: float) -> int:
        return round(cycles / machine.clock_ghz)

    def piece(name: str, category: str, start: float, end: float, lane: int, args: dict[str, Any]) -> dict[str, Any]:
        begin = nanoseconds(start)
        return {
            "name": name, "cat": category, "ph": "X", "ts": begin / 1000, "dur": (nanoseconds(end) - begin) / 1000, "pid": island + 1,
            "tid": lane, "args": args,
        }  # fmt: skip

    slices: list[dict[str, Any]] = []
    spans: dict[int, list[float]] = {}
    rows = zip(program.instructions, timing.starts, timing.ends, timing.done, timing.queues, timing.costs, strict=True)
    for index, (instruction, start, end, done, queue, cost) in enumerate(rows):
        entry = program.entry(instruction.dbg)
        if entry.node:
            span = spans.setdefault(entry.group, [start, done])
            span[0], span[1] = min(span[0], start), max(span[1], done)
        if end <= start:
            continue
        args: dict[str, Any] = {
            "op": instruction.op, "instruction": index, "cycles": end - start, "node": entry.node, "source": entry.source,
        }  # fmt: skip
        if cost.bytes:
            args["bytes"] = cost.bytes
        if cost.macs:
            args["macs"] = cost.macs
        slices.append(piece(entry.role or instruction.op, queue, start, end, _LANES[queue][0], args))
    free: list[float] = []  # when each lane of loop nests is free again
    for group, (start, end) in sorted(spans.items(), key=lambda item: item[1]):
        name = program.groups[group] if group < len(program.groups) else f"group {group}"
        lane = next((number for number, at in enumerate(free) if at <= start), len(free))
        free[lane : lane + 1] = [end]
        slices.append(piece(name, "op", start, end, _OPS + lane, {"group": group, "cycles": end - start}))
    names = [(lane, name) for lane, name in _LANES.values()]
    names += [(_OPS + lane, "ops" if lane == 0 else f"ops, overlapping {lane}") for lane in range(len(free))]
    head: list[dict[str, Any]] = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": island + 1,
            "args": {"name": f"NPU {machine.name}, island {island} (modelled)"},
        }
    ]
    for order, (lane, name) in enumerate(sorted(names, key=lambda pair: (pair[0] < _OPS, pair[0]))):
        head.append({"name": "thread_name", "ph": "M", "pid": island + 1, "tid": lane, "args": {"name": name}})
        head.append(
            {"name": "thread_sort_index", "ph": "M", "pid": island + 1, "tid": lane, "args": {"sort_index": order}}
        )
    return {
        "traceEvents": [*head, *slices],
        "displayTimeUnit": "ns",
        "otherData": {"schema": SCHEMA, "machine": machine.name, "clock_ghz": machine.clock_ghz, "modelled": True},
    }
