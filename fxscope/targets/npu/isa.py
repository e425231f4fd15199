"""The instruction set, in one table: encoder, decoder, assembler, executor dispatch, cycle model and docs/npu_isa.md read it.

An instruction is four little-endian 32-bit words. Word 0 holds the opcode, four token flags, six bits whose meaning the
opcode gives (``fn``), and the debug index. Sizes are stored minus one. A bit that no field owns must be zero.
"""

from __future__ import annotations

import msgspec

from fxscope.targets.npu.fields import (
    BINARY,
    BROADCASTS,
    DTYPE_BYTES,
    DTYPES,
    QUEUES,
    REDUCTIONS,
    REGIONS,
    SPACES,
    UNARY,
    WORD_BYTES,
    Field,
    Kind,
    Opcode,
    Register,
)

__all__ = ["BY_NAME", "DTYPES", "DTYPE_BYTES", "OPCODES", "QUEUES", "REGIONS", "WORD_BYTES", "Field", "Instruction"]


def _f(name: str, word: int, low: int, width: int, kind: Kind = "int", values: object = (), doc: str = "") -> Field:
    return Field(name, word, low, width, kind, tuple(values), doc)  # type: ignore[arg-type]


def _fn(values: object) -> Field:
    return _f("fn", 0, 10, 6, "enum", values, "function")


_ROWS = _f("rows", 1, 20, 12, "size", doc="rows")
_DST = _f("dst", 1, 0, 20, "row", doc="first accumulator line of the result")
_SRC = _f("src", 2, 0, 20, "row", doc="first accumulator line of the operand")
_COLS = _f("cols", 2, 20, 12, "size", doc="elements of a row")
_DTYPE = _f("dtype", 0, 13, 3, "enum", DTYPES, "element type outside the accumulator")
_REGION = _f("region", 0, 10, 3, "enum", REGIONS, "memory region")
_ADDR = _f("addr", 1, 0, 32, doc="byte address in the region")
_LOCAL = _f("row", 2, 0, 20, "row", doc="first line")
_LROWS = _f("rows", 2, 20, 12, "size", doc="rows")
_SPACE = _f("space", 3, 12, 1, "enum", SPACES, "scratchpad or accumulator")
_STRIDE = _f("stride", 3, 13, 19, doc="elements from one row to the next in memory")
_WIDTH = _f("cols", 3, 0, 12, "size", doc="elements of a row")

HEADER = (
    _f("op", 0, 0, 6),
    _f("pop_prev", 0, 6, 1, "bit"),
    _f("pop_next", 0, 7, 1, "bit"),
    _f("push_prev", 0, 8, 1, "bit"),
    _f("push_next", 0, 9, 1, "bit"),
    _f("dbg", 0, 16, 16),
)

