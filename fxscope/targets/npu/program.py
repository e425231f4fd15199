"""A program: instructions, where its tensors lie, the debug table that leads to nodes and source lines, and its file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fxscope.errors import UnreadableError
from fxscope.targets.npu.encoding import decode, encode
from fxscope.targets.npu.isa import REGIONS, Instruction
from fxscope.targets.npu.loops import roll, unroll

if TYPE_CHECKING:
    from fxscope.targets.npu.machine import Machine

MAGIC = b"FXNP"
VERSION = 1
_HEADER = struct.Struct("<4sHHIII")


class Debug(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the debug table.

    Attributes:
        node: FX node; "" for none.
        role: What the instructions do for it: ``load a``, ``gemm``, ``bias``, ``store``...
        source: ``file:line`` of the user's program, "" where unknown.
        group: Index of the tile loop nest it belongs to.
    """

    node: str = ""
    role: str = ""
    source: str = ""
    group: int = 0


class Placed(msgspec.Struct, kw_only=True):
    """A tensor in a memory region.

    Attributes:
        offset: Byte address of its first element.
        dtype: Name in isa.DTYPES.
        strides: In elements; the physical layout.
        first: Group that writes it first (-1: before the program), and ``last``: group that reads it last.
        spilled: Why it is not on chip, "" where it is or where the machine has no such memory.
    """

    name: str
    region: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int
    first: int = -1
    last: int = -1
    spilled: str = ""


class Program(msgspec.Struct, kw_only=True):
    """Flat instructions (loops unrolled) with everything a machine needs to run them.

    Attributes:
        machine: Name of the machine it was compiled for.
        regions: Bytes of each memory region.
        inputs: Placed inputs in the caller's order; ``outputs`` likewise.
        groups: Title of each tile loop nest, by ``Debug.group``.
    """

    machine: str
    instructions: list[Instruction] = msgspec.field(default_factory=list)
    debug: list[Debug] = msgspec.field(default_factory=lambda: [Debug()])
    regions: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(REGIONS, 0))
    inputs: list[Placed] = msgspec.field(default_factory=list)
    outputs: list[Placed] = msgspec.field(default_factory=list)
    tensors: list[Placed] = msgspec.field(default_factory=list)
    groups: list[str] = msgspec.field(default_factory=list)

    def where(self, index: int) -> str:
        """``instruction 12 (add, model.py:7)``: how an error names an instruction."""
        if index >= len(self.instructions):
            return f"instruction {index}"
        entry = self.entry(self.instructions[index].dbg)
        about = ", ".join(text for text in (entry.node, entry.role, entry.source) if text)
        return f"instruction {index} `{self.instructions[index].op}`" + (f" ({about})" if about else "")

    def entry(self, dbg: int) -> Debug:
        """The debug entry of an index; an empty one where the table has none."""
        return self.debug[dbg] if dbg < len(self.debug) else Debug()

    def instructions_of(self, node: str) -> list[int]:
        """Indices of the instructions that run one FX node: the way forward of the debug table."""
        wanted = {index for index, entry in enumerate(self.debug) if entry.node == node}
        return [index for index, instruction in enumerate(self.instructions) if instruction.dbg in wanted]

    def comments(self) -> dict[int, str]:
        """A comment for each debug index: node, role, source."""
        return {
            index: " ".join(text for text in (entry.node, entry.role, entry.source) if text)
            for index, entry in enumerate(self.debug)
            if entry.node
        }


def to_bytes(program: Program, *, loops: bool = True) -> bytes:
    """The file of a program: header, JSON of the tables, machine code (with loops found unless told otherwise)."""
    instructions = program.instructions
    code = encode(roll(instructions) if loops else instructions)
    tables = msgspec.json.encode({k: v for k, v in msgspec.structs.asdict(program).items() if k != "instructions"})
    check = zlib.crc32(code, zlib.crc32(tables))
    return _HEADER.pack(MAGIC, VERSION, 0, len(tables), len(code), check) + tables + code


def from_bytes(data: bytes, where: str = "program") -> Program:
    """Read a program file.

    Raises:
        UnreadableError: No program, another version, truncated, damaged, or an illegal word: one line.
    """
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise UnreadableError(f"{where}: no fxscope NPU program (it begins with {data[:4]!r}, not {MAGIC!r})")
    _, version, _, tables_size, code_size, check = _HEADER.unpack_from(data)
    if version != VERSION:
        raise UnreadableError(f"{where}: program format {version}; this fxscope reads format {VERSION}")
    wanted = _HEADER.size + tables_size + code_size
    if len(data) != wanted:
        what = "truncated" if len(data) < wanted else "longer than it says"
        raise UnreadableError(f"{where}: {what}: {len(data)} bytes where its header says {wanted}")
    tables, code = data[_HEADER.size : _HEADER.size + tables_size], data[_HEADER.size + tables_size :]
    if zlib.crc32(code, zlib.crc32(tables)) != check:
        raise UnreadableError(f"{where}: damaged: the checksum does not match")
    try:
        program = msgspec.json.decode(tables, type=_Tables)
    except msgspec.DecodeError as error:
        raise UnreadableError(f"{where}: {error}") from None
    try:
        instructions = unroll(decode(code))
    except UnreadableError as error:
        raise UnreadableError(f"{where}: {error}") from None
    return Program(instructions=instructions, **msgspec.structs.asdict(program))


class _Tables(msgspec.Struct, kw_only=True):
    """The JSON part of a program file."""

    machine: str
    debug: list[Debug]
    regions: dict[str, int]
    inputs: list[Placed]
    outputs: list[Placed]
    tensors: list[Placed]
    groups: list[str]


def read(path: str | Path) -> Program:
    """Read a program from disk; see :func:`from_bytes`.

    Raises:
        UnreadableError: No such file, or no program in it.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None
    return from_bytes(data, str(path))


def from_code(instructions: Sequence[Instruction], machine: str, regions: dict[str, int] | None = None) -> Program:
    """A program without tables, from hand-written instructions."""
    flat = unroll(instructions)
    program = Program(machine=machine, instructions=flat)
    program.regions.update(regions or {})
    return program


def needed_regions(program: Program, machine: Machine) -> dict[str, int]:
    """The smallest regions that hold every address of a program; for text that does not say how large they are."""
    from fxscope.targets.npu.operands import steps

    sizes = dict.fromkeys(REGIONS, 0)
    for step in steps(program.instructions, machine):
        for block in (*step.reads, *step.writes):
            if block.memory in sizes:
                sizes[block.memory] = max(sizes[block.memory], block.end)
    return sizes
