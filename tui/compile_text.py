"""What is known about one compile beside its graph, in lines: its time, why it was begun anew, who called, its symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxscope.recording.records import Compile, ShapeEvent

from .frames import seconds_text, site
from .spans import Cell, Span
from .widgets.document import Block, heading

SHADES = {
    "dynamo": ("\u2588", "info"),
    "aot": ("\u2593", "warn"),
    "inductor": ("\u2592", "good"),
    "backward": ("\u2591", "accent"),
}
SHAPES = 40  # symbolic sizes that are listed
Phase = tuple[int, str, float]  # depth, name, seconds


def compile_blocks(compile_: Compile, phases: Sequence[Phase], shapes: Sequence[ShapeEvent]) -> list[Block]:
    """The blocks of a compile."""
    return [*_time(compile_), *_nested(phases), *_stack(compile_), *_shapes(shapes)]


def _time(compile_: Compile) -> list[Block]:
    lines: list[Cell] = [
        [(f"{compile_.key} ", "strong"), (compile_.function, ""), (f"  {seconds_text(compile_.seconds)}", "dim")]
    ]
    if compile_.status not in ("ok", "empty"):
        why = compile_.failure or compile_.restart_reason or "no reason was logged"
        lines.append([(f"  {compile_.status}: ", "warn"), (why, "")])
    whole = max(compile_.seconds or 0.0, sum(compile_.phases.values()), 1e-9)
    for name, seconds in sorted(compile_.phases.items(), key=lambda item: -item[1]):
        shade, style = SHADES.get(name, ("\u2588", "dim"))
        bar = shade * max(1, round(30 * seconds / whole))
        lines.append(
            [(f"  {name:<12}", ""), (f"{seconds_text(seconds):>6} {seconds / whole:>4.0%} ", "dim"), (bar, style)]
        )
    if compile_.caches:
        caches = ", ".join(f"{name} {result}" for name, result in compile_.caches.items())
        lines.append([("  caches      ", "dim"), (caches, "")])
    return [Block(lines)]


def _nested(phases: Sequence[Phase]) -> list[Block]:
    if not phases:
        return []
    floor = max(seconds for _, _, seconds in phases) / 200
    rows: list[Cell] = [
        [("  " + "  " * depth, ""), (name, ""), (f"  {seconds_text(seconds)}", "dim")]
        for depth, name, seconds in phases
        if seconds >= floor
    ]
    return [heading("PHASES AS LOGGED", "the longest, nested"), Block(rows)]


def _stack(compile_: Compile) -> list[Block]:
    if not compile_.stack:
        return []
    rows: list[Cell] = [
        [("  ", ""), (f"{site(frame.file, frame.line):<28} ", "name"), (frame.code.strip(), "string")]
        for frame in compile_.stack
    ]
    return [heading("CALLED FROM", "outermost first"), Block(rows, None, 6)]


def _shapes(shapes: Sequence[ShapeEvent]) -> list[Block]:
    if not shapes:
        return []
    rows: list[Cell] = []
    for event in shapes[:SHAPES]:
        words = {
            "symbol": [(event.symbol, "type"), (f" = {event.source or '?'}", "")],
            "specialization": [
                (event.symbol, "type"),
                (f" fixed to {event.value}", "warn"),
                (f"  {event.reason}", "dim"),
            ],
            "guard": [("guard ", "dim"), (event.expression, "")],
        }
        line: list[Span] = [("  ", ""), *words[event.kind]]
        if event.kind == "symbol" and event.value:
            line.append((f" (now {event.value})", "dim"))
        if event.line is not None:
            line.append((f"  {site(event.line.file, event.line.line)}", "name"))
        rows.append(line)
    if len(shapes) > SHAPES:
        rows.append([(f"  \u2026 {len(shapes) - SHAPES:,} more", "dim")])
    return [heading("SYMBOLIC SIZES", "made, fixed to a value, guarded"), Block(rows, None, 6)]


def shapes_by_compile(events: Sequence[ShapeEvent]) -> Mapping[str, list[ShapeEvent]]:
    """The same event told twice is listed once."""
    found: dict[str, dict[tuple[str, ...], ShapeEvent]] = {}
    for event in events:
        where = str((event.line.file, event.line.line)) if event.line else ""
        key = (event.kind, event.symbol, event.source, event.value, event.expression, where)
        found.setdefault(event.compile_key, {}).setdefault(key, event)
    return {key: list(by_text.values()) for key, by_text in found.items()}
