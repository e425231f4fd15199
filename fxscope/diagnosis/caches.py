"""Findings from compile caches: bypasses, and the part of the key that differs between two misses of the same graph."""

from __future__ import annotations

import json
from typing import Any

from fxscope.diagnosis.context import Context, user_place
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.words import count


def findings(context: Context) -> list[Finding]:
    """One finding per cache that was bypassed. Misses of a first run are no fault and make none."""
    bypasses: dict[tuple[str, str], list[str]] = {}
    for event in context.recording.cache_events:
        if event.outcome == "bypass":
            bypasses.setdefault((event.cache, event.reason or "no reason in the log"), []).append(
                event.compile_key or ""
            )
    found = []
    for (cache, reason), keys in bypasses.items():
        compile_ = context.by_key.get(keys[0])
        file, line = user_place(compile_) if compile_ else ("", 0)
        found.append(
            Finding(
                ids=["cache-miss"],
                category="cost",
                severity="info",
                title=f"The {cache} cache was bypassed {count(len(keys), 'time')}: {reason[:120]}",
                file=file,
                line=line,
                function=compile_.function if compile_ else "",
                cause=f"These graphs are compiled anew in every process: {reason}",
                fix="Remove what the reason names (a custom pass without uuid(), an operator or object that cannot be pickled or hashed), so that the next process finds the compiled code.",
                gain="compile time of every later process",
                evidence=[Evidence(kind="compile", text=key, compile_key=key) for key in keys[:20]],
                cost=float(len(keys)),
            )
        )
    return found


def key_difference(first: list[str], second: list[str]) -> list[str]:
    """Parts of two cache keys that differ.

    Args:
        first: Lines of one key (``fx_graph_cache_*`` payload, field ``components``): ``[hash] name: value``.
        second: The other's.

    Returns:
        ``name: a -> b`` for what differs, and one line for what only one of them has.
    """
    a, b = _components(first), _components(second)
    found = [f"{name}: {_difference(a[name], b[name])}" for name in a if name in b and a[name] != b[name]]
    found += [f"only the first has {name}: {value[:_SHOWN]}" for name, value in a.items() if name not in b]
    found += [f"only the second has {name}: {value[:_SHOWN]}" for name, value in b.items() if name not in a]
    return found


_SHOWN = 120  # characters of a component that are shown; a component can be a whole graph


def _difference(a: str, b: str) -> str:
    """Two texts from a little before the place where they part."""
    same = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, same - _SHOWN // 3)
    left, right = (("..." if start else "") + text[start : start + _SHOWN].replace("\n", " ") for text in (a, b))
    return f"{left} -> {right}"


def components_of(payload: str) -> tuple[str, list[str]]:
    """Key and components of one cache artifact; ("", []) where it has none."""
    try:
        value: Any = json.loads(payload)
    except ValueError:
        return "", []
    if not isinstance(value, dict):
        return "", []
    parts = value.get("components") or []
    return str(value.get("key") or value.get("cache_key") or ""), [str(part) for part in parts] if isinstance(
        parts, list
    ) else []


def _components(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        body = line.split("] ", 1)[1] if line.startswith("[") and "] " in line else line
        name, _, value = body.partition(": ")
        key, number = name, 1
        while key in found:
            number += 1
            key = f"{name}#{number}"
        found[key] = value
    return found
