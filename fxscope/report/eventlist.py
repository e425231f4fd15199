"""Raw events of a recording, one by one: for ``fxscope events``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fxscope.errors import UsageError
from fxscope.recording.process import without_attempt
from fxscope.report.safe import plain, plain_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxscope.recording.recording import Recording


class EventRow(msgspec.Struct, kw_only=True):
    """One event as it lies in the log.

    Attributes:
        number: Of the event in the recording.
        type: Its name, e.g. ``dynamo_start``; ``name`` is what it calls itself, e.g. an artifact's name.
        id: Key of the compile that it belongs to, None outside one.
        when: Month, day and local time as printed.
        size: Bytes of the payload in the log.
        intact: Whether the payload's MD5 is the one in the envelope; None without a payload.
    """

    number: int
    type: str
    name: str | None
    id: str | None
    process: int
    when: str
    size: int
    intact: bool | None
    envelope: dict[str, Any]
    payload: str | None


class EventsDocument(msgspec.Struct, kw_only=True):
    """What ``fxscope events --json`` prints."""

    schema: Literal["fxscope.events/1"] = "fxscope.events/1"
    events: list[EventRow]


def event_rows(recording: Recording, *, kind: str | None, graph_id: str | None, payloads: bool) -> Iterator[EventRow]:
    """Events in the order of the logs.

    Args:
        recording: Where from.
        kind: Only events of this type, or artifacts of this name.
        graph_id: Only events of this compile: a key or id as the report prints it; without an attempt, of all its attempts.
        payloads: Read the payloads too.
    """
    for number, name in recording.events():
        if kind is not None and name not in (kind, "artifact"):
            continue
        try:
            event = recording.event(number)
        except UsageError:
            continue  # a broken envelope among the events that are not decoded at first; the notes count it
        value = event.value
        own = str(value["name"]) if isinstance(value, dict) and isinstance(value.get("name"), str) else None
        if kind is not None and kind not in (name, own):
            continue
        key = recording.key_of(number)
        if graph_id is not None and not _belongs(key, graph_id):
            continue
        has_payload = "has_payload" in event.envelope
        yield EventRow(
            number=number,
            type=name,
            name=own,
            id=key,
            process=event.process,
            when=event.when.decode("ascii", "replace"),
            size=recording.size(number),
            intact=recording.intact(number) if payloads and has_payload else None,
            envelope=event.envelope,
            payload=recording.text(number) if payloads and has_payload else None,
        )


def _belongs(key: str | None, wanted: str) -> bool:
    if key is None:
        return False
    bare = key.rpartition(":")[2]
    return wanted in (key, without_attempt(key), bare, without_attempt(bare))


def event_lines(row: EventRow, *, payload: bool) -> str:
    """One event for the terminal: a line and, where asked for, its payload below."""
    what = f"{row.type} {row.name}" if row.name else row.type
    size = f"  {row.size} bytes" if row.size else ""
    head = plain_line(f"{row.number:>6}  {row.when[5:20]}  {row.id or '-':<8} {what}{size}")
    if not payload:
        return head
    text = "" if row.payload is None else "\n" + "\n".join("    " + line for line in plain(row.payload).split("\n"))
    envelope = {name: value for name, value in row.envelope.items() if name != "has_payload"}
    return f"{head}\n    {plain_line(json.dumps(envelope))}{text}"
