"""The text of a printed graph, before it is parsed: where it begins and ends, what in it is no Python, the user's lines."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator

from fxscope.graph.annotation import parse_source
from fxscope.source import SourceLine

PIECE = 4000  # lines of a long graph that are parsed at once
_CLASS = re.compile(r"^([ \t]*)class (.*?)\(torch\.nn\.Module\):[ \t]*$", re.MULTILINE)
_FORWARD = re.compile(r"^([ \t]*)def forward\(", re.MULTILINE)


def first_graph(text: str) -> re.Match[str] | None:
    """Where the first printed class, or the first bare ``forward``, begins."""
    return _CLASS.search(text) or _FORWARD.search(text)


def syntax_tree(source: str) -> ast.ClassDef | ast.FunctionDef:
    """What ``ast`` makes of it.

    Raises:
        SyntaxError: It is no Python, or neither a class nor a function.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # "-1[...]" and the like in a foreign text is not ours to mend
        first = ast.parse(source).body[0]
    if not isinstance(first, (ast.ClassDef, ast.FunctionDef)):
        raise SyntaxError("neither a class nor a function")
    return first


def cut_body(source: str) -> tuple[str, list[tuple[int, int]]]:
    """The source with blank lines for most of a long forward's body, and which lines (from, to) these are, in pieces.

    A syntax tree takes eight kilobytes a line, so that of a whole graph of 200,000 nodes more than a gigabyte.
    """
    lines = source.split("\n")
    start = next((number for number, line in enumerate(lines) if line.lstrip().startswith("def forward(")), None)
    if start is None or len(lines) - start < 3 * PIECE:
        return source, []
    signature = (number for number in range(start, len(lines)) if lines[number].rstrip().endswith(":"))
    opened = next((n for n in signature if n == start or lines[n].lstrip().startswith(")")), len(lines))
    outer = len(lines[start]) - len(lines[start].lstrip())
    body = " " * (outer + 4)
    pieces: list[tuple[int, int]] = []
    begin, end = -1, len(lines)
    for number in range(opened + PIECE, len(lines)):
        line = lines[number]
        if line.strip() and not line.startswith(body) and not line.lstrip().startswith("#"):
            end = number
            break
        if number >= begin + PIECE and line.startswith(body) and line[len(body) : len(body) + 1] not in (" ", "#", ""):
            if begin >= 0:
                pieces.append((begin, number))
            begin = number
    if begin < 0:
        return source, []
    pieces.append((begin, end))
    first = pieces[0][0]
    return "\n".join([*lines[:first], *[""] * (end - first), *lines[end:]]), pieces


def piece_statements(lines: list[str], pieces: list[tuple[int, int]]) -> Iterator[ast.stmt]:
    """The statements of these pieces, with their line in the whole text.

    Raises:
        SyntaxError: A piece by itself is no Python.
    """
    for begin, end in pieces:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            block = ast.parse("if 1:\n" + "\n".join(lines[begin:end])).body
        if len(block) != 1 or not isinstance(block[0], ast.If):
            raise SyntaxError("a piece that is not of one block")
        for statement in block[0].body:
            statement.lineno += begin - 1
            yield statement


def isolate(text: str) -> tuple[str, dict[str, str]]:
    """The first printed class (or bare forward), dedented, its odd class names replaced; and the names by replacement."""
    start = first_graph(text)
    if start is None:
        return "", {}
    classes: dict[str, str] = {}

    def harmless(match: re.Match[str]) -> str:
        placeholder = f"C{len(classes)}_"
        classes[placeholder] = match.group(2)
        return f"{match.group(1)}class {placeholder}:"

    indent = len(start.group(1))
    lines = text[start.start() :].split("\n")
    end = len(lines)
    for number, line in enumerate(lines[1:], 1):
        # The block ends with the first line that is indented no deeper, a closing parenthesis of the signature apart.
        if line.strip() and len(line) - len(line.lstrip()) <= indent and not line.lstrip().startswith((")", "#")):
            end = number
            break
    return _CLASS.sub(harmless, textwrap.dedent("\n".join(lines[:end])) + "\n"), classes


def mend(source: str) -> tuple[str, list[str]]:
    """Replace each line that is no Python by one that is, naming what it computes and reads; and say so."""
    lines = source.split("\n")
    problems: list[str] = []
    depth = 0
    for number, line in enumerate(lines):
        code = line.strip()
        opened = depth
        depth += sum(code.count(char) for char in "([{") - sum(code.count(char) for char in ")]}")
        if not code or code.startswith("#") or opened > 0 or depth > 0 or code.endswith(":"):
            continue
        depth = 0
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problems.append(f"line {number + 1} is no Python ({error.args[0]}): {code[:200]}")
            match = re.match(r"(\w+)[^=]*?=\s*([\w.]*)(.*?)(;  (?:\w+ = )+None)?$", code)
            indent = line[: len(line) - len(line.lstrip())]
            if match is None or not match.group(1).isidentifier():
                lines[number] = f"{indent}pass"
                continue
            words = [word for word in re.findall(r"(?<![\w.'\"])[A-Za-z_]\w*", match.group(3)) if _plain(word)]
            target = match.group(2) if all(map(_plain, match.group(2).split("."))) else "unreadable"
            lines[number] = f"{indent}{match.group(1)} = {target}({', '.join(dict.fromkeys(words))})"
    return "\n".join(lines), problems


def _plain(word: str) -> bool:
    import keyword

    return word.isidentifier() and not keyword.iskeyword(word)


def source_lines(lines: list[str]) -> list[SourceLine | None]:
    """The user's line for each line of the text: a comment holds until the next one, or until another function begins."""
    parsed: dict[str, SourceLine | None] = {}
    current: SourceLine | None = None
    result: list[SourceLine | None] = []
    for line in lines:
        code = line.lstrip()
        if code.startswith("#"):
            if code not in parsed:
                parsed[code] = parse_source(code)
            current = parsed[code]
        elif code.startswith("def forward("):
            current = None
        result.append(current)
    return result
