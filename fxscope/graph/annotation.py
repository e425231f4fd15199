"""What stands beside a node in a printed graph: its shape annotation, the user's line above it, the meaning of its name."""

from __future__ import annotations

import functools
import re

from fxscope.graph.records import Role, TensorMeta
from fxscope.source import SourceLine

_TENSOR = re.compile(r"([a-z]+[a-z0-9_]*)\[")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SUBCLASS = re.compile(r"[A-Za-z_][\w.]*\(")
_SOURCE = re.compile(r"\bFile: (.+?):(\d+)(?: in (.*?))?, code: ?(.*)$")
_MANGLED = re.compile(r"^[LG]_+(\w+?)_(?=modules_|parameters_|buffers_)")
_INLINED = re.compile(r"^L__(\w+?)___")


def _closing(text: str, start: int) -> int:
    """Position of the bracket that closes the one at ``start``; -1 where none does."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] in "[(":
            depth += 1
        elif text[position] in "])":
            depth -= 1
            if not depth:
                return position
    return -1


def _sizes(text: str) -> tuple[int | str, ...]:
    """The entries of ``4, s0, Max(1, s1)``: numbers as numbers, expressions as their text."""
    parts: list[int | str] = []
    depth = begin = 0
    for position, char in enumerate(text + ","):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and not depth:
            part = text[begin:position].strip()
            begin = position + 1
            if part:
                parts.append(int(part) if _NUMBER.fullmatch(part) else part)
    return tuple(parts)


@functools.lru_cache(maxsize=4096)  # a graph has few different annotations
def parse_meta(text: str) -> TensorMeta | None:
    """``f32[4, 64][64, 1]cuda:0`` as a record; None for anything else.

    Strides and device are absent in older logs. A tensor subclass (``DTensor(f32[4], S(0))``) gives what is inside.
    """
    match = _TENSOR.match(text)
    if match is None:
        subclass = _SUBCLASS.match(text)
        return parse_meta(text[subclass.end() :]) if subclass and not text.startswith("Sym(") else None
    end = _closing(text, match.end() - 1)
    if end < 0:
        return None
    shape = _sizes(text[match.end() : end])
    stride = None
    rest = text[end + 1 :]
    if rest.startswith("["):
        close = _closing(rest, 0)
        if close < 0:
            return None
        stride = _sizes(rest[1:close])
        rest = rest[close + 1 :]
    device = re.match(r"[a-z]+(:\d+)?", rest)
    return TensorMeta(dtype=match.group(1), shape=shape, stride=stride, device=device.group(0) if device else None)


def parse_symbol(text: str) -> str | None:
    """The expression in ``Sym(s0 + 1)``; None for anything else."""
    return text[4:-1] if text.startswith("Sym(") and text.endswith(")") else None


def parse_source(comment: str) -> SourceLine | None:
    """The user's line in a comment ``# File: model.py:12 in forward, code: y = x + 1``; None where there is none."""
    match = _SOURCE.search(comment)
    if match is None:
        return None
    file, line, function, code = match.groups()
    return SourceLine(file=file, line=int(line), function=function or "", code=code.strip())


def role_of(target: str, description: str, stage: str, symbol: str | None) -> Role:
    """What an input is, by what AOTAutograd says of it, else by its mangled name."""
    if symbol is not None or "SymInt" in description:
        return "symbol"
    if description:
        kinds: tuple[tuple[str, Role], ...] = (("Param", "parameter"), ("Buffer", "buffer"), ("Tangent", "tangent"))
        for word, role in kinds:
            if description.startswith(word):
                return role
    if target.startswith("tangents_"):
        return "tangent"
    if "backward" in stage:
        return "saved"
    if "_parameters_" in target or target.startswith("p_"):
        return "parameter"
    if "_buffers_" in target or target.startswith("b_"):
        return "buffer"
    if target.startswith(("c_", "_tensor_constant", "_lifted")):
        return "constant"
    return "input"


def original_of(target: str) -> str | None:
    """The name in the user's program behind a mangled one, where it can be told.

    Example:
        ``L_self_modules_h_modules_0_parameters_weight_`` is ``L['self'].h.0.weight``.
    """
    match = _MANGLED.match(target)
    if match is None:
        simple = re.fullmatch(r"L_([A-Za-z]\w*?)_", target)
        return f"L['{simple.group(1)}']" if simple and not re.search(r"_\d", simple.group(1)) else None
    path: list[str] = []
    rest = "_" + target[match.end() :]
    for segment in re.split(r"_modules_(?=\w)", rest):
        path += [part for part in re.split(r"_(?:parameters|buffers)_(?=\w)", segment) if part]
    if not path:
        return None
    path[-1] = path[-1].removesuffix("_")
    return f"L['{match.group(1)}']." + ".".join(path)


def module_of(op: str, target: str, original: str | None) -> str | None:
    """Path of the module that owns a parameter, buffer or called module; None where the name does not say."""
    if op == "call_module":
        return _INLINED.sub("", target)
    if original and "]." in original:
        path = original.split("].", 1)[1]
        return path.rpartition(".")[0]
    if op == "get_attr" and "." in target:
        return target.rpartition(".")[0]
    return None
