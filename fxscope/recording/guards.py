"""Guard trees, from both formats: ``dynamo_cpp_guards_str`` (text, 2.3 on) and ``dynamo_guards`` (JSON, early 2024)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fxscope.recording.records import Guard
from fxscope.source import SourceLine
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ENTRY = re.compile(r"^((?:\| )*)\+- (.*)$")
_MANAGER = re.compile(
    r"^(?:KeyManager: |ValueManager: )?(?:\w*GuardManager|RootGuardManager|Key-Value pair|KeyValue manager pair)\b"
)
_SOURCE = re.compile(r"\bsource=(.*?), (?:accessed_by|type)=")
_LEAF = re.compile(r"^([A-Z][A-Z0-9_]*): ?(.*)$", re.DOTALL)
_SHAPE_LEAF = re.compile(r"^__SHAPE_GUARD__: ?(.*)$", re.DOTALL)
_ASKED = re.compile(r"^(?:(.*?)  # )?(\S.*?):(\d{1,9}) in (\S+)(?: \(.*\))?$", re.DOTALL)
_JSON_KINDS = (
    ("check_tensor(", "TENSOR_MATCH"),
    ("___check_type_id(", "TYPE_MATCH"),
    ("___check_obj_id(", "ID_MATCH"),
    ("___check_global_state(", "GLOBAL_STATE"),
    ("utils_device.CURRENT_DEVICE", "DEFAULT_DEVICE"),
    ("hasattr(", "HASATTR"),
    ("len(", "LENGTH_CHECK"),
)


def parse_guard_text(text: str, full_path: Callable[[str], str] = str) -> list[Guard]:
    """Roots of one printed guard tree.

    Args:
        text: Payload of ``dynamo_cpp_guards_str``.
        full_path: Completes the shortened path of the line that asked.
    """
    roots: list[Guard] = []
    path: list[Guard] = []
    last: Guard | None = None
    for line in text.split("\n"):
        entry = _ENTRY.match(line)
        if entry is None:
            if last is not None and line.strip() and not line.startswith("TREE_GUARD_MANAGER"):
                last.expression += "\n" + line
            continue
        depth = len(entry[1]) // 2
        last = _guard(entry[2], depth, full_path)
        while path and path[-1].depth >= depth:
            path.pop()
        if not last.source and last.type and path:
            last.source = next((above.source for above in reversed(path) if above.source), "")
        (path[-1].children if path else roots).append(last)
        path.append(last)
    return roots


def _guard(body: str, depth: int, full_path: Callable[[str], str]) -> Guard:
    if _MANAGER.match(body):
        source = _SOURCE.search(body)
        return Guard(type="", expression=body, source=source[1] if source else "", depth=depth)
    expression, _, comment = body.partition("  # ")
    shape = _SHAPE_LEAF.match(expression)
    leaf = _LEAF.match(expression)
    guard = Guard(
        type="SHAPE_ENV" if shape else leaf[1] if leaf else expression.split(":", 1)[0].strip(),
        expression=(shape[1] if shape else leaf[2] if leaf else expression).strip(),
        depth=depth,
    )
    asked = _ASKED.match(comment) if comment else None
    if asked:
        guard.asked = SourceLine(
            file=full_path(asked[2]), line=int(asked[3]), function=asked[4], code=(asked[1] or "").strip()
        )
    return guard


def flat(roots: Iterable[Guard]) -> Iterator[Guard]:
    """Every guard of a tree, each before its children."""
    waiting = list(roots)[::-1]
    while waiting:
        guard = waiting.pop()
        yield guard
        waiting.extend(reversed(guard.children))


def parse_guard_json(text: str, resolve: Callable[[Any], tuple[SourceLine, ...]]) -> list[Guard]:
    """Guards of a ``dynamo_guards`` event: flat, so every guard is a root.

    Args:
        text: The payload.
        resolve: Turns a logged stack into lines of source.
    """
    try:
        value = decode_json(text.encode("utf-8", "replace"))
    except BadEnvelope:
        return []
    found = []
    for item in value if isinstance(value, list) else []:
        if not isinstance(item, dict):
            continue
        code = str(item.get("code") or "")
        stack = resolve(item.get("user_stack"))
        kind = next((name for start, name in _JSON_KINDS if start in code), "GUARD")
        found.append(Guard(type=kind, expression=code, asked=stack[-1] if stack else None))
    return found
