"""What a program prints becomes lines: progress bars, colours, torn sequences, hostile ones."""

from __future__ import annotations

import pytest
from fxscope_tui.terminal import LINES, LONGEST_LINE, Output
from hypothesis import given
from hypothesis import strategies as st


def fed(*pieces: bytes) -> Output:
    output = Output()
    for piece in pieces:
        output.feed(piece)
    return output


def plain(output: Output) -> list[str]:
    return [output.plain(index) for index in range(output.count)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"10%\r50%\r100%\n", ["100%"]),
        (b"loading\rok\x1b[K\n", ["ok"]),
        (b"abc\b\bX\n", ["aXc"]),
        (b"one\ntwo\n\x1b[2Aonce\n", ["once", "two"]),
        (b"\x1b[31mred\x1b[0m\n", ["red"]),
        (b"\x1b]0;title\x07text\n", ["text"]),
        (b"\x1b[2J\x1b[Hscreen\n", ["", "screen"]),
        (b"\x1bPq#0;2;0;0;0\x1b\\sixel\n", ["sixel"]),
        ("mühsam ✔ 漢字\n".encode(), ["mühsam ✔ 漢字"]),
        (b"\xff\xfe\n", ["\ufffd\ufffd"]),
        (b"a\tb\n", ["a       b"]),
    ],
)
def test_lines(data, lines):
    assert plain(fed(data)) == lines


def test_tqdm_like_nested_bars():
    data = b"outer 0\ninner 0\x1b[A\router 1\n\rinner 1\n"
    assert plain(fed(data)) == ["outer 1", "inner 1"]


@given(st.binary(max_size=200), st.integers(0, 200))
def test_pieces_do_not_matter(data, cut):
    """However output is cut into reads, the lines are the same."""
    whole, parts = fed(data, b"\n"), fed(data[:cut], data[cut:], b"\n")
    assert plain(whole) == plain(parts)


@given(st.text(alphabet=st.characters(), max_size=200))
def test_nothing_that_acts_on_a_terminal_is_left(text):
    for line in plain(fed(text.encode("utf-8", "surrogatepass"), b"\n")):
        assert "\x1b" not in line
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in line)


def test_colours_are_kept_and_nothing_else():
    output = fed(b"\x1b[1;32mok\x1b[0m\x1b[?25l done\n")
    text = output.styled(0)
    assert text.plain == "ok done"
    assert any("color(2)" in str(span.style) or "green" in str(span.style) for span in text.spans), text.spans


def test_eight_bit_controls_do_not_survive_in_colour():
    output = fed("\x1b[31m\u009b2J\u202etxt\x1b[0m\n".encode())
    assert "\u009b" not in output.styled(0).plain
    assert "\u202e" not in output.styled(0).plain


def test_a_line_without_end_and_endless_lines_stay_bounded():
    output = Output()
    for _ in range(20):
        output.feed(b"x" * 10_000)
    assert len(output.lines[0]) <= LONGEST_LINE + 10_000
    output.feed(b"\n" * (LINES + 20_000))
    assert len(output.lines) <= LINES + 10_001
    assert output.dropped > 0
