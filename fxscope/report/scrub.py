"""Copy trace logs without what is private, so that they can be shared: structure stays, hashes are made anew."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxscope.errors import UnreadableError, UsageError
from fxscope.names import EVENT_SESSION, SESSION_FILE
from fxscope.recording.userline import is_user_file
from fxscope.report.scrub_rules import REMOVED, Rules, Topic
from fxscope.source import base_name
from fxscope.trace.bytesource import ByteSource
from fxscope.trace.folder import find_logs
from fxscope.trace.index import Event, LogIndex, Nobody
from fxscope.trace.line import BadEnvelope, decode_json
from fxscope.trace.remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO


class Scrubbed:
    """What a copy holds.

    Attributes:
        logs: Names of the logs written.
        events: Events written.
        skipped: Events that could not be decoded, and lines that are no trace lines: left out, for nobody knows what they hold.
    """

    def __init__(self) -> None:
        self.logs: list[str] = []
        self.events = 0
        self.skipped = 0


def scrub(
    path: str | Path, out: Path, hide: frozenset[Topic], wanted: Callable[[Event], bool] = lambda _event: True
) -> Scrubbed:
    """Write a scrubbed copy of every log under ``path`` into the folder ``out``, or of one log into the file ``out``.

    The program's output (``output.log``), saved tensors and what else lies beside the logs are not copied.

    Args:
        path: A recording, a folder of logs or one log.
        out: A folder, made where it is absent; of one log, a new file where the name ends in ``.log``.
        hide: Which of source, paths, names and hosts to remove.
        wanted: Which events to copy.

    Raises:
        UnreadableError: There is no log, or nothing in it.
        UsageError: ``out`` holds files already, is a file, or lies in ``path``.
    """
    logs = find_logs(path)
    one = out.suffix == ".log" and not out.is_dir() and logs == [str(path)]
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} exists; name a new {'file' if one else 'folder'}")
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new folder")
    if not is_url(str(path)) and Path(path).is_dir() and Path(path).resolve() in out.resolve().parents:
        raise UsageError(f"{out} lies in {path}, where the copy would be read as a part of it; name a folder elsewhere")
    rules = Rules(hide)
    sources = [ByteSource(log) for log in logs]
    indexes = []
    for source in sources:
        index = LogIndex(source)
        index.scan(Nobody(), final=True)
        indexes.append(index)
        _learn(index, rules)
    if not any(map(len, indexes)) and not Path(path, SESSION_FILE).is_file():
        raise UnreadableError(f"{path} holds no trace events: there is nothing to copy")
    folder = out.parent if one else out
    folder.mkdir(parents=True, exist_ok=True)
    done = Scrubbed()
    for log, index in zip(logs, indexes, strict=True):
        name = base_name(log)
        for suffix in (".gz", ".xz", ".zst"):
            name = name.removesuffix(suffix)
        stem, dot, ending = name.rpartition(".")
        name = next(free for free in _numbered(stem or ending, dot + ending if stem else "") if free not in done.logs)
        name = out.name if one else name
        with open(folder / name, "wb") as file:
            _write(index, rules, file, done, wanted)
        done.logs.append(name)
    if not one:
        _copy_session(path, out, rules)
    for source in sources:
        source.close()
    return done


def _numbered(stem: str, ending: str) -> Iterator[str]:
    """``trace.log``, ``trace_2.log``, ``trace_3.log`` and so on: logs of several folders come into one."""
    yield stem + ending
    for number in itertools.count(2):
        yield f"{stem}_{number}{ending}"


def _events(index: LogIndex) -> Iterator[tuple[Event | None, bytes]]:
    data = index.source.data
    for number in range(len(index)):
        try:
            event = index.event(number)
        except BadEnvelope:
            yield None, b""
            continue
        start = index.starts[number]
        yield event, bytes(data[start : data.find(b"] {", start) + 2])


def _learn(index: LogIndex, rules: Rules) -> None:
    """Collect names and hosts before anything is written, so that the first event is as clean as the last."""
    strings: dict[int, str] = {}
    for event, _ in _events(index):
        if event is None:
            continue
        value = event.value
        if event.name == "str" and isinstance(value, list) and len(value) == 2 and isinstance(value[1], int):
            strings[value[1]] = str(value[0])
        elif event.name == "describe_source" and isinstance(value, dict):
            rules.learn(str(value.get("source", "")))
        elif event.name in ("compilation_metrics", "dynamo_start") and isinstance(value, dict):
            if is_user_file(str(value.get("co_filename") or "<none>")):
                rules.learn_name(str(value.get("co_name") or ""))
            for frame in value.get("stack") or ():
                file = frame.get("filename", "") if isinstance(frame, dict) else ""
                if is_user_file(strings.get(file, "") if isinstance(file, int) else str(file)):
                    rules.learn_name(str(frame.get("name", "")))
        elif event.name == "dynamo_cpp_guards_str" or _artifact(event) == "recompile_reasons":
            rules.learn(index.text(event.number))
        elif _artifact(event) == EVENT_SESSION:
            try:
                session = decode_json(index.text(event.number).encode())
            except BadEnvelope:
                continue  # the payload is rewritten as text below, by the same rules
            if isinstance(session, dict) and session.get("host"):
                rules.hosts.add(str(session["host"]))


def _artifact(event: Event) -> str:
    return str(event.value.get("name", "")) if event.name == "artifact" and isinstance(event.value, dict) else ""


def _write(index: LogIndex, rules: Rules, file: IO[bytes], done: Scrubbed, wanted: Callable[[Event], bool]) -> None:
    done.skipped += index.torn + index.foreign
    for event, prefix in _events(index):
        if event is None:
            done.skipped += 1
            continue
        if not wanted(event):
            continue
        envelope: dict[str, Any] = {
            key: item if key == "has_payload" else rules.value(item, key) for key, item in event.envelope.items()
        }
        payload = None
        if event.envelope.get("has_payload") is not None:
            payload = _payload(index.text(event.number), _artifact(event), rules)
            digest = hashlib.md5(payload.encode("utf-8", "surrogatepass"), usedforsecurity=False)
            envelope["has_payload"] = digest.hexdigest()
        head = rules.text(prefix.decode("utf-8", "replace"))
        file.write(f"{head}{json.dumps(envelope)}\n".encode())
        if payload is not None:
            file.write(("\t" + payload.replace("\n", "\n\t") + "\n").encode("utf-8", "replace"))
        done.events += 1


def _payload(text: str, artifact: str, rules: Rules) -> str:
    if rules.removes_artifact(artifact):
        return REMOVED
    if text[:1] in "[{":
        try:
            return json.dumps(rules.value(decode_json(text.encode("utf-8", "surrogatepass")), ""))
        except BadEnvelope:
            pass  # text that only begins like JSON
    return rules.text(text)


def _copy_session(path: str | Path, out: Path, rules: Rules) -> None:
    session = Path(str(path)) / SESSION_FILE
    if session.is_file():
        try:
            facts = decode_json(session.read_bytes())
        except BadEnvelope:
            return  # a torn session file says nothing; the logs stand alone
        if isinstance(facts, dict):
            facts.pop("job", None)  # a digest of where the tasks of a job met, which can be found by trying
        (out / SESSION_FILE).write_text(json.dumps(rules.value(facts), indent=1))
