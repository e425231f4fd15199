"""Colours for one line of code at a time, so that only visible lines are ever looked at.

A whole-file lexer costs seconds on 10,000 lines of generated code. One regular expression per line is exact enough for
reading, once it is known which lines lie inside a triple-quoted string (found by one search over the text). Kernels that
Inductor keeps in such strings are code themselves and are coloured as code.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from .spans import Span

_PYTHON_WORDS = (
    "and as assert async await break class continue def del elif else except finally for from global if import in is "
    "lambda nonlocal not or pass raise return try while with yield None True False self"
)
_CPP_WORDS = (
    "auto bool break case char const constexpr continue default do double else enum extern false float for if inline "
    "int long namespace new nullptr operator return short signed sizeof static struct switch template this true typedef "
    "typename unsigned using void volatile while pragma include int64_t int32_t uint8_t uint32_t"
)

_PYTHON = re.compile(
    r"(?P<comment>\#.*)"
    r"|(?P<string>[rbfuRBFU]{0,2}(?:\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?))"
    r"|(?P<type>\b(?:f16|bf16|f32|f64|f8\w*|i8|i16|i32|i64|u8|u16|u32|u64|b8|c64|c128|Sym)\b(?:\[[^\]\"]*\]){0,2})"
    r"|(?P<number>\b(?:0x[0-9a-fA-F]+|\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?)\b)"
    r"|(?P<accent>^\s*@[\w.]+)"
    rf"|(?P<keyword>\b(?:{_PYTHON_WORDS.replace(' ', '|')})\b)"
    r"|(?P<name>\b(?:torch|tl|triton|triton_helpers|extern_kernels|aten)(?:\.\w+)+)"
)
_CPP = re.compile(
    r"(?P<comment>//.*|/\*.*?(?:\*/|$))"
    r"|(?P<string>\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?)"
    r"|(?P<number>\b(?:0x[0-9a-fA-F]+|\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?[fFuUlL]*)\b)"
    r"|(?P<accent>^\s*#\s*\w+)"
    rf"|(?P<keyword>\b(?:{_CPP_WORDS.replace(' ', '|')})\b)"
    r"|(?P<name>\b(?:at|std|c10)(?:::\w+)+)"
)
_BYTECODE = re.compile(
    r"(?P<comment>\(.*\)\s*$)|(?P<keyword>\b[A-Z][A-Z_]{2,}\b)|(?P<number>\b\d+\b)|(?P<accent>>>|-->|\bTO L\d+|^\s*L\d+:)"
)
_NPU = re.compile(
    r"(?P<comment>[;\#].*)|(?P<accent>^\s*[\w.]+:)|(?P<number>\b(?:0x[0-9a-fA-F]+|\d+)\b)|(?P<keyword>^\s*[a-z][\w.]*)|(?P<name>[@%]\w+)"
)
_LEXERS = {"python": _PYTHON, "cpp": _CPP, "bytecode": _BYTECODE, "npu": _NPU}
_TRIPLE = re.compile(r"'''|\"\"\"")
_CPP_HINT = re.compile(r"#include|extern\s+\"C\"|\bint64_t\b|\bvoid\b")
_PY_HINT = re.compile(r"^\s*(?:import|from|def|@)\b|@triton", re.MULTILINE)


def highlight(line: str, language: str) -> list[Span]:
    """One line as spans; an unknown language gives it back plain."""
    lexer = _LEXERS.get(language)
    if lexer is None:
        return [(line, "string" if language == "string" else "")]
    spans: list[Span] = []
    at = 0
    for match in lexer.finditer(line):
        start, end = match.span()
        if end == start:
            continue
        if start > at:
            spans.append((line[at:start], ""))
        spans.append((line[start:end], match.lastgroup or ""))
        at = end
    if at < len(line):
        spans.append((line[at:], ""))
    return spans


class Regions:
    """Which language each line of a Python text is in: Python, or whatever a triple-quoted string holds."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        self._languages = ["python"]
        # A triple quote inside a comment or an ordinary string does not occur in generated code.
        quote = ""
        opened = 0
        for match in _TRIPLE.finditer(text):
            if not quote:
                quote, opened = match.group(), match.end()
            elif match.group() == quote:
                first, last = text.count("\n", 0, opened), text.count("\n", 0, match.start())
                if last > first + 1:
                    body = text[opened : min(match.start(), opened + 4000)]
                    inner = "cpp" if _CPP_HINT.search(body) else "python" if _PY_HINT.search(body) else "string"
                    self._starts += [first + 1, last]
                    self._languages += [inner, "python"]
                quote = ""

    def language(self, line: int) -> str:
        """Language of a line, counted from 0."""
        return self._languages[bisect_right(self._starts, line) - 1]
