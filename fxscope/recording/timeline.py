"""Compile phases over time, from the ``chromium_event`` payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.recording.metrics import number as number_of
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxscope.recording.builder import Builder


def read_timeline(builder: Builder) -> Iterator[dict[str, Any]]:
    """Chrome trace events: begin and end pairs become complete ones (``ph`` "X" with ``dur``), in order of their end.

    ``pid`` is the rank where there is one, else the process; the ``tid`` of a rank's workers is their process. What never ended is left as its ``B``.
    """
    for log, index in enumerate(builder.logs):
        open_: dict[tuple[int, Any], list[dict[str, Any]]] = {}
        for number in index.numbers("chromium_event"):
            try:
                event = index.event(number)
                value = decode_json(index.text(number).encode("utf-8", "replace"))
            except BadEnvelope as error:
                index.note(f"{index.source.path}: skipped a broken event at byte {index.starts[number]}: {error}")
                continue
            stamp = number_of(value.get("ts")) if isinstance(value, dict) else None
            if stamp is None:
                continue
            value.update(ts=stamp, tid=_thread(value.get("tid")), name=str(value.get("name")), ph=str(value.get("ph")))
            if "dur" in value:
                value["dur"] = number_of(value["dur"]) or 0.0
            process = builder.processes.get((log, event.process))
            value["pid"] = event.process
            if process is not None and process.rank is not None:
                value["pid"] = process.rank
                if process.prefix.startswith("p"):
                    value["tid"] = event.process  # a worker of the rank: a track of its own
            yield from _pair(value, open_.setdefault((event.process, value.get("tid")), []))
        for waiting in open_.values():
            yield from waiting


def _pair(value: dict[str, Any], waiting: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    if value.get("ph") == "B":
        waiting.append(value)
        return
    if value.get("ph") != "E":
        yield value
        return
    for place in range(len(waiting) - 1, -1, -1):
        if waiting[place].get("name") == value.get("name"):
            begin = waiting.pop(place)
            args = {**_args(begin), **_args(value)}
            yield {**begin, "ph": "X", "dur": max(0.0, value["ts"] - begin["ts"]), "args": args}
            return
    yield value


def _thread(value: Any) -> int | str:
    return value if isinstance(value, int) else str(value)


def _args(value: dict[str, Any]) -> dict[str, Any]:
    args = value.get("args")
    return args if isinstance(args, dict) else {}
