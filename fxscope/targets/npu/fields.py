"""Vocabulary of the instruction set: queues, regions, data types, functions; and what a field, an opcode, a register is."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["int", "size", "signed", "f32", "row", "bit", "enum"]

WORD_BYTES = 16
QUEUES = ("l", "x", "s")  # load, execute, store; a ring: the next of s is l
REGIONS = ("w", "a", "i", "o", "c")  # weights, activations, inputs, outputs in main memory; on-chip feature-map memory
DTYPES = ("f32", "bf16", "f16", "i8", "b8", "i32")  # of memory and scratchpad; the accumulator holds f32 or i32 words
DTYPE_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i8": 1, "b8": 1, "i32": 4}
SPACES = ("s", "a")  # scratchpad, accumulator
MAX_SIZE = 4096  # rows or columns of one instruction: 12 bits, stored minus one
BROADCASTS = ("full", "row", "col", "one")  # [rows, cols], [1, cols], [rows, 1], [1, 1]
UNARY = (
    *("copy", "neg", "abs", "relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "exp", "log", "sqrt", "rsqrt"),
    *("recip", "erf", "sin", "cos", "floor", "ceil", "round", "sign", "not", "i2f", "f2i", "trunc", "exp2", "log1p"),
    *("expm1", "isnan", "bf16", "f16"),
)
BINARY = (
    *("add", "sub", "mul", "div", "max", "min", "pow", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "sel", "rsub"),
    "rdiv",
)
REDUCTIONS = ("sum", "max", "min", "mean", "prod")


class Field(msgspec.Struct, frozen=True):
    """A run of bits: ``width`` bits of word ``word`` from bit ``low``.

    Attributes:
        kind: ``size`` is stored minus one, ``row`` is a line of scratchpad or accumulator, ``enum`` names ``values``.
        values: Names of an enum, in order; the values beyond them are illegal.
    """

    name: str
    word: int
    low: int
    width: int
    kind: Kind = "int"
    values: tuple[str, ...] = ()
    doc: str = ""

    @property
    def minimum(self) -> int:
        """Smallest legal value, as the assembler writes it (enums by index)."""
        return {"size": 1, "signed": -(1 << (self.width - 1))}.get(self.kind, 0)

    @property
    def maximum(self) -> int:
        """Largest legal value."""
        if self.kind == "enum":
            return len(self.values) - 1
        return {"size": 1 << self.width, "signed": (1 << (self.width - 1)) - 1}.get(self.kind, (1 << self.width) - 1)


class Opcode(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        queue: The engine that runs it; ``by register`` (cfg), ``by field`` (nop, wait) or ``front`` (loop, step: unrolled
            before the queues).
    """

    number: int
    name: str
    queue: str
    fields: tuple[Field, ...]
    doc: str
    effect: str = ""
    cycles: str = ""


class Register(msgspec.Struct, frozen=True):
    """One configuration register; 32 bits, read by later instructions of ``queue``."""

    number: int
    name: str
    queue: str
    default: int
    doc: str
