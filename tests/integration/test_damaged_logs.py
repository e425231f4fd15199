"""Logs that were cut, mutated or are still being written: nothing crashes, and nothing intact is lost."""

from __future__ import annotations

import functools
import json
import lzma
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fxscope
from fxscope.errors import UnreadableError
from fxscope.recording.recording import Recording
from fxscope.report.document import encode_document, report_document
from fxscope.trace.line import HEADER, NEXT_LINE

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"
NAMES = ("branches", "fullgraph", "reset", "compiled_autograd", "warm_cache", "nested_breaks")


@functools.cache
def raw(name: str) -> bytes:
    return lzma.decompress((TRACES / f"{name}.log.xz").read_bytes())


def exercise(recording: Recording) -> None:
    """Touch everything that a report or the app would touch."""
    encode_document(report_document(recording))
    for row in recording.compiles:
        recording.guards(row)
        assert recording.find(row.key) is not None
        for text in row.graphs:
            recording.text(text.event)
    list(recording.timeline())
    list(recording.shape_events)


def events_of(recording: Recording) -> Counter[str]:
    return Counter(name for _, name in recording.events())


def test_cut_at_any_byte(tmp_path: Path) -> None:
    """200 cuts: what lies whole before the cut is there."""
    random_ = random.Random(1)
    for turn in range(200):
        log = raw(NAMES[turn % len(NAMES)])
        cut = random_.randrange(1, len(log))
        path = tmp_path / "cut.log"
        path.write_bytes(log[:cut])
        starts = [0, *(found.end() for found in NEXT_LINE.finditer(log, 0, cut))]
        whole = sum(HEADER.match(log, at) is not None for at in starts[:-1])
        try:
            recording = fxscope.open(path)
        except UnreadableError:
            assert whole == 0
            continue
        assert whole <= recording.totals.events <= whole + 1
        exercise(recording)
        recording.close()


def test_mutations(tmp_path: Path) -> None:
    """500 logs with a few bytes changed, dropped, doubled or made NUL: at most the touched events suffer."""
    random_ = random.Random(2)
    small = ("branches", "fullgraph", "nested_breaks", "no_graph")
    whole = {name: events_of(fxscope.open(TRACES / f"{name}.log.xz")).total() for name in small}
    for turn in range(500):
        name = small[turn % len(small)]
        log = bytearray(raw(name))
        touched = random_.randint(1, 5)
        for _ in range(touched):
            at = random_.randrange(len(log))
            kind = random_.randrange(5)
            if kind == 0:
                log[at] = random_.randrange(256)
            elif kind == 1:
                del log[at : at + random_.randint(1, 40)]
            elif kind == 2:
                log[at:at] = log[at : at + random_.randint(1, 400)]
            elif kind == 3:
                log[at : at + 8] = bytes(8)
            else:
                log[at:at] = random_.choice([b"\n", b"\t", b"\n\n", b"\r\n", b'"', b"}", b"\xff\xfe", b"\x1b[2J"])
        path = tmp_path / "mutated.log"
        path.write_bytes(log)
        recording = fxscope.open(path)
        # One change can break two events (where it joins them); a doubled piece can add a few.
        assert recording.totals.events >= whole[name] - 2 * touched
        exercise(recording)
        recording.close()


JUNK = [
    None,
    True,
    -1,
    0,
    1e308,
    "",
    "x",
    "0/0",
    [],
    [1],
    ["a", 2],
    {},
    {"a": 1},
    {"name": 3},
    [[]],
    10**30,
    10**400,
    "9" * 5000,
    "\ud800",
]


def mutated(value: Any, random_: random.Random) -> Any:
    """A JSON value in which something, at some depth, is something else or gone."""
    if isinstance(value, dict) and value and random_.random() < 0.8:
        key = random_.choice(list(value))
        rest = {name: item for name, item in value.items() if name != key}
        return rest if random_.random() < 0.1 else {**value, key: mutated(value[key], random_)}
    if isinstance(value, list) and value and random_.random() < 0.8:
        place = random_.randrange(len(value))
        return [*value[:place], mutated(value[place], random_), *value[place + 1 :]]
    return random_.choice(JUNK)


