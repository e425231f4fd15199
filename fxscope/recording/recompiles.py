"""Why cache entries did not match (artifact ``recompile_reasons``): each failed guard taken apart.

The texts come from ``torch/csrc/dynamo/guards.cpp`` (TensorCheck::check_verbose, the leaf guards' failure strings) and
``torch/_dynamo/guards.py`` (code parts, with the line that asked behind ``  # ``).
"""

from __future__ import annotations

import ast
import re
from typing import Any

from fxscope.recording.records import FailedGuard
from fxscope.recording.tracebacks import read_stack
from fxscope.trace.line import BadEnvelope, decode_json

_ENTRY = re.compile(r"^(!?\d+(?:/\d+)*/\d+(?:_\d+)?): ")
_TENSOR = re.compile(
    r"^tensor '(.*)' (size|stride|dtype|rank|requires_grad|dispatch key set|device) ?mismatch(?: at index (\d{1,9}))?[.:]? ?(.*)$",
    re.DOTALL,
)
_DEVICE = re.compile(
    r"^tensor '(.*)' Tensor device index mismatch\. Expected device index to be (\S+), (?:but )?got (\S+)"
)
_EXPECTED = re.compile(r"expected ([\s\S]*?), actual ([\s\S]*?)\.?$")
_TYPE_OF = re.compile(r"^expected type of '(.*)' to be ([\s\S]*?), (?:'? ?)?but found ([\s\S]*)$")
_ASKED = re.compile(r"^(.*?)(?:  )?# (\S.*?):(\d{1,9}) in (\S+)(?: \(.*\))?$", re.DOTALL)
_SHAPE = re.compile(r"\.(?:size|stride)\(\)|\.storage_offset\(\)|\.shape\[|\bMod\(|\bEq\(|\bNe\(|//")
_COMPARE = re.compile(r"^(.+?) (==|!=|is not|is|<=|>=|<|>|not in|in) (.+)$", re.DOTALL)
_NAME = re.compile(r"^[A-Za-z_]\w*")


def read_reasons(text: str) -> list[str]:
    """The reasons of one event. Declared as JSON; with a single reason torch writes it bare."""
    stripped = text.strip()
    if stripped.startswith(("[", '"')):
        try:
            value = decode_json(stripped.encode("utf-8", "replace"))
        except BadEnvelope:
            return [stripped]
        return [str(item) for item in value] if isinstance(value, list) else [str(value)]
    return [stripped] if stripped else []


def parse_reason(text: str) -> FailedGuard:
    """Take one reason apart. A text of no known form keeps ``kind="other"``."""
    entry = _ENTRY.match(text)
    body = text[entry.end() :] if entry else text
    body, _, stack_text = body.partition("\nUser stack trace:")
    guard, _, comment = body.partition("  # ")
    found = FailedGuard(entry=entry[1] if entry else "", guard=guard.strip())
    if comment and (asked := _ASKED.match(comment)):
        found.asked_file, found.asked_line = asked[2], int(asked[3])
    stack = read_stack(stack_text)
    if stack:
        found.asked_file, found.asked_line = stack[-1].file, stack[-1].line
    _take_apart(found)
    return found


def source_name(text: str) -> str:
    """The source as guard trees write it: reasons print locals bare, ``x.size()[0]`` for ``L['x'].size()[0]``."""
    name = _NAME.match(text)
    if name is None or name[0] in ("L", "G", "type", "len", "torch", "object", "dict", "list", "set", "str", "int"):
        return text
    if text[name.end() : name.end() + 1] == "(":
        return text
    return f"L['{name[0]}']{text[name.end() :]}"


def _set(found: FailedGuard, kind: str, source: str | None, expected: Any = None, actual: Any = None) -> None:
    found.kind = kind
    found.source = source_name(source) if source else None
    found.expected = None if expected is None else str(expected)
    found.actual = None if actual is None else str(actual)


def _take_apart(found: FailedGuard) -> None:
    guard = found.guard
    for reader in (_tensor, _state, _identity, _container, _comparison):
        if reader(found, guard):
            return


def _tensor(found: FailedGuard, guard: str) -> bool:
    if tensor := _TENSOR.match(guard):
        kind = {"dispatch key set": "dispatch_key"}.get(tensor[2], tensor[2])
        values = _EXPECTED.search(tensor[4])
        expected, actual = (values[1], values[2]) if values else (None, None)
        if values is None and (wanted := re.search(r"expected (?:requires_grad=)?(\S+)", tensor[4])):
            expected = wanted[1].rstrip(".")
        source = tensor[1]
        if kind in ("size", "stride") and tensor[3] is not None:
            found.index = int(tensor[3])
        _set(found, kind, source, expected, actual)
        return True
    if device := _DEVICE.match(guard):
        _set(found, "device", device[1], device[2].rstrip("."), device[3].rstrip("."))
        return True
    if wrong := _TYPE_OF.match(guard):
        _set(found, "type", wrong[1], wrong[2].strip(), wrong[3].strip())
        return True
    return False


