"""Symbolic sizes: where they were made, what fixed them, what was guarded. Read on demand, for they are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fxscope.recording.records import ShapeEvent
from fxscope.recording.userline import deepest_user_line
from fxscope.trace.line import BadEnvelope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxscope.recording.builder import Builder

_KINDS: dict[str, Literal["symbol", "specialization", "guard"]] = {
    "create_symbol": "symbol",
    "create_unbacked_symbol": "symbol",
    "symbolic_shape_specialization": "specialization",
    "guard_added_fast": "guard",
    "guard_added": "guard",
}


def read_shape_events(builder: Builder) -> Iterator[ShapeEvent]:
    """Every shape event, log by log; broken ones are left out."""
    for log, index in enumerate(builder.logs):
        wanted = sorted((number, kind) for name, kind in _KINDS.items() for number in index.numbers(name))
        for number, kind in wanted:
            try:
                event = index.event(number)
            except BadEnvelope as error:
                index.note(f"{index.source.path}: skipped a broken event at byte {index.starts[number]}: {error}")
                continue
            process = builder.processes.get((log, event.process))
            value = event.value
            if process is None or not isinstance(value, dict):
                continue
            stack = process.stack(value.get("user_stack"))
            sources = value.get("sources")
            source = value.get("source") or (sources[0] if isinstance(sources, list) and sources else "")
            yield ShapeEvent(
                kind=kind,
                compile_key=process.key_at(event.envelope, number) or "",
                symbol=str(value.get("symbol") or ""),
                source=str(source),
                value=str(value.get("val", value.get("value", ""))),
                expression=str(value.get("expr") or ""),
                line=deepest_user_line(stack) or (stack[-1] if stack else None),
                reason=str(value.get("reason") or ""),
            )
