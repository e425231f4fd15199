"""Program text: one instruction a line, ``;`` starts a comment.

    cfg reg=ld.cstride value=1
    ld region=w dtype=f32 addr=0x40 row=0x0 rows=16 cols=16 space=s stride=16 !push.x  ; b
    gemm dtype=f32 a=0x10 t=64 b=0x0 k=16 c=0x0 n=16 acc !pop.l !push.s @3

Every field is written but zero bits; ``!pop.q`` and ``!push.q`` name the other queue, ``@n`` the debug entry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from fxscope.errors import UsageError
from fxscope.targets.npu.encoding import float_bits, words
from fxscope.targets.npu.isa import (
    BY_NAME,
    QUEUES,
    REGISTER_BY_NAME,
    REGISTER_BY_NUMBER,
    Field,
    Instruction,
    neighbour,
)


def _show(field: Field, value: int | float | str) -> str:
    if field.kind == "enum":
        return str(value)
    if field.kind == "row" or field.name == "addr":
        return f"{value:#x}"
    if field.kind == "f32":
        if isinstance(value, int):
            return f"bits:{value:#010x}"
        return repr(value)
    return str(value)


def line(instruction: Instruction, comment: str = "") -> str:
    """The text of one instruction."""
    row = BY_NAME[instruction.op]
    parts = [row.name]
    for field in row.fields:
        value = instruction.args[field.name]
        if field.kind == "bit":
            if value:
                parts.append(field.name)
        elif field.name == "reg":
            parts.append(f"reg={REGISTER_BY_NUMBER[int(value)].name}")
        else:
            parts.append(f"{field.name}={_show(field, value)}")
    if row.queue != "front":
        queue = instruction.queue
        for flag, verb, offset in (
            ("pop_prev", "pop", -1),
            ("pop_next", "pop", 1),
            ("push_prev", "push", -1),
            ("push_next", "push", 1),
        ):
            if getattr(instruction, flag):
                parts.append(f"!{verb}.{neighbour(queue, offset)}")
    if instruction.dbg:
        parts.append(f"@{instruction.dbg}")
    return " ".join(parts) + (f"  ; {comment}" if comment else "")


def disassemble(instructions: Sequence[Instruction], names: Mapping[int, str] | None = None) -> str:
    """The text of a program; loop bodies are indented, ``names`` (by debug index) become comments."""
    lines = []
    ends: list[int] = []
    steps = 0
    for index, instruction in enumerate(instructions):
        while ends and index >= ends[-1]:
            ends.pop()
        lines.append("  " * len(ends) + line(instruction, (names or {}).get(instruction.dbg, "")))
        if instruction.op == "loop":
            steps = body = int(instruction.args["body"])
            ends.append(index + 1 + steps + body)
    return "\n".join(lines) + ("\n" if lines else "")


def _number(text: str, field: Field, where: str) -> int | float | str:
    if field.kind == "enum":
        return text
    if field.name == "reg" and text in REGISTER_BY_NAME:
        return REGISTER_BY_NAME[text].number
    try:
        if field.kind == "f32":
            if text.startswith("bits:"):
                return int(text[5:], 0)
            value = float(text)
            return float_bits(value) if math.isnan(value) else value
        return int(text, 0)
    except ValueError:
        raise UsageError(f"{where}{field.name}={text}: not a number") from None


def parse_line(text: str, where: str = "") -> Instruction | None:
    """The instruction of one line; None for an empty or comment line.

    Raises:
        UsageError: What is wrong, with ``where`` before it.
    """
    tokens = text.split(";", 1)[0].split()
    if not tokens:
        return None
    row = BY_NAME.get(tokens[0])
    if row is None:
        import difflib

        near = difflib.get_close_matches(tokens[0], BY_NAME, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(BY_NAME)}"
        raise UsageError(f"{where}unknown instruction {tokens[0]!r}{hint}")
    by_name = {field.name: field for field in row.fields}
    args: dict[str, int | float | str] = {field.name: 0 for field in row.fields if field.kind == "bit"}
    flags: list[str] = []
    dbg = 0
    for token in tokens[1:]:
        name, equals, value = token.partition("=")
        if name in by_name and equals:
            args[name] = _number(value, by_name[name], where)
        elif name in by_name and by_name[name].kind == "bit":
            args[name] = 1
        elif token[0] == "!":
            flags.append(token[1:])
        elif re.fullmatch(r"@\d+", token):
            dbg = int(token[1:])
        else:
            raise UsageError(f"{where}{row.name}: no field {name!r}; fields: {', '.join(by_name)}")
    instruction = Instruction(row.name, args, dbg)
    missing = [field.name for field in row.fields if field.name not in args]
    if missing:
        raise UsageError(f"{where}{row.name}: missing {', '.join(missing)}")
    for flag in flags:
        _set_flag(instruction, flag, where)
    try:
        words(instruction)
    except UsageError as error:
        raise UsageError(f"{where}{error}") from None
    return instruction


def _set_flag(instruction: Instruction, flag: str, where: str) -> None:
    """Set the token flag that ``pop.q`` or ``push.q`` means."""
    if instruction.op in ("loop", "step"):
        raise UsageError(f"{where}{instruction.op} runs on no queue and carries no tokens")
    if instruction.op == "cfg" and instruction.args["reg"] not in REGISTER_BY_NUMBER:
        raise UsageError(f"{where}cfg: no register {instruction.args['reg']}")
    verb, _, other = flag.partition(".")
    queue = instruction.queue
    if verb not in ("pop", "push") or other not in QUEUES or other == queue or queue not in QUEUES:
        raise UsageError(f"{where}!{flag}: write !pop.q or !push.q with another queue than {queue} (l, x or s)")
    side = "prev" if neighbour(queue, -1) == other else "next"
    setattr(instruction, f"{verb}_{side}", True)


def assemble(lines: str | Iterable[str], file: str = "") -> list[Instruction]:
    """Instructions of program text.

    Raises:
        UsageError: ``file:line: what``, for the first bad line.
    """
    out = []
    for number, text in enumerate(lines.splitlines() if isinstance(lines, str) else lines, 1):
        instruction = parse_line(text, f"{file or 'line'}{':' if file else ' '}{number}: ")
        if instruction is not None:
            out.append(instruction)
    return out
