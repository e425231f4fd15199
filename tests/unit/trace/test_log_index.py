"""The index over a log: what it finds, what it survives, and how it follows a log that grows."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fxscope.trace.bytesource as bytesource
from fxscope.errors import UnreadableError
from fxscope.trace.bytesource import ByteSource
from fxscope.trace.index import Event, LogIndex
from fxscope.trace.line import BadEnvelope, payload_matches

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"
HEAD = "V1129 11:59:38.304000 440 torch/_dynamo/utils.py:2126] "


class Taken:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def take(self, index: LogIndex, event: Event) -> None:
        self.events.append(event)


def line(name: str, value: Any, payload: str | None = None, **context: Any) -> bytes:
    """One event as torch writes it."""
    record = {name: value, **context}
    if payload is not None:
        record["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    text = HEAD + json.dumps(record)
    if payload is not None:
        text += "".join("\n\t" + part for part in payload.split("\n"))
    return (text + "\n").encode()


def scanned(path: Path, *, final: bool = True) -> tuple[LogIndex, list[Event]]:
    index, sink = LogIndex(ByteSource(path)), Taken()
    index.scan(sink, final=final)
    return index, sink.events


def write(folder: Path, *parts: bytes, name: str = "a.log") -> Path:
    path = folder / name
    path.write_bytes(b"".join(parts))
    return path


def test_events_and_payloads(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        line("str", ["/a.py", 0]),
        line("artifact", {"name": "x"}, "one\ntwo\n\n\tthree", frame_id=0),
        line("chromium_event", {}, '{"ts": 1}'),
        line("dynamo_start", {"stack": []}),
    )
    index, events = scanned(path)
    assert [event.name for event in events] == ["str", "artifact", "dynamo_start"]  # chromium events stay undecoded
    assert len(index) == 4
    assert [index.names[kind] for kind in index.kinds] == ["str", "artifact", "chromium_event", "dynamo_start"]
    assert index.text(1) == "one\ntwo\n\n\tthree"
    assert index.text(0) == ""
    assert index.size(1) == len("one\n\ttwo\n\t\n\t\tthree")
    assert index.event(2).envelope["has_payload"] == hashlib.md5(b'{"ts": 1}').hexdigest()
    assert (events[1].process, events[1].when) == (440, b"1129 11:59:38.304000")
    assert (index.foreign, index.torn, index.took_torn_tail) == (0, 0, False)


def test_foreign_lines_and_blank_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        b"\n\nhello from print\n",
        line("str", ["a", 0]),
        b"Traceback (most recent call last):\n",
        b"\tnot a payload of ours\n\n",
        line("artifact", {"name": "x"}, "one\ntwo").replace(b"\n\ttwo", b"\n\n\ttwo"),
        b"bye",
    )
    index, events = scanned(path)
    assert [event.name for event in events] == ["str", "artifact"]
    assert index.foreign == 3
    assert index.text(1) == "one\n\ntwo"  # an editor stripped the TAB of a line


def test_broken_envelopes_are_told(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        line("str", ["a", 0]),
        (HEAD + '{"artifact": {"name": "x"\n').encode(),
        (HEAD + '{"artifact": ' + "[" * 100_000 + "\n").encode(),
        (HEAD + "[1, 2]\n").encode(),
        line("str", ["b", 1]),
    )
    index, events = scanned(path)
    assert [event.value for event in events] == [["a", 0], ["b", 1]]
    assert index.torn == 2
    assert index.foreign == 1
    assert len(index.notes) == 2
    assert "at byte" in index.notes[0]


def test_events_behind_something_else_on_their_line(tmp_path: Path) -> None:
    first, second = line("str", ["a", 0]), line("artifact", {"name": "x"}, "one\ntwo")
    path = write(tmp_path, b"[rank0]: 50%|#### " + first, line("str", ["torn", 7])[:-8] + second, line("str", ["b", 1]))
    index, events = scanned(path)
    assert [event.name for event in events] == ["str", "artifact", "str"]
    assert index.text(1) == "one\ntwo"
    assert index.event(1).value == {"name": "x"}
    assert (index.torn, index.foreign) == (1, 0)


def test_json_as_python_writes_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        (HEAD + '{"compilation_metrics": {"a": NaN, "b": Infinity, "c": "\\ud800x"}}\n').encode(),
        HEAD.encode() + b'{"artifact": {"name": "caf\xe9"}}\n',
    )
    _, events = scanned(path)
    value = events[0].value
    assert value["a"] != value["a"]
    assert value["b"] == float("inf")
    assert value["c"] == "?x"
    assert events[1].value == {"name": "caf\ufffd"}


def test_huge_lines(tmp_path: Path) -> None:
    big = "x" * 10_000_000
    path = write(tmp_path, line("artifact", {"name": big}), line("artifact", {"name": "y"}, big), line("str", ["a", 0]))
    index, events = scanned(path)
    assert len(events[0].value["name"]) == len(big)
    assert index.text(1) == big
    assert events[2].value == ["a", 0]


def test_empty_and_binary_files(tmp_path: Path) -> None:
    assert len(scanned(write(tmp_path))[0]) == 0
    noise = random.Random(0).randbytes(200_000)
    index, events = scanned(write(tmp_path, noise, name="noise.log"))
    assert not events
    assert index.foreign > 0


def test_event_after_context_keys(tmp_path: Path) -> None:
    path = write(tmp_path, (HEAD + '{"rank": 3, "frame_id": 1, "dynamo_start": {"stack": []}}\n').encode())
    _, events = scanned(path)
    assert (events[0].name, events[0].envelope["rank"]) == ("dynamo_start", 3)


def test_growing_log_is_read_incrementally(tmp_path: Path) -> None:
    """Whatever the cuts between two looks, the events are those of the whole log, and each is taken once."""
    whole = lzma.decompress((TRACES / "branches.log.xz").read_bytes())
    reference = [event.envelope for event in scanned(write(tmp_path, whole, name="whole.log"))[1]]
    for seed in range(20):
        cuts = sorted(random.Random(seed).sample(range(len(whole)), 12))
        path = write(tmp_path, name="grows.log")
        index, sink = LogIndex(ByteSource(path)), Taken()
        written = 0
        for cut in [*cuts, len(whole)]:
            with open(path, "ab") as file:
                file.write(whole[written:cut])
            written = cut
            index.source.grow()
            index.scan(sink, final=False)
        assert [event.envelope for event in sink.events] == reference
        assert index.behind == 0
        assert index.torn == 0


def test_unfinished_event_waits_for_its_rest(tmp_path: Path) -> None:
    event = line("artifact", {"name": "x"}, "one\ntwo\nthree")
    path = write(tmp_path, event[:-6])
    index, sink = LogIndex(ByteSource(path)), Taken()
    assert index.scan(sink, final=False) == 0
    with open(path, "ab") as file:
        file.write(event[-6:])
    index.source.grow()
    assert index.scan(sink, final=False) == 1
    assert index.text(0) == "one\ntwo\nthree"
    final, events = scanned(write(tmp_path, event[:-6], name="cut.log"))
    assert final.took_torn_tail
    assert [event.name for event in events] == ["artifact"]


def test_file_cut_in_place_does_not_kill_the_reader(tmp_path: Path) -> None:
    path = write(tmp_path, line("artifact", {"name": "x"}, "one\n" * 100_000), line("chromium_event", {}, "{}"))
    index, _ = scanned(path)
    with open(path, "r+b") as file:
        file.truncate(100)
    assert index.text(0) == ""
    assert "was cut while it was read" in index.notes[0]
    with pytest.raises(BadEnvelope):
        index.event(1)
    with pytest.raises(UnreadableError, match="replaced"):
        index.source.grow()


def test_more_logs_than_open_files_are_allowed(tmp_path: Path) -> None:
    program = (
        "import resource, sys, fxscope\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "recording = fxscope.open(sys.argv[1])\n"
        "assert len(recording.session.ranks) == 200, recording.session.notes\n"
    )
    for rank in range(200):
        write(
            tmp_path,
            line("dynamo_start", {"stack": []}, frame_id=0),
            name=f"dedicated_log_torch_trace_rank_{rank}_x.log",
        )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_replaced_file_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, line("str", ["a", 0]))
    source = ByteSource(path)
    path.unlink()
    assert source.grow() == len(source)  # a log that vanished stays as it was read
    write(tmp_path, b"x")
    with pytest.raises(UnreadableError, match="replaced"):
        source.grow()


def test_a_log_that_was_written_anew_in_place_is_not_taken_for_its_continuation(tmp_path: Path) -> None:
    """Longer than before, or seen while it was shorter: neither its new bytes nor the old places are read any more."""
    old, new = line("artifact", {"name": "old"}, "one\ntwo"), line("artifact", {"name": "new"}, "three") * 9
    for cut in (False, True):
        path = write(tmp_path, old)
        index, _ = scanned(path)
        assert index.text(0) == "one\ntwo"
        if cut:
            path.write_bytes(b"")
            with pytest.raises(UnreadableError, match="replaced"):
                index.source.grow()
        path.write_bytes(new)  # the same file: its place on the disk is what it was
        for _ in range(2):
            with pytest.raises(UnreadableError, match="replaced"):
                index.source.grow()
        assert len(index.source) == len(old)
        assert index.text(0) == ""
        assert "was cut while it was read" in index.notes[-1]


@pytest.mark.parametrize(
    ("old", "new"), [(b"old\n" * 200, b"new\n" * 200), (b"old\n" * 200 + b"\0x\n", b"new\n" * 900)]
)
def test_a_log_written_anew_is_told_at_the_same_size_and_with_zeros(old: bytes, new: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, old)
    os.utime(path, ns=(1, 1))
    source = ByteSource(path)
    assert source.grow() == len(old)
    os.utime(path)  # touched and no more
    assert source.grow() == len(old)
    os.utime(path, ns=(1, 1))
    assert source.grow() == len(old)
    path.write_bytes(new)
    with pytest.raises(UnreadableError, match="replaced"):
        source.grow()


def test_bytes_that_a_network_file_system_shows_late_are_no_other_log(tmp_path: Path) -> None:
    whole = line("artifact", {"name": "x"}, "one")
    path = write(tmp_path, whole[:-20] + b"\0" * 20)
    source = ByteSource(path)
    path.write_bytes(whole * 2)
    assert source.grow() == 2 * len(whole)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_compressed(tmp_path: Path, suffix: str) -> None:
    import zstandard

    raw = line("artifact", {"name": "x"}, "one\ntwo")
    packed = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}[suffix](raw * 1000)
    index, events = scanned(write(tmp_path, packed, name="a.log" + suffix))
    assert len(events) == 1000
    assert index.text(999) == "one\ntwo"
    cut, _ = scanned(write(tmp_path, packed[: len(packed) // 2], name="cut.log" + suffix))
    assert cut.source.notes or suffix == ".zst"
    with pytest.raises(UnreadableError):
        ByteSource(write(tmp_path, b"no archive", name="no.log" + suffix))


def test_zip_bomb_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytesource, "MAX_UNPACKED", 1 << 20)
    source = ByteSource(write(tmp_path, gzip.compress(b"\0" * (64 << 20)), name="bomb.log.gz"))
    assert len(source) <= 1 << 20
    assert "unpacks to more than" in source.notes[0]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"cannot read .*nothing\.log"):
        ByteSource(tmp_path / "nothing.log")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=80),
            # Torch writes no carriage return: one at the end of a payload is taken for an editor's.
            st.tuples(st.text(min_size=1, max_size=8), st.text(max_size=30).filter(lambda text: text[-1:] != "\r")).map(
                lambda pair: line("artifact", {"name": pair[0]}, pair[1].encode("utf-8", "replace").decode())
            ),
            st.just((HEAD + '{"artifact": {"name"').encode()),
            st.just(b"\n"),
        ),
        max_size=12,
    )
)
def test_garbage_never_crashes_and_intact_lines_survive(tmp_path: Path, parts: list[bytes]) -> None:
    log = b"\n".join(parts) + b"\n"
    index, events = scanned(write(tmp_path, log))
    own = [part for part in parts if part.startswith(HEAD.encode()) and b"has_payload" in part]
    taken = [event for event in events if "has_payload" in event.envelope]
    assert len(taken) == len(own)
    for event in taken:
        # A piece of garbage may begin with a TAB and so join the payload before it; nothing else may change one.
        assert payload_matches(index.text(event.number), event.envelope["has_payload"]) or any(
            b"\t" in part for part in parts if part not in own
        )
    for number in range(len(index)):
        try:
            index.event(number)
        except BadEnvelope:
            assert index.names[index.kinds[number]] not in {event.name for event in events}
