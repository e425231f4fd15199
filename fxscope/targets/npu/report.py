"""What a program costs: per-op table, memory, totals; every figure modelled, with its assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.targets.npu.groups import Matrix
from fxscope.targets.npu.operands import ACC, SPAD, steps
from fxscope.targets.npu.simulate import Timing, simulate
from fxscope.targets.npu.timing import ASSUMPTIONS, knee, mapping_efficiency
from fxscope.targets.target import Cost
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fxscope.targets.backend import Lowered
    from fxscope.targets.npu.compile import Compiled
    from fxscope.targets.npu.executable import NpuExecutable
    from fxscope.targets.npu.machine import Machine

POLES = {"l": "load", "x": "execute", "s": "store"}


class OpRow(msgspec.Struct, kw_only=True):
    """One tile loop nest.

    Attributes:
        cycles: By how much it moves the end of the program; the rows add up to the total.
        busy: Cycles of each engine.
        pole: The engine that takes longest, and ``next``: how far the next one is, as a share of it.
        utilisation: MACs over cycles x array; ``mapping``: cells that hold work while the array runs.
        spad, acc: Bytes of local memory it touches.
        refetch: How often a convolution's gather reads each pixel; 1 for matrices.
        bytes: Moved to and from main memory and on-chip memory; ``bound``: each operand once, 0 where unknown.
        intensity: Operations per byte of main memory; ``roofline``: ``memory`` or ``compute``.
    """

    index: int
    kind: str
    nodes: list[str]
    source: str = ""
    tile: str = ""
    cycles: float = 0.0
    busy: dict[str, float]
    pole: str = ""
    next: float = 0.0
    macs: int = 0
    utilisation: float = 0.0
    mapping: float = 0.0
    spad: int = 0
    acc: int = 0
    bytes: int = 0
    chip_bytes: int = 0
    bound: int = 0
    refetch: float = 1.0
    intensity: float = 0.0
    roofline: str = ""
    instructions: int = 0


class Memory(msgspec.Struct, kw_only=True):
    """Plan of one region: peak, lower bound (most bytes alive at once), their ratio."""

    region: str
    peak: int
    bound: int
    fragmentation: float


class Live(msgspec.Struct, kw_only=True):
    """One intermediate tensor: where it lies and from which to which op it lives."""

    name: str
    region: str
    offset: int
    bytes: int
    first: int
    last: int
    spilled: str = ""


class NpuReport(msgspec.Struct, kw_only=True):
    """Everything about one program on one machine. All times are modelled."""

    machine: str
    clock_ghz: float
    modelled: bool = True
    instructions: int = 0
    cycles: float = 0.0
    lower: float = 0.0
    upper: float = 0.0
    microseconds: float = 0.0
    boundary_bytes: int = 0
    boundary_microseconds: float = 0.0
    macs: int = 0
    utilisation: float = 0.0
    dram_bytes: int = 0
    chip_bytes: int = 0
    fetched_bytes: int = 0
    knee: float = 0.0
    ops: list[OpRow] = msgspec.field(default_factory=list)
    memory: list[Memory] = msgspec.field(default_factory=list)
    live: list[Live] = msgspec.field(default_factory=list)
    assumptions: tuple[str, ...] = ASSUMPTIONS


def report(compiled: Compiled, timing: Timing | None = None, boundary_bytes: int = 0) -> NpuReport:
    """The report of a compiled island."""
    machine, program = compiled.machine, compiled.program
    timing = timing or simulate(program.instructions, machine)
    rows = _rows(compiled, timing)
    macs = sum(row.macs for row in rows)
    cells = machine.array.rows * machine.array.cols
    host = boundary_bytes / machine.host.bytes_per_cycle + machine.host.launch_cycles
    return NpuReport(
        machine=machine.name,
        clock_ghz=machine.clock_ghz,
        instructions=len(program.instructions),
        cycles=timing.total,
        lower=timing.lower,
        upper=timing.upper,
        microseconds=machine.seconds(timing.total) * 1e6,
        boundary_bytes=boundary_bytes,
        boundary_microseconds=machine.seconds(host) * 1e6,
        macs=macs,
        utilisation=macs / (timing.total * cells) if timing.total else 0.0,
        dram_bytes=timing.moved["dram"],
        chip_bytes=timing.moved["chip"],
        fetched_bytes=timing.fetched,
        knee=knee(machine),
        ops=rows,
        memory=[
            Memory(region=m.region, peak=m.peak, bound=m.bound, fragmentation=m.fragmentation) for m in compiled.memory
        ],
        live=[
            Live(
                name=t.name,
                region=t.region,
                offset=t.offset,
                bytes=t.bytes,
                first=t.first,
                last=t.last,
                spilled=t.spilled,
            )
            for t in program.tensors
            if t.region in ("a", "c")
        ],
    )


def _rows(compiled: Compiled, timing: Timing) -> list[OpRow]:
    machine, program = compiled.machine, compiled.program
    sources = {entry.node: entry.source for entry in program.debug}
    rows = []
    for index, group in enumerate(compiled.groups):
        note: dict[str, Any] = group.note
        row = OpRow(
            index=index,
            kind=group.kind,
            nodes=group.nodes,
            source=sources.get(group.nodes[0], ""),
            tile=str(note.get("tile", "")),
            busy=dict.fromkeys("lxs", 0.0),
            macs=int(note.get("macs", 0)),
            bound=int(note.get("bound", 0)),
            refetch=float(note.get("refetch", 1.0)),
        )
        if isinstance(group.anchor, Matrix):
            row.mapping = mapping_efficiency(machine, group.anchor.m, group.anchor.n, group.anchor.k)
        rows.append(row)
    finished = [0.0] * len(rows)
    extent: dict[tuple[int, str], int] = {}
    line = machine.local.line_bytes
    for step, cost, done in zip(steps(program.instructions, machine), timing.costs, timing.done, strict=True):
        at = program.debug[step.instruction.dbg].group
        row = rows[at]
        row.busy[step.queue] += cost.busy
        row.instructions += 1
        finished[at] = max(finished[at], done)
        if cost.memory == "dram":
            row.bytes += cost.bytes
        elif cost.memory == "chip":
            row.chip_bytes += cost.bytes
        for block in (*step.reads, *step.writes):
            if block.memory in (SPAD, ACC):
                extent[at, block.memory] = max(extent.get((at, block.memory), 0), -(-block.end // line) * line)
    before = 0.0
    for at, row in enumerate(rows):
        row.cycles = max(0.0, finished[at] - before)
        before = max(before, finished[at])
        row.spad, row.acc = extent.get((at, SPAD), 0), extent.get((at, ACC), 0)
        _judge(row, machine)
    return rows


def _judge(row: OpRow, machine: Machine) -> None:
    """Long pole, utilisation and roofline position."""
    ranked = sorted(row.busy.items(), key=lambda item: -item[1])
    row.pole = POLES[ranked[0][0]] if ranked[0][1] else ""
    row.next = ranked[1][1] / ranked[0][1] if ranked[0][1] else 0.0
    cells = machine.array.rows * machine.array.cols
    span = max(row.cycles, ranked[0][1])
    row.utilisation = row.macs / (span * cells) if span else 0.0
    row.intensity = 2 * row.macs / row.bytes if row.bytes else 0.0
    if row.macs:
        row.roofline = "compute" if row.intensity >= knee(machine) else "memory"


def cost_of(island: GraphModule, machine: Machine) -> Cost:
    """Modelled cost of an island, boundary transfers included."""
    from fxscope.targets.npu.compile import compile_island
    from fxscope.targets.npu.executable import boundary_bytes

    compiled = compile_island(island, machine, tried=1)
    timing = simulate(compiled.program.instructions, machine)
    moved = boundary_bytes(compiled)
    host = moved / machine.host.bytes_per_cycle + machine.host.launch_cycles
    macs = sum(int(group.note.get("macs", 0)) for group in compiled.groups)
    return Cost(
        seconds=machine.seconds(timing.total + host),
        bytes=timing.moved["dram"] + moved,
        flops=2 * macs,
        assumptions=(f"machine {machine.name}", *ASSUMPTIONS),
    )


# Text


_HEAD = (
    f"{'op':>3} {'cycles':>11} {'pole':<8}{'next':>5} {'util':>6} {'map':>5} {'bytes':>8} {'bound':>8} {'roof':<8}"
    f"{'tile':<13}"
).rstrip()


def text(found: NpuReport) -> str:
    """The report for a terminal."""
    lines = [
        f"{found.machine}, {found.clock_ghz:g} GHz, modelled: {found.cycles:,.0f} cycles = {found.microseconds:,.1f} us",
        f"between the bounds {found.lower:,.0f} and {found.upper:,.0f}; {found.instructions:,} instructions",
        f"{found.macs / 1e6:,.1f} M MACs, utilisation {found.utilisation:.1%}",
        f"moved: main memory {_bytes(found.dram_bytes)}, on chip {_bytes(found.chip_bytes)}, instructions {_bytes(found.fetched_bytes)}",
        f"boundary: {_bytes(found.boundary_bytes)} in and out, {found.boundary_microseconds:,.1f} us with the launch",
        "",
        _HEAD,
    ]
    for row in found.ops:
        names = ", ".join(row.nodes)
        source = f"  {row.source.rsplit('/', 1)[-1]}" if row.source else ""
        gather = f"  (each pixel gathered {row.refetch:.1f} times)" if row.refetch != 1 else ""
        lines.append(f"{row.index:>3} {row.kind}: {names}{source}{gather}")
        lines.append(
            f"    {row.cycles:>11,.0f} {row.pole:<8}{row.next:>5.0%} "
            f"{f'{row.utilisation:.1%}' if row.macs else '':>6} {f'{row.mapping:.0%}' if row.macs else '':>5} "
            f"{_bytes(row.bytes):>8} {_bytes(row.bound) if row.bound else '':>8} {row.roofline:<8}{row.tile}".rstrip()
        )
    lines.append("")
    for memory in found.memory:
        kind = "on-chip feature maps" if memory.region == "c" else "intermediates in main memory"
        lines.append(
            f"{kind}: peak {_bytes(memory.peak)}, most alive at once {_bytes(memory.bound)}, "
            f"fragmentation {memory.fragmentation:.2f}"
        )
    spilled = [tensor for tensor in found.live if tensor.spilled]
    lines += [f"spilled: {tensor.name}: {tensor.spilled}" for tensor in spilled]
    lines.append(f"roofline knee: {found.knee:.1f} operations a byte")
    lines += [f"assumes: {assumption}" for assumption in found.assumptions]
    return "\n".join(lines)


def live_chart(found: NpuReport, width: int = 60) -> str:
    """Live ranges of the intermediates, one row each, time to the right."""
    count = max(len(found.ops), 1)
    lines = []
    for tensor in sorted(found.live, key=lambda t: (t.first, t.last)):
        first, last = max(tensor.first, 0) * width // count, min(max(tensor.last, 0) + 1, count) * width // count
        bar = " " * first + "#" * max(last - first, 1)
        lines.append(f"{tensor.name[:24]:<24} {tensor.region} {_bytes(tensor.bytes):>8} |{bar:<{width}}|")
    return "\n".join(lines)


def lowered_text(made: Lowered) -> str:
    """Coverage, islands and modelled time of one graph of a model."""
    total = len(made.partition.phases)
    on_host = {str(node.target): clauses[0].text for node, clauses in made.partition.clauses.items() if clauses}
    islands = count(len(made.executables), "island")
    lines = [f"fxscope_npu: {made.kind} graph, {count(total, 'node')}: {made.coverage:.0%} on the NPU in {islands}"]
    for name, executable in made.executables.items():
        npu: NpuExecutable = executable  # type: ignore[assignment]
        lines.append(
            f"  {name}: {npu.modelled_seconds() * 1e6:,.1f} us modelled on {npu.compiled.machine.name}, "
            f"{len(npu.compiled.program.instructions):,} instructions, boundary {_bytes(npu.boundary_bytes)}"
        )
    lines += [f"  host: {target}: {reason}" for target, reason in sorted(on_host.items())]
    return "\n".join(lines)


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} GB"
