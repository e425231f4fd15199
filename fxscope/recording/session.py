"""The session of a recording, from ``session.json``, the recorder's own events and what the logs say anyway."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from fxscope import names
from fxscope.recording.ending import doubts
from fxscope.recording.records import Session
from fxscope.recording.session_file import is_live
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.recording.builder import Builder

TESTED = ((2, 11), (2, 15))  # the first and the last torch that the recorder is tested with: docs/versions.md


def build_session(path: str, on_disk: dict[str, Any] | None, builder: Builder) -> Session:
    """Put together what is known of the program that ran."""
    session = Session(path=path, processes=len(builder.processes))
    session.ranks = sorted({p.rank for p in builder.processes.values() if p.rank is not None})
    session.torch, session.python = (
        builder.torch_version,
        builder.python_version and builder.python_version.split(" ", 1)[0],
    )
    session.started, session.ended = _span(builder)
    backends = Counter(record.backend for record in builder.compiles if record.backend)
    session.backend = backends.most_common(1)[0][0] if backends else None
    _from_events(session, builder)
    if on_disk is not None:
        _from_file(session, on_disk)
    session.notes = [*builder.notes, *_skipped(builder)]
    session.notes += doubts(path, on_disk)
    return session


def _from_events(session: Session, builder: Builder) -> None:
    ended = set()
    for process, name, value in builder.session_events:
        if name == names.EVENT_SESSION:
            session.argv = session.argv or _strings(value.get("argv"))
            session.cwd = session.cwd or value.get("cwd")
            session.python = session.python or value.get("python")
            session.torch = session.torch or value.get("torch")
            for device in value.get("devices") if isinstance(value.get("devices"), list) else []:
                _add_device(session, device)
            for missing in value.get("unavailable") if isinstance(value.get("unavailable"), list) else []:
                if isinstance(missing, dict):
                    builder_note = f"not recorded: {missing.get('feature')} ({missing.get('reason')})"
                    if builder_note not in builder.notes:
                        builder.notes.append(builder_note)
        elif name == names.EVENT_CONFIG and isinstance(value.get("values"), dict):
            if value.get("main") or not session.config:
                session.config = value["values"]
        elif name == names.EVENT_END:
            ended.add(process.prefix)
    if any(name == names.EVENT_SESSION for _, name, _ in builder.session_events):
        session.state = "ended" if len(ended) == len(builder.processes) else "unknown"
        _note_untested(session, builder)


def _note_untested(session: Session, builder: Builder) -> None:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", session.torch or "")
    if found and not TESTED[0] <= (int(found[1]), int(found[2])) <= TESTED[1]:
        first, last = (".".join(map(str, version)) for version in TESTED)
        note = f"recorded with torch {session.torch}; fxscope is tested with {first} to {last}, so facts may be missing"
        if note not in builder.notes:
            builder.notes.append(note)


def _from_file(session: Session, on_disk: dict[str, Any]) -> None:
    session.argv = _strings(on_disk.get("argv")) or session.argv
    session.cwd = on_disk.get("cwd") or session.cwd
    options = on_disk.get("options")
    session.options = options if isinstance(options, dict) else {}
    session.torch = session.torch or on_disk.get("torch")
    session.python = session.python or on_disk.get("python")
    code = on_disk.get("exit_code")
    session.exit_code = code if isinstance(code, int) else None
    for field in ("started", "ended"):
        value = on_disk.get(field)
        if isinstance(value, (int, float)):
            setattr(session, field, float(value))
    # "live" without a recorder: it was killed before it could say how it ended.
    session.state = "live" if is_live(on_disk) else "ended" if on_disk.get("state") == "ended" else "unknown"


def _span(builder: Builder) -> tuple[float, float]:
    """Unix seconds of the first and the last event, over all logs."""
    first, last = [], []
    for number, index in enumerate(builder.logs):
        processes = [p for (log, _), p in builder.processes.items() if log == number]
        if not processes or not len(index):
            continue
        clock = next((p.clock for p in processes if p.clock.anchored), processes[0].clock)
        first.append(clock.unix(index.when(0)))
        last.append(clock.unix(index.when(len(index) - 1)))
    known = [value for value in first if value]
    return (min(known, default=0.0), max(last, default=0.0))


def _skipped(builder: Builder) -> list[str]:
    notes = []
    for index in builder.logs:
        notes += index.source.notes
        notes += index.notes
        notes += [index.disused] if index.disused else []
        if index.torn > len(index.notes):
            notes.append(f"{index.source.path}: skipped {index.torn} broken events in all")
        if index.foreign:
            notes.append(
                f"{index.source.path}: skipped {count(index.foreign, 'line that is no trace line', 'lines that are no trace lines')}"
            )
        if index.took_torn_tail:
            notes.append(f"{index.source.path}: the last event is cut off or damaged")
    return notes


def _add_device(session: Session, device: Any) -> None:
    if not isinstance(device, dict) or not device.get("name"):
        return
    count = device.get("count")
    text = f"{device['name']}" + (f" x{count}" if isinstance(count, int) and count > 1 else "")
    if text not in session.devices:
        session.devices.append(text)


def _strings(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
