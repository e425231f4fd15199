"""Loops of the encoded program: unrolling them (the front end) and finding them in a flat program (the compiler)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

from fxscope.errors import UnreadableError
from fxscope.targets.npu.encoding import encode, from_words, words
from fxscope.targets.npu.isa import BY_NAME, Instruction

MAX_BODY = 64  # longest body that the compiler looks for
MAX_UNROLLED = 1 << 22  # instructions; a few lines of nested loops could ask for 2**32
_Words = tuple[int, int, int, int]
_LOOP, _STEP = BY_NAME["loop"].number, BY_NAME["step"].number


def unroll(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The flat program that the queues see.

    Raises:
        UnreadableError: A loop runs over the end of the program, lacks its steps, nests deeper than two levels, steps
            to an illegal word, or makes more than MAX_UNROLLED instructions.
    """
    if not any(instruction.op in ("loop", "step") for instruction in instructions):
        return list(instructions)
    flat: list[_Words] = []
    coded: list[_Words] = [tuple(words(instruction)) for instruction in instructions]  # type: ignore[misc]
    _unroll(coded, 0, len(coded), 0, flat)
    return [from_words(four, f"unrolled instruction {index}: ") for index, four in enumerate(flat)]


def _unroll(code: Sequence[_Words], begin: int, end: int, depth: int, out: list[_Words]) -> None:
    at = begin
    while at < end:
        four = code[at]
        op = four[0] & 63
        if op == _STEP:
            raise UnreadableError(f"instruction {at}: step outside the head of a loop")
        if op != _LOOP:
            if len(out) == MAX_UNROLLED:
                raise UnreadableError(f"the program unrolls to more than {MAX_UNROLLED:,} instructions")
            out.append(four)
            at += 1
            continue
        if depth == 2:
            raise UnreadableError(f"instruction {at}: loops nest deeper than two levels")
        count, body = (four[1] & 0xFFFF) + 1, (four[1] >> 16) + 1
        first = at + 1 + body
        if first + body > end:
            raise UnreadableError(f"instruction {at}: loop body of {body} runs over the end at {end}")
        steps = code[at + 1 : first]
        if any(step[0] & 63 != _STEP for step in steps):
            raise UnreadableError(f"instruction {at}: a loop of {body} instructions needs {body} steps after it")
        moving = list(code[first : first + body])
        for repetition in range(count):
            if repetition:
                moving = [
                    (
                        four[0],
                        (four[1] + step[1]) & 0xFFFFFFFF,
                        (four[2] + step[2]) & 0xFFFFFFFF,
                        (four[3] + step[3]) & 0xFFFFFFFF,
                    )
                    for four, step in zip(moving, steps, strict=True)
                ]
            _unroll(moving, 0, body, depth + 1, out)
        at = first + body


def roll(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The same program with its repetitions written as loops, one level deep; ``unroll`` gives it back exactly.

    A run of p instructions repeats when word 0 stays and words 1 to 3 advance by a constant. It becomes a loop where
    that saves words: 1 + 2p against p * count.
    """
    rolled = _roll([(a, b, c, d) for a, b, c, d in struct.iter_unpack("<4I", encode(instructions))])
    return [from_words(four) for four in rolled]


def _roll(code: list[_Words]) -> list[_Words]:
    heads = [four[0] for four in code]
    size = len(code)
    places_of: dict[int, list[int]] = {}
    for index, head in enumerate(heads):
        places_of.setdefault(head, []).append(index)
    following = {index: later for places in places_of.values() for index, later in pairwise(places)}
    out: list[_Words] = []
    at = 0
    while at < size:
        best: tuple[int, int, int, list[_Words]] | None = None
        other = following.get(at)
        while other is not None and other - at <= MAX_BODY:
            period = other - at
            if heads[at:other] == heads[other : other + period]:
                steps = _steps(code, at, period)
                count = _repetitions(code, at, period, steps)
                saved = period * count - 1 - 2 * period
                if count > 1 and saved > 0 and (best is None or saved > best[0]):
                    best = (saved, period, count, steps)
            other = following.get(other)
        if best is None:
            out.append(code[at])
            at += 1
            continue
        _, period, count, steps = best
        out.append((_LOOP, (count - 1) | (period - 1) << 16, 0, 0))
        out += steps
        out += code[at : at + period]
        at += period * count
    return out


def _steps(code: Sequence[_Words], at: int, period: int) -> list[_Words]:
    out: list[_Words] = []
    for k in range(period):
        now, later = code[at + k], code[at + period + k]
        w1, w2, w3 = ((later[w] - now[w]) & 0xFFFFFFFF for w in (1, 2, 3))
        out.append((_STEP, w1, w2, w3))
    return out


def _repetitions(code: Sequence[_Words], at: int, period: int, steps: Sequence[_Words]) -> int:
    """How often the body repeats with these steps, itself included."""
    count = 1
    while count < 1 << 16:
        base = at + count * period
        if base + period > len(code):
            break
        for k in range(period):
            now, before, step = code[base + k], code[base - period + k], steps[k]
            if (
                now[0] != before[0]
                or now[1] != (before[1] + step[1]) & 0xFFFFFFFF
                or now[2] != (before[2] + step[2]) & 0xFFFFFFFF
                or now[3] != (before[3] + step[3]) & 0xFFFFFFFF
            ):
                return count
        count += 1
    return count