def _state(found: FailedGuard, guard: str) -> bool:
    if guard.startswith("BACKEND_MATCH failure"):
        cached = re.search(r"Cached backend: (.*?)\. New backend: (.*?)\. If this", guard, re.DOTALL)
        _set(found, "backend", None, *(cached.groups() if cached else ()))
        return True
    if changed := re.match(r"^GLOBAL_STATE changed: (.*)$", guard, re.DOTALL):
        what = changed[1].strip()
        _set(found, "grad_mode" if "grad_mode" in what else "autocast" if "autocast" in what else "global_state", None)
        found.source = what
        return True
    if "___check_global_state" in guard:
        _set(found, "global_state", None)
        return True
    if "___check_torch_function_mode_stack" in guard or "torch_function_mode" in guard.lower():
        _set(found, "function_mode", None)
        return True
    if guard.startswith("utils_device.CURRENT_DEVICE"):
        _set(found, "default_device", None, guard.partition("== ")[2] or None)
        return True
    if guard.startswith(("Duplicate tensor found", "Duplicate tensors found")) or "___check_tensors" in guard:
        _set(found, "aliasing", None)
        return True
    return False


def _identity(found: FailedGuard, guard: str) -> bool:
    if check := re.match(r"^___check_(type|obj)_id\((.*), (\d+)\)(?:, type=(.*))?$", guard, re.DOTALL):
        _set(found, "type" if check[1] == "type" else "identity", check[2], check[4] or check[3])
        return True
    if has := re.match(r"^(not )?hasattr\((.*), ('[^']*'|\"[^\"]*\")\)(?: == (True|False))?$", guard, re.DOTALL):
        wanted = (has[4] or "True") == "True"
        _set(found, "attribute", has[2], f"{has[3]} {'present' if wanted != bool(has[1]) else 'absent'}")
        return True
    return False


def _container(found: FailedGuard, guard: str) -> bool:
    if size := re.match(r"^len\((.*)\) (==|!=|<=|>=|<|>) (\d+)$", guard, re.DOTALL):
        _set(found, "length", size[1], size[3] if size[2] in ("==", "!=") else f"{size[2]} {size[3]}")
        # Torch words a failed length guard by what holds now: "len(xs) != 2" means that 2 was expected.
        return True
    if truth := re.match(r"^not ([A-Za-z_LG][\w.\[\]'\"]*)$", guard):
        _set(found, "length", truth[1], "0")
        return True
    if contains := re.match(r"^(not )?___dict_contains\((.*), ([^,]*)\)$", guard, re.DOTALL):
        _set(found, "keys", contains[3], f"{contains[2]} {'absent' if contains[1] else 'present'}")
        return True
    if keys := re.match(
        r"^(?:list|set|tuple)?\(?(?:dict\.keys\((.*?)\)|(.*?)\.keys\(\))\)? == (.*)$", guard, re.DOTALL
    ):
        _set(found, "keys", keys[1] or keys[2], keys[3])
        return True
    return False


def _comparison(found: FailedGuard, guard: str) -> bool:
    compare = _COMPARE.match(guard)
    if compare is None:
        return False
    left, operator, right = compare[1].strip(), compare[2], compare[3].strip()
    if _SHAPE.search(guard):
        _set(found, "shape", _first_source(guard), guard)
        return True
    if operator in ("is", "is not"):
        _set(found, "none" if right == "None" else "identity", left, right if operator == "is" else f"not {right}")
        return True
    try:
        value = ast.literal_eval(right)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        kind = "dtype" if right.startswith("torch.") else "device" if right.startswith("device(") else "value"
        _set(found, kind, left, right if operator == "==" else f"{operator} {right}")
        return True
    kinds = {bool: "bool", int: "number", float: "number", complex: "number", str: "string", type(None): "none"}
    _set(found, kinds.get(type(value), "value"), left, right if operator == "==" else f"{operator} {right}")
    return True


def _first_source(guard: str) -> str | None:
    """The first thing in a shape expression that has a size or a stride: ``2 <= x.size()[0]`` -> ``x.size()[0]``."""
    found = re.search(r"[A-Za-z_][\w.\[\]'\"]*\.(?:size|stride|storage_offset)\(\)(?:\[\d+\])?", guard)
    return found[0] if found else None
