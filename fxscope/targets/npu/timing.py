"""Cycles of single instructions and closed forms. Every formula names where it comes from.

Sources: SCALE-Sim v2 (fold cycles by data flow, checked against runs of v2 and v3), ONNXim SystolicWS.cc (shadow weights,
tree reductions), Arm Vela npu_performance.py (bursts), VTA vta.cc (vector initiation interval).
"""

from __future__ import annotations

from typing import NamedTuple

from fxscope.targets.npu.isa import DTYPE_BYTES, WORD_BYTES
from fxscope.targets.npu.machine import Dataflow, Machine, Memory
from fxscope.targets.npu.operands import Block, Step

MINIMUM_STREAM = 4  # ONNXim: a fold streams at least 4 rows
TRANSCENDENTAL = frozenset(
    {
        "sigmoid",
        "tanh",
        "gelu",
        "gelu_tanh",
        "silu",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "erf",
        "sin",
        "cos",
        "exp2",
        "log1p",
    }
    | {"expm1", "pow"}
)
ASSUMPTIONS = (
    "modelled, not measured: an event model of three in-order engines; no bank conflicts, no refresh, no interrupts",
    "DMA: bytes x burst / min(burst, contiguous run) / rate (Vela); loads and stores share each memory's rate",
    "DMA latency is overlapped up to the machine's outstanding transfers; padding of a gather is charged as if fetched",
    "matrix: shadow weights hidden behind the fold before (ONNXim, TPU v1); vector: ceil(n / lanes) x interval (VTA)",
    "instructions are fetched in order at main memory's rate, on their own port, with loops unrolled",
)


class Cost(NamedTuple):
    """Cycles of one instruction.

    Attributes:
        busy: Cycles in which its engine can start nothing else.
        latency: Cycles from then until its result may be used.
        fold: Cycles of one fold, 0 unless it uses the array; ``folds`` how many.
        bytes: Bytes moved, as bursts round them up; ``memory`` is ``dram``, ``chip`` or "".
        macs: Multiply-accumulates.
    """

    busy: int
    latency: int
    fold: int = 0
    folds: int = 0
    bytes: int = 0
    memory: str = ""
    macs: int = 0


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def fold_shape(dataflow: Dataflow, m: int, n: int, k: int) -> tuple[int, int, int]:
    """Spatial rows, spatial columns and temporal steps of a product [m, k] @ [k, n] (SCALE-Sim's mapping)."""
    return {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[dataflow]


def mapping_efficiency(machine: Machine, m: int, n: int, k: int) -> float:
    """Cells that hold work, averaged over folds (SCALE-Sim's mapping efficiency)."""
    array = machine.array
    sr, sc, _ = fold_shape(array.dataflow, m, n, k)
    return sr * sc / (ceil_div(sr, array.rows) * array.rows * ceil_div(sc, array.cols) * array.cols)


def tree(n: int, lanes: int) -> int:
    """Lane-wide additions that reduce n values (ONNXim calculate_add_tree_iterations)."""
    total = 0
    while n > lanes:
        n = ceil_div(n, lanes)
        total += n
    return total + 1


def effective_bytes(block: Block, burst: int, width: int) -> int:
    """Bytes a memory moves for a block: runs shorter than a burst cost a whole one (Vela)."""
    size = DTYPE_BYTES[block.dtype]
    if block.col_pitch != size:
        run = size
    elif block.row_pitch == block.cols * size or block.rows == 1:
        run = block.rows * block.cols * size
    else:
        run = block.cols * size
    return ceil_div(width * burst, min(burst, run))


def transfer(step: Step, machine: Machine) -> Cost:
    """A ld, ldx or st."""
    outside = step.reads[0] if step.queue == "l" else step.writes[0]
    memory: Memory = machine.chip if outside.memory == "c" else machine.dram
    if step.window is not None:
        window = step.window
        size = DTYPE_BYTES[outside.dtype]
        # A run is the contiguous channels of a window position; side by side positions join where they touch.
        channels = min(window.channels, window.k) * size if window.cstride == 1 else size
        joined = window.kw if window.wstride == window.channels and window.dil_w == 1 and window.k > channels else 1
        total = ceil_div(window.count * window.k * size * memory.burst, min(memory.burst, channels * joined))
    else:
        total = effective_bytes(outside, memory.burst, outside.bytes)
    latency = memory.read_latency if step.queue == "l" else memory.write_latency
    busy = max(1, -int(-total // memory.bytes_per_cycle))
    return Cost(busy, latency, bytes=total, memory="chip" if outside.memory == "c" else "dram")


def matrix(machine: Machine, m: int, n: int, k: int, dtype: str) -> Cost:
    """A gemm. The first weights of a cold array are added by the event model."""
    array = machine.array
    passes = array.passes.get(dtype, 1)
    sr, sc, steps = fold_shape(array.dataflow, m, n, k)
    folds = ceil_div(sr, array.rows) * ceil_div(sc, array.cols)
    macs = m * n * k
    if array.dataflow == "os":
        fold = array.rows + array.cols + steps * passes - 2
        return Cost(folds * fold, 0, 0, folds, macs=macs)
    if not array.shadow:
        fold = 2 * array.rows + array.cols + steps * passes - 2
        return Cost(folds * fold, 0, 0, folds, macs=macs)
    stream = max(steps * passes, MINIMUM_STREAM)
    fold = max(stream, array.rows)
    return Cost((folds - 1) * fold + stream, array.rows + array.cols - 2, fold, folds, macs=macs)


def vector(step: Step, machine: Machine) -> Cost:
    """An element-wise, reduction, pooling or transpose instruction; its latency is not overlapped with the next."""
    unit, a, op = machine.vector, step.instruction.args, step.instruction.op
    fn = str(a.get("fn", ""))
    interval = unit.transcendental if fn in TRANSCENDENTAL else unit.interval
    rows, cols = int(a["rows"]), int(a["cols"])
    groups = ceil_div(rows * cols, unit.lanes)
    if op == "red":
        groups = rows * tree(cols, unit.lanes) if a["axis"] == "cols" else rows * ceil_div(cols, unit.lanes)
    elif op == "pool":
        groups *= int(a["window"])
    return Cost(groups * interval + unit.latency, 0)


def cost(step: Step, machine: Machine) -> Cost:
    """Cycles of one instruction on an idle machine."""
    op, a = step.instruction.op, step.instruction.args
    if op in ("ld", "st", "ldx"):
        return transfer(step, machine)
    if op == "gemm":
        return matrix(machine, int(a["t"]), int(a["n"]), int(a["k"]), str(a["dtype"]))
    if op == "mm":
        columns = step.writes[0].cols
        passes = machine.array.passes.get(str(a["dtype"]), 1)
        stream = max(int(a["t"]) * passes, MINIMUM_STREAM)
        drain = machine.array.rows + machine.array.cols - 2
        return Cost(stream, drain, max(stream, machine.array.rows), 1, macs=int(a["t"]) * int(a["k"]) * columns)
    if op in ("ewu", "ewb", "ewi", "red", "pool", "xpose"):
        return vector(step, machine)
    return Cost(0 if op == "ldw" else 1, 0)


def fetch_cycles(machine: Machine) -> float:
    """Cycles between two instructions that leave the fetch unit."""
    return WORD_BYTES / machine.dram.bytes_per_cycle


def knee(machine: Machine) -> float:
    """Operations per byte at which compute and main memory balance (TPU v1's roofline)."""
    return 2 * machine.array.rows * machine.array.cols / machine.dram.bytes_per_cycle