OPCODES = (
    Opcode(0, "nop", "by field", (_f("queue", 1, 0, 2, "enum", QUEUES),), "Does nothing; carries tokens.", "none", "1"),
    Opcode(
        1,
        "halt",
        "x",
        (_f("status", 1, 0, 8),),
        "Ends the program once all queues are drained.",
        "program ends with status",
        "1",
    ),
    Opcode(
        2,
        "cfg",
        "by register",
        (_f("value", 1, 0, 32), _f("reg", 2, 0, 8, doc="register number, see the register table")),
        "Sets a register of the queue that owns it; later instructions of that queue see it.",
        "reg = value",
        "1",
    ),
    Opcode(
        3,
        "ld",
        "l",
        (_REGION, _DTYPE, _ADDR, _LOCAL, _LROWS, _WIDTH, _SPACE, _STRIDE),
        "Copies a strided block from memory to dense lines. Into the accumulator it widens: i8 and i32 to i32, the rest to f32.",
        "local[r, c] = mem[addr + r*stride + c*ld.cstride]",
        "ceil(bytes * burst / min(burst, run) / bytes_per_cycle), then latency",
    ),
    Opcode(
        4,
        "st",
        "s",
        (_REGION, _DTYPE, _ADDR, _LOCAL, _LROWS, _WIDTH, _SPACE, _STRIDE),
        "Copies dense lines to a strided block. From the accumulator it narrows: to i8 by rounding half to even and saturating.",
        "mem[addr + r*stride + c*st.cstride] = local[r, c]",
        "as ld, with the write latency",
    ),
    Opcode(
        5,
        "ldx",
        "l",
        (
            _REGION,
            _DTYPE,
            _ADDR,
            _LOCAL,
            _LROWS,
            _WIDTH,
            _SPACE,
            _f("pixel", 3, 13, 19, doc="first output pixel, row-major over (oh, ow)"),
        ),
        "Gathers windows (im2col): one row per output pixel, columns k0.. in (kh, kw, c) order; outside the image it is x.fill.",
        "local[p, k] = image[oh*sh - top + kh*dh, ow*sw - left + kw*dw, c]",
        "as ld, run = contiguous channels of one window position",
    ),
    Opcode(
        6,
        "ldw",
        "x",
        (
            _f("tb", 0, 10, 1, "bit", doc="operand lies transposed, [n, k]"),
            _DTYPE,
            _f("b", 1, 0, 20, "row"),
            _f("k", 1, 20, 12, "size"),
            _f("n", 2, 0, 12, "size"),
            _f("stride", 2, 12, 20, doc="lines from one row of the operand to the next"),
        ),
        "Shifts one weight fold (k <= R, n <= C) into the shadow registers; the next mm flips them in.",
        "shadow = B",
        "2R - 1 exposed, 0 when hidden behind the mm before",
    ),
    Opcode(
        7,
        "mm",
        "x",
        (
            _f("acc", 0, 10, 1, "bit", doc="add to C instead of overwriting it"),
            _f("flip", 0, 11, 1, "bit", doc="take the shadow weights first"),
            _DTYPE,
            _f("a", 1, 0, 20, "row"),
            _f("t", 1, 20, 12, "size"),
            _f("c", 2, 0, 20, "row"),
            _f("k", 2, 20, 12, "size"),
            _f("a_stride", 3, 0, 16, doc="lines"),
            _f("c_stride", 3, 16, 16, doc="lines"),
        ),
        "One fold through the array with the weights it holds: C[t, n] (+)= A[t, k] @ W[k, n].",
        "C (+)= A @ W",
        "t, then R + C - 2 until the last result",
    ),
    Opcode(
        8,
        "gemm",
        "x",
        (
            _f("ta", 0, 10, 1, "bit", doc="A lies as [k, t]"),
            _f("tb", 0, 11, 1, "bit", doc="B lies as [n, k]"),
            _f("acc", 0, 12, 1, "bit", doc="add to C instead of overwriting it"),
            _DTYPE,
            _f("a", 1, 0, 20, "row"),
            _f("t", 1, 20, 12, "size"),
            _f("b", 2, 0, 20, "row"),
            _f("k", 2, 20, 12, "size"),
            _f("c", 3, 0, 20, "row"),
            _f("n", 3, 20, 12, "size"),
        ),
        "A whole tile: the sequencer runs its ceil(k/R) * ceil(n/C) folds (ldw, mm) with the shadow weights hidden.",
        "C (+)= A @ B",
        "2R - 1 + (folds - 1) * max(t, R) + R + C - 2 + t",
    ),
    Opcode(
        9,
        "ewu",
        "x",
        (_fn(UNARY), _DST, _ROWS, _SRC, _COLS),
        "Element-wise unary.",
        "dst = fn(src)",
        "ceil(n / lanes) * II(fn), then latency",
    ),
    Opcode(
        10,
        "ewb",
        "x",
        (
            _fn(BINARY),
            _DST,
            _ROWS,
            _SRC,
            _COLS,
            _f("src2", 3, 0, 20, "row"),
            _f("bcast", 3, 20, 2, "enum", BROADCASTS, "shape of src"),
            _f("bcast2", 3, 22, 2, "enum", BROADCASTS, "shape of src2"),
        ),
        "Element-wise binary; ``sel`` writes src2 where src is not 0 and keeps dst elsewhere.",
        "dst = fn(src, src2)",
        "as ewu",
    ),
    Opcode(
        11,
        "ewi",
        "x",
        (_fn(BINARY), _DST, _ROWS, _SRC, _COLS, _f("imm", 3, 0, 32, "f32")),
        "Element-wise with an immediate as second operand.",
        "dst = fn(src, imm)",
        "as ewu",
    ),
    Opcode(
        12,
        "red",
        "x",
        (
            _fn(REDUCTIONS),
            _DST,
            _ROWS,
            _SRC,
            _COLS,
            _f("axis", 3, 0, 1, "enum", ("cols", "rows"), "what is reduced away: cols gives [rows, 1], rows [1, cols]"),
            _f("acc", 3, 1, 1, "bit", doc="combine with dst (not for mean)"),
        ),
        "Reduces rows or columns of a block.",
        "dst = fn over axis (src)",
        "rows * tree(cols) * II, or rows * ceil(cols / lanes) * II over rows, then latency",
    ),
    Opcode(
        13,
        "pool",
        "x",
        (_fn(REDUCTIONS), _DST, _ROWS, _SRC, _COLS, _f("window", 3, 0, 12, "size", doc="window positions")),
        "Reduces the window positions of a gathered block [rows, window * cols] to [rows, cols].",
        "dst[r, c] = fn over w of src[r, w, c]",
        "window * ceil(n / lanes) * II, then latency",
    ),
    Opcode(
        14,
        "xpose",
        "x",
        (_DST, _ROWS, _SRC, _COLS),
        "Transposes a block: [rows, cols] to [cols, rows].",
        "dst[c, r] = src[r, c]",
        "ceil(n / lanes) * II, then latency",
    ),
    Opcode(
        15,
        "loop",
        "front",
        (_f("count", 1, 0, 16, "size"), _f("body", 1, 16, 16, "size", doc="instructions, nested loops included")),
        "Repeats the instructions after its steps; two levels may nest. The front end unrolls it before the queues.",
        "repeat body",
        "0",
    ),
    Opcode(
        16,
        "step",
        "front",
        (
            _f("w1", 1, 0, 32, "signed"),
            _f("w2", 2, 0, 32, "signed"),
            _f("w3", 3, 0, 32, "signed"),
        ),
        "What to add to words 1 to 3 of one body instruction at every repetition; a loop is followed by one per instruction.",
        "body[i].word += step",
        "0",
    ),
    Opcode(
        17,
        "wait",
        "by field",
        (
            _f("queue", 1, 0, 2, "enum", QUEUES),
            _f("on", 1, 2, 2, "enum", QUEUES),
            _f("outstanding", 1, 4, 8),
        ),
        "Holds its queue until at most ``outstanding`` earlier instructions of the queue ``on`` are unfinished.",
        "none",
        "1",
    ),
    Opcode(
        18,
        "pmu",
        "x",
        (_f("event", 1, 0, 8, "enum", ("begin", "end", "snapshot")), _f("id", 2, 0, 16)),
        "Marks the begin or end of a measured stretch, or takes a snapshot of the counters.",
        "none",
        "1",
    ),
)
BY_NAME = {row.name: row for row in OPCODES}
BY_NUMBER = {row.number: row for row in OPCODES}


