"""What each instruction touches: blocks of memory, resolved with the registers that hold at its place in the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fxscope.targets.npu.isa import DTYPE_BYTES, REGISTERS, Instruction
from fxscope.targets.npu.machine import Machine

SPAD, ACC = "spad", "acc"


@dataclass(slots=True)
class Block:
    """``rows`` x ``cols`` elements in one memory.

    Attributes:
        memory: ``spad``, ``acc`` or a region letter.
        start: Byte address of element [0, 0].
        row_pitch: Bytes from one row to the next; ``col_pitch`` from one element to the next.
        dtype: Element type; in the accumulator f32 or i32.
    """

    memory: str
    start: int
    rows: int
    cols: int
    row_pitch: int
    col_pitch: int
    dtype: str

    @property
    def end(self) -> int:
        """One past the last byte."""
        last = (self.rows - 1) * self.row_pitch + (self.cols - 1) * self.col_pitch
        return self.start + last + DTYPE_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return self.rows * self.cols * DTYPE_BYTES[self.dtype]


@dataclass(slots=True)
class Window:
    """Geometry of a gather: registers of ``ldx`` as numbers.

    Attributes:
        first: First output pixel; ``count`` pixels follow.
        k0: First column of the slice; ``k`` columns.
    """

    height: int
    width: int
    hstride: int
    wstride: int
    cstride: int
    kh: int
    kw: int
    step_h: int
    step_w: int
    dil_h: int
    dil_w: int
    top: int
    left: int
    up_h: int
    up_w: int
    owidth: int
    channels: int
    k0: int
    k: int
    first: int
    count: int
    fill: int


@dataclass(slots=True)
class Step:
    """One instruction with its operands.

    Attributes:
        index: Place in the flat program.
        reads: Blocks it reads, in the order of its fields; ``writes`` the blocks it writes.
        window: Geometry, for ``ldx``.
        weights: Rows and columns of the fold that ``mm`` multiplies by; None where no ``ldw`` and flip came before it.
    """

    index: int
    instruction: Instruction
    queue: str
    reads: tuple[Block, ...]
    writes: tuple[Block, ...]
    window: Window | None = None
    weights: tuple[int, int] | None = None


def signed16(value: int) -> int:
    """A half of a register as a signed number."""
    return value - 0x10000 if value & 0x8000 else value


Local = Callable[..., Block]


def steps(instructions: Sequence[Instruction], machine: Machine) -> Iterator[Step]:
    """Every instruction of a flat program with its operands.

    Registers belong to in-order queues, so program order within a queue decides what an instruction sees.
    """
    line = machine.local.line_bytes
    registers = {register.number: register.default for register in REGISTERS}
    shadow: tuple[int, int] | None = None
    active: tuple[int, int] | None = None

    def local(row: int, rows: int, cols: int, dtype: str, memory: str = ACC, stride: int = 0) -> Block:
        width = DTYPE_BYTES[dtype]
        pitch = (stride or -(-cols * width // line)) * line
        return Block(memory, row * line, rows, cols, pitch, width, dtype)

    for index, instruction in enumerate(instructions):
        op = instruction.op
        a: dict[str, Any] = instruction.args
        reads: tuple[Block, ...] = ()
        writes: tuple[Block, ...] = ()
        window = None
        if op == "cfg":
            registers[a["reg"]] = a["value"]
        elif op in ("ld", "st", "ldx"):
            dtype, width = str(a["dtype"]), DTYPE_BYTES[str(a["dtype"])]
            memory = SPAD if a["space"] == "s" else ACC
            whole = dtype == "i32" or (dtype == "i8" and op != "st")  # st rounds f32 words to i8
            held = dtype if memory == SPAD else "i32" if whole else "f32"
            inside = local(a["row"], a["rows"], a["cols"], held, memory)
            if op == "ldx":
                window = _window(registers, a)
                outside = _image(window, a, dtype)
                reads, writes = (outside,), (inside,)
            else:
                pitch = registers[0 if op == "ld" else 32] * width
                outside = Block(
                    str(a["region"]),
                    a["addr"],
                    a["rows"],
                    a["cols"],
                    a["stride"] * width,
                    pitch,
                    dtype,
                )
                reads, writes = ((outside,), (inside,)) if op == "ld" else ((inside,), (outside,))
        elif op == "gemm":
            reads, writes = _gemm(a, local)
        elif op == "ldw":
            shadow = (a["k"], a["n"])
            shape = (a["n"], a["k"]) if a["tb"] else (a["k"], a["n"])
            reads = (local(a["b"], *shape, str(a["dtype"]), SPAD, a["stride"]),)
        elif op == "mm":
            dtype = str(a["dtype"])
            held = "i32" if dtype == "i8" else "f32"
            active = shadow if a["flip"] else active
            result = local(a["c"], a["t"], active[1] if active else machine.array.cols, held, ACC, a["c_stride"])
            left = local(a["a"], a["t"], a["k"], dtype, SPAD, a["a_stride"])
            reads, writes = ((left, result) if a["acc"] else (left,)), (result,)
        elif op in ("ewu", "ewb", "ewi", "red", "pool", "xpose"):
            reads, writes = _vector(op, a, local)
        yield Step(index, instruction, instruction.queue, reads, writes, window, active if op == "mm" else None)


def _gemm(a: dict[str, Any], local: Local) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    dtype = str(a["dtype"])
    t, k, n = a["t"], a["k"], a["n"]
    left = local(a["a"], k if a["ta"] else t, t if a["ta"] else k, dtype, SPAD)
    right = local(a["b"], n if a["tb"] else k, k if a["tb"] else n, dtype, SPAD)
    result = local(a["c"], t, n, "i32" if dtype == "i8" else "f32")
    return ((left, right, result) if a["acc"] else (left, right)), (result,)


def _vector(op: str, a: dict[str, Any], local: Local) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    rows, cols, fn = a["rows"], a["cols"], str(a.get("fn", ""))
    source = local(a["src"], rows, cols, "i32" if fn == "i2f" else "f32")
    result = local(a["dst"], rows, cols, "i32" if fn == "f2i" else "f32")
    if op == "ewb":
        shapes = {"full": (rows, cols), "row": (1, cols), "col": (rows, 1), "one": (1, 1)}
        first = local(a["src"], *shapes[str(a["bcast"])], "f32")
        second = local(a["src2"], *shapes[str(a["bcast2"])], "f32")
        reads = (first, second, result) if fn == "sel" else (first, second)
        return reads, (result,)
    if op == "red":
        shape = (rows, 1) if str(a["axis"]) == "cols" else (1, cols)
        result = local(a["dst"], *shape, "f32")
        return ((source, result) if a["acc"] else (source,)), (result,)
    if op == "pool":
        return (local(a["src"], rows, cols * a["window"], "f32"),), (result,)
    if op == "xpose":
        return (source,), (local(a["dst"], cols, rows, "f32"),)
    return (source,), (result,)


def _window(registers: dict[int, int], a: dict[str, Any]) -> Window:
    def pair(number: int) -> tuple[int, int]:
        return registers[number] & 0xFFFF, registers[number] >> 16

    kernel, step, dilation, pad, up = pair(6), pair(7), pair(8), pair(9), pair(14)
    return Window(
        height=registers[1],
        width=registers[2],
        hstride=registers[3],
        wstride=registers[4],
        cstride=registers[5],
        kh=kernel[0],
        kw=kernel[1],
        step_h=step[0],
        step_w=step[1],
        dil_h=dilation[0],
        dil_w=dilation[1],
        top=signed16(pad[0]),
        left=signed16(pad[1]),
        up_h=up[0],
        up_w=up[1],
        owidth=registers[10],
        channels=registers[11],
        k0=registers[12],
        k=a["cols"],
        first=a["pixel"],
        count=a["rows"],
        fill=registers[13],
    )


def _image(window: Window, a: dict[str, Any], dtype: str) -> Block:
    """The rows of the image that a gather may touch, as one block of its covering bytes."""
    width = DTYPE_BYTES[dtype]
    low = (window.first // max(window.owidth, 1)) * window.step_h - window.top
    high = ((window.first + window.count - 1) // max(window.owidth, 1)) * window.step_h - window.top
    high += (window.kh - 1) * window.dil_h
    low, high = max(low // window.up_h, 0), min(high // window.up_h, window.height - 1)
    if high < low:
        low = high = 0  # a slice of padding only
    start = a["addr"] + low * window.hstride * width
    span = (high - low) * window.hstride + (window.width - 1) * window.wstride
    span += (window.channels - 1) * window.cstride
    return Block(str(a["region"]), start, 1, span + 1, 0, width, dtype)