def test_values_of_any_type(tmp_path: Path) -> None:
    """Envelopes that are JSON, but not what torch writes: a list for a name, a text for a number, nothing at all."""
    for turn in range(120):
        random_ = random.Random(turn)
        lines = raw(NAMES[turn % len(NAMES)]).split(b"\n")
        envelopes = [at for at, line in enumerate(lines) if HEADER.match(line)]
        for at in random_.sample(envelopes, 15):
            head, _, envelope = lines[at].partition(b"] ")
            value = mutated(mutated(json.loads(envelope), random_), random_)
            if isinstance(value, dict):
                lines[at] = head + b"] " + json.dumps(value).encode("utf-8", "surrogatepass")
        payloads = [at for at, line in enumerate(lines) if line in (b"\t{", b"\t[")]
        for at in random_.sample(payloads, min(15, len(payloads))):  # written by json.dumps with indent=0
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith(b"\t")), len(lines))
            text = b"\n".join(line[1:] for line in lines[at:end])
            try:
                value = json.dumps(mutated(json.loads(text), random_)).encode("utf-8", "surrogatepass")
            except ValueError:
                continue  # a payload that only begins like JSON
            lines[at:end] = [b"\t" + value, *[b"\t"] * (end - at - 1)]
        numbers = [at for at, line in enumerate(lines) if line.startswith(b"\t") and b", line " in line]
        for at in random_.sample(numbers, min(5, len(numbers))):
            lines[at] = re.sub(rb"line \d+", b"line " + b"9" * random_.choice([3, 12, 5000]), lines[at])
        path = tmp_path / "values.log"
        path.write_bytes(b"\n".join(lines))
        recording = fxscope.open(path)
        exercise(recording)
        keys = [row.key for row in recording.compiles]
        assert len(keys) == len(set(keys))
        assert recording.totals.graph_breaks == sum(row.count for row in recording.graph_breaks)
        recording.close()


def test_report_says_what_was_skipped(tmp_path: Path) -> None:
    log = raw("branches").replace(b'{"dynamo_start": {"stack"', b'{"dynamo_start": {"stack', 1)
    path = tmp_path / "a.log"
    path.write_bytes(b"a line of the program\n" + log)
    notes = fxscope.open(path).session.notes
    assert any("skipped a broken event at byte" in note for note in notes)
    assert any("skipped 1 line that is no trace line" in note for note in notes)


def test_following_gives_what_reading_gives(tmp_path: Path) -> None:
    """A log that grows by pieces of any size ends in the records of the whole log."""
    for name in NAMES:
        log = raw(name)
        reference = encode_document(report_document(fxscope.open(TRACES / f"{name}.log.xz")))
        path = tmp_path / f"{name}.log"
        random_ = random.Random(name)
        path.write_bytes(log[:20_000])
        recording = fxscope.open(path)
        first = recording.compiles[:1]
        written, before = 20_000, recording.totals.events
        while written < len(log):
            step = random_.randint(1, 30_000)
            with open(path, "ab") as file:
                file.write(log[written : written + step])
            written += step
            recording.refresh()
            assert recording.totals.events >= before
            before = recording.totals.events
        assert not recording.refresh()
        followed = encode_document(report_document(recording))
        assert followed.replace(str(path), "") == reference.replace(str(TRACES / f"{name}.log.xz"), "")
        assert [row.key for row in first] == [row.key for row in recording.compiles[:1]]


def test_new_logs_of_a_folder_are_found(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text('{"state": "live"}')
    recording = fxscope.open(tmp_path)
    assert recording.totals.events == 0
    assert not recording.refresh()
    log = tmp_path / "dedicated_log_torch_trace_1.log"
    log.write_bytes(raw("branches"))
    assert recording.refresh()
    assert recording.totals.graph_breaks == 2
    (tmp_path / "session.json").write_text('{"state": "ended", "exit_code": 3}')
    assert recording.refresh()
    assert (recording.session.state, recording.session.exit_code) == ("ended", 3)
    log.unlink()
    assert not recording.refresh()  # a folder that is cleared away: what was read stays
    assert recording.text(recording.graph_breaks[0].events[0])


def test_refresh_costs_what_is_new(tmp_path: Path) -> None:
    """Taking in one more event must not read the log again: bytes looked at, not seconds."""
    log = tmp_path / "a.log"
    body = raw("compiled_autograd")
    log.write_bytes(body)
    recording = fxscope.open(log)
    index = recording._builder.logs[0]
    taken: list[int] = []
    original = index._take
    index._take = lambda *arguments: (taken.append(arguments[1]), original(*arguments))[1]  # type: ignore[method-assign]
    with open(log, "ab") as file:
        file.write(b'V1129 14:36:24.838000 11179 torch/a.py:1] {"str": ["/new.py", 999]}\n')
    assert recording.refresh()
    assert taken
    assert min(taken) >= len(body)


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02" * 1000, b"just some text\n" * 100])
def test_files_that_are_no_logs(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.log"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match="holds no trace events"):
        fxscope.open(path)
    with pytest.raises(UnreadableError, match="holds no trace"):
        fxscope.open(tmp_path)
    with pytest.raises(UnreadableError, match="no such file or folder"):
        fxscope.open(tmp_path / "absent")