REGISTERS = (
    Register(0, "ld.cstride", "l", 1, "ld: elements from one column to the next in memory"),
    Register(1, "x.height", "l", 1, "ldx: image rows"),
    Register(2, "x.width", "l", 1, "ldx: image columns"),
    Register(3, "x.hstride", "l", 1, "ldx: elements between image rows"),
    Register(4, "x.wstride", "l", 1, "ldx: elements between image columns"),
    Register(5, "x.cstride", "l", 1, "ldx: elements between channels"),
    Register(6, "x.kernel", "l", 0x10001, "ldx: kernel height | width << 16"),
    Register(7, "x.step", "l", 0x10001, "ldx: window step, vertical | horizontal << 16"),
    Register(8, "x.dilation", "l", 0x10001, "ldx: dilation, vertical | horizontal << 16"),
    Register(9, "x.pad", "l", 0, "ldx: rows above | columns left << 16, signed 16 bit each"),
    Register(10, "x.owidth", "l", 1, "ldx: output columns"),
    Register(11, "x.channels", "l", 1, "ldx: channels of one window position"),
    Register(12, "x.k0", "l", 0, "ldx: first k of the slice"),
    Register(13, "x.fill", "l", 0, "ldx: value outside the image, bits of an f32"),
    Register(
        14, "x.up", "l", 0x10001, "ldx: zeros between image rows | columns << 16, plus one (transposed convolution)"
    ),
    Register(32, "st.cstride", "s", 1, "st: elements from one column to the next in memory"),
)
REGISTER_BY_NAME = {row.name: row for row in REGISTERS}
REGISTER_BY_NUMBER = {row.number: row for row in REGISTERS}


class Instruction(msgspec.Struct):
    """One decoded instruction.

    Attributes:
        args: Field name to value: sizes as they are, enums by name, ``imm`` as float.
        dbg: Index into the program's debug table; 0 is "no source".
    """

    op: str
    args: dict[str, int | float | str]
    dbg: int = 0
    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False

    @property
    def queue(self) -> str:
        """The engine it runs on; ``front`` for loop and step."""
        queue = BY_NAME[self.op].queue
        if queue == "by register":
            return REGISTER_BY_NUMBER[int(self.args["reg"])].queue
        return str(self.args["queue"]) if queue == "by field" else queue


def neighbour(queue: str, offset: int) -> str:
    """The queue ``offset`` steps along the ring l, x, s."""
    return QUEUES[(QUEUES.index(queue) + offset) % 3]
