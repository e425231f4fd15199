"""Instruction to 16 bytes and back. Everything it knows comes from the table in isa.py."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from fxscope.errors import UnreadableError, UsageError
from fxscope.targets.npu.isa import (
    BY_NAME,
    BY_NUMBER,
    HEADER,
    REGISTER_BY_NUMBER,
    WORD_BYTES,
    Field,
    Instruction,
)

_FLAGS = tuple(field for field in HEADER if field.kind == "bit")
_OWNED = {
    row.number: tuple(
        sum(
            ((1 << field.width) - 1) << field.low
            for field in (*HEADER, *row.fields)
            # The front end unrolls loops before the queues: nothing there could take or give a token.
            if field.word == word and not (row.queue == "front" and field in _FLAGS)
        )
        for word in range(4)
    )
    for row in BY_NUMBER.values()
}
_INDEX = {
    (row.name, field.name): {value: index for index, value in enumerate(field.values)}
    for row in BY_NUMBER.values()
    for field in row.fields
    if field.values
}


def float_bits(value: float) -> int:
    """Bits of an IEEE single; a NaN made by :func:`bits_float` keeps its payload."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def bits_float(bits: int) -> float:
    """The single with these bits."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def field_bits(op: str, field: Field, value: int | float | str) -> int:
    """The stored bits of one field.

    Raises:
        UsageError: The value does not fit; names the field and its range.
    """
    if field.kind == "enum":
        known = _INDEX[op, field.name]
        if value not in known:
            raise UsageError(f"{op}: {field.name}={value}: not one of {', '.join(field.values)}")
        return known[str(value)]
    if field.kind == "f32":
        # A NaN is carried as its bits (int), so that quiet and signalling payloads survive Python floats.
        if isinstance(value, int):
            if not 0 <= value <= 0xFFFFFFFF:
                raise UsageError(f"{op}: {field.name}={value}: bits of an f32 lie in 0 to 0xffffffff")
            return value
        return float_bits(float(value))
    if not isinstance(value, int):
        raise UsageError(f"{op}: {field.name}={value}: a whole number is needed")
    if not field.minimum <= value <= field.maximum:
        raise UsageError(f"{op}: {field.name}={value}: outside {field.minimum} to {field.maximum}")
    if field.kind == "size":
        return value - 1
    return value & ((1 << field.width) - 1)


def field_value(field: Field, bits: int) -> int | float | str:
    """The value that these stored bits mean.

    Raises:
        UnreadableError: An enum has no such value.
    """
    if field.kind == "enum":
        if bits >= len(field.values):
            raise UnreadableError(f"{field.name} has no value {bits} (it has {len(field.values)})")
        return field.values[bits]
    if field.kind == "f32":
        value = bits_float(bits)
        return bits if math.isnan(value) else value
    if field.kind == "size":
        return bits + 1
    if field.kind == "signed" and bits >> (field.width - 1):
        return bits - (1 << field.width)
    return bits


def words(instruction: Instruction) -> list[int]:
    """The four words of one instruction.

    Raises:
        UsageError: An unknown mnemonic, a missing or unknown field, or a value out of range.
    """
    row = BY_NAME.get(instruction.op)
    if row is None:
        raise UsageError(f"unknown instruction {instruction.op!r}; known: {', '.join(BY_NAME)}")
    out = [row.number, 0, 0, 0]
    args = instruction.args
    for field in row.fields:
        if field.name not in args:
            raise UsageError(f"{row.name}: field {field.name} is missing")
        value = args[field.name]
        # The common case first: compiled programs hold tens of thousands of plain sizes and rows.
        if field.kind in ("int", "row", "bit") and type(value) is int and 0 <= value < 1 << field.width:
            out[field.word] |= value << field.low
        else:
            out[field.word] |= field_bits(row.name, field, value) << field.low
    if len(args) != len(row.fields):
        unknown = sorted(set(args) - {field.name for field in row.fields})
        raise UsageError(f"{row.name}: no field {', '.join(unknown)}")
    if row.name == "cfg" and args["reg"] not in REGISTER_BY_NUMBER:
        raise UsageError(f"cfg: no register {args['reg']}")
    for flag in _FLAGS:
        if getattr(instruction, flag.name):
            if row.queue == "front":
                raise UsageError(f"{row.name} runs on no queue and carries no tokens")
            out[0] |= 1 << flag.low
    if not 0 <= instruction.dbg <= 0xFFFF:
        raise UsageError(f"{row.name}: dbg={instruction.dbg}: outside 0 to 65535")
    out[0] |= instruction.dbg << 16
    return out


def from_words(four: tuple[int, ...] | list[int], where: str = "") -> Instruction:
    """The instruction that four words hold.

    Raises:
        UnreadableError: An unknown opcode, register or enum value, or a bit set that no field owns; ``where`` leads.
    """
    row = BY_NUMBER.get(four[0] & 63)
    if row is None:
        raise UnreadableError(f"{where}unknown opcode {four[0] & 63}")
    for word, (value, owned) in enumerate(zip(four, _OWNED[row.number], strict=True)):
        stray = value & ~owned
        if stray:
            bit = (stray & -stray).bit_length() - 1
            raise UnreadableError(f"{where}{row.name}: reserved bit {bit} of word {word} is set")
    try:
        args = {
            field.name: field_value(field, four[field.word] >> field.low & ((1 << field.width) - 1))
            for field in row.fields
        }
    except UnreadableError as error:
        raise UnreadableError(f"{where}{row.name}: {error}") from None
    if row.name == "cfg" and args["reg"] not in REGISTER_BY_NUMBER:
        raise UnreadableError(f"{where}cfg: no register {args['reg']}")
    flags = {flag.name: bool(four[0] >> flag.low & 1) for flag in _FLAGS}
    return Instruction(row.name, args, four[0] >> 16, **flags)


def encode(instructions: Iterable[Instruction]) -> bytes:
    """Machine code, 16 bytes an instruction.

    Raises:
        UsageError: A field that its opcode does not have, or a value that does not fit it; with the number of the instruction.
    """
    flat: list[int] = []
    for index, instruction in enumerate(instructions):
        try:
            flat += words(instruction)
        except UsageError as error:
            raise UsageError(f"instruction {index}: {error}") from None
    return struct.pack(f"<{len(flat)}I", *flat)


def decode(code: bytes) -> list[Instruction]:
    """Instructions of machine code.

    Raises:
        UnreadableError: Truncated code or an illegal word, with its byte offset.
    """
    if len(code) % WORD_BYTES:
        raise UnreadableError(
            f"truncated program: {len(code)} bytes is no multiple of {WORD_BYTES}; "
            f"the last whole instruction ends at {len(code) // WORD_BYTES * WORD_BYTES:#x}"
        )
    return [
        from_words(four, f"offset {index * WORD_BYTES:#x}: ")
        for index, four in enumerate(struct.iter_unpack("<4I", code))
    ]
