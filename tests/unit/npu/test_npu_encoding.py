"""asm -> bin -> asm and bin -> asm -> bin are identities; every field at its limits; reserved bits are refused."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxscope.errors import UnreadableError, UsageError
from fxscope.targets.npu import loops
from fxscope.targets.npu.assembly import assemble, disassemble, line, parse_line
from fxscope.targets.npu.encoding import decode, encode, from_words, words
from fxscope.targets.npu.isa import BY_NAME, HEADER, OPCODES, REGISTER_BY_NUMBER, REGISTERS, Instruction

FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next")


def value_of(field):
    if field.kind == "enum":
        return st.sampled_from(field.values)
    if field.kind == "f32":
        return st.floats(width=32, allow_nan=False)
    if field.name == "reg":
        return st.sampled_from(sorted(REGISTER_BY_NUMBER))
    return st.integers(field.minimum, field.maximum)


@st.composite
def instructions(draw):
    row = draw(st.sampled_from(OPCODES))
    args = {field.name: draw(value_of(field)) for field in row.fields}
    flags = {} if row.queue == "front" else {flag: draw(st.booleans()) for flag in FLAGS}
    return Instruction(row.name, args, draw(st.integers(0, 0xFFFF)), **flags)


@given(st.lists(instructions(), max_size=8))
@settings(max_examples=150)
def test_asm_bin_asm(program):
    text = disassemble(program)
    code = encode(assemble(text))
    assert disassemble(decode(code)) == text
    assert decode(code) == program


@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=4, max_size=4))
@settings(max_examples=400)
def test_bin_asm_bin_or_refused(four):
    try:
        instruction = from_words(four)
    except UnreadableError:
        return
    assert words(parse_line(line(instruction))) == four


@given(instructions(), st.integers(0, 127))
@settings(max_examples=300)
def test_any_flipped_bit_is_another_word_or_an_error(instruction, bit):
    code = bytearray(encode([instruction]))
    code[bit // 8] ^= 1 << bit % 8
    try:
        other = decode(bytes(code))
    except UnreadableError:
        return
    assert other != [instruction]
    assert encode(other) == bytes(code)
    assert encode(assemble(disassemble(other))) == bytes(code)


def example(row):
    args = {}
    for field in row.fields:
        args[field.name] = (
            field.values[0]
            if field.kind == "enum"
            else 1.5
            if field.kind == "f32"
            else 0
            if field.name == "reg"
            else field.minimum
        )
    return args


@pytest.mark.parametrize("row", OPCODES, ids=lambda row: row.name)
def test_every_field_at_its_limits(row):
    for field in row.fields:
        if field.kind == "f32":
            continue
        if field.kind == "enum":
            good, bad = [field.values[0], field.values[-1]], ["no_such_value"]
        elif field.name == "reg":
            good, bad = [register.number for register in REGISTERS], [31, 255, 256, -1]
        else:
            good, bad = [field.minimum, field.maximum], [field.minimum - 1, field.maximum + 1]
        for value in good:
            instruction = Instruction(row.name, {**example(row), field.name: value})
            assert decode(encode([instruction])) == [instruction]
            assert assemble(line(instruction)) == [instruction]
        for value in bad:
            with pytest.raises(UsageError, match=field.name if field.name != "reg" else "reg"):
                encode([Instruction(row.name, {**example(row), field.name: value})])
    with pytest.raises(UsageError, match="dbg"):
        encode([Instruction(row.name, example(row), 0x10000)])


@pytest.mark.parametrize("row", OPCODES, ids=lambda row: row.name)
def test_every_reserved_bit_is_refused_with_its_offset(row):
    base = words(Instruction(row.name, example(row)))
    owned = {
        (field.word, field.low + bit)
        for field in (*HEADER, *row.fields)
        for bit in range(field.width)
        if not (row.queue == "front" and field.kind == "bit" and field in HEADER)
    }
    free = [(word, bit) for word in range(4) for bit in range(32) if (word, bit) not in owned]
    assert len(owned) + len(free) == 128
    for word, bit in free:
        four = list(base)
        four[word] |= 1 << bit
        code = encode([Instruction("nop", {"queue": "x"})]) + struct.pack("<4I", *four)
        with pytest.raises(UnreadableError, match=f"offset 0x10: {row.name}: reserved bit {bit} of word {word}"):
            decode(code)


@pytest.mark.parametrize("row", OPCODES, ids=lambda row: row.name)
def test_fields_do_not_overlap(row):
    seen = set()
    for field in (*HEADER, *row.fields):
        bits = {(field.word, field.low + bit) for bit in range(field.width)}
        assert not bits & seen, field.name
        assert field.low + field.width <= 32
        seen |= bits


def test_enum_values_fit_their_fields():
    for row in OPCODES:
        for field in row.fields:
            if field.kind == "enum":
                assert len(field.values) <= 1 << field.width, (row.name, field.name)
                assert len(set(field.values)) == len(field.values)


def test_unknown_opcode_and_register():
    with pytest.raises(UnreadableError, match="unknown opcode 63"):
        decode(struct.pack("<4I", 63, 0, 0, 0))
    with pytest.raises(UnreadableError, match="no register 200"):
        decode(struct.pack("<4I", BY_NAME["cfg"].number, 0, 200, 0))


def test_truncated_code_names_the_last_whole_instruction():
    code = encode([Instruction("nop", {"queue": "l"})] * 3)
    with pytest.raises(UnreadableError, match=r"truncated program: 41 bytes .* ends at 0x20"):
        decode(code[:-7])


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x80000000, 1])
def test_every_float_survives(bits):
    four = words(Instruction("ewi", {"fn": "add", "dst": 0, "rows": 1, "src": 0, "cols": 1, "imm": 0.0}))
    four[3] = bits
    instruction = from_words(four)
    assert words(instruction) == four
    assert words(parse_line(line(instruction))) == four
    assert isinstance(instruction.args["imm"], int) == math.isnan(struct.unpack("<f", struct.pack("<I", bits))[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gem a=0", "f.s:1: unknown instruction 'gem'; did you mean gemm?"),
        ("nop queue=q", "f.s:1: nop: queue=q: not one of l, x, s"),
        ("nop", "f.s:1: nop: missing queue"),
        ("nop queue=x size=3", "f.s:1: nop: no field 'size'; fields: queue"),
        ("\n; nothing\nhalt status=1000", "f.s:3: halt: status=1000: outside 0 to 255"),
        ("halt status=0 !pop.x", "!pop.x: write !pop.q or !push.q with another queue than x"),
        ("loop count=2 body=1 !push.l", "loop runs on no queue"),
        ("cfg reg=nope value=1", "reg=nope: not a number"),
        ("halt status=x", "status=x: not a number"),
    ],
)
def test_assembler_errors_name_file_line_and_what(text, message):
    with pytest.raises(UsageError) as caught:
        assemble(text, "f.s")
    assert message in str(caught.value)


def test_comments_case_and_labels():
    program = assemble("; a comment\n\n  halt status=0x2 !pop.l !push.s @7 ; trailing\n")
    assert program == [Instruction("halt", {"status": 2}, 7, pop_prev=True, push_next=True)]
    assert disassemble(program, {7: "add model.py:3"}) == "halt status=2 !pop.l !push.s @7  ; add model.py:3\n"


def test_a_few_lines_do_not_unroll_to_billions(monkeypatch):
    monkeypatch.setattr(loops, "MAX_UNROLLED", 5000)
    step = "step w1=0 w2=0 w3=0\n"
    text = f"loop count=65536 body=3\n{step * 3}loop count=65536 body=1\n{step}nop queue=l\n"
    with pytest.raises(UnreadableError, match="the program unrolls to more than 5,000 instructions"):
        loops.unroll(assemble(text))
