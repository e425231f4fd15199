"""The log file itself: format, faults, forks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxscope.capture.tracelog import TraceLog

PREFIX = re.compile(r"V\d{4} \d\d:\d\d:\d\d\.\d{6} (\d+) (\S+:\d+)\] (.*)")


def opened(folder: Path) -> TraceLog:
    log = TraceLog(str(folder))
    assert log.open(None)
    return log


def test_lines_are_those_of_torchs_formatter(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.write({"artifact": {"name": "a"}}, "one\n\ntwo", "torch/x.py:7")
    log.artifact("fxscope.x", {"é": 1}, {"frame_id": 0})
    assert log.path is not None
    head, *rest = Path(log.path).read_text().splitlines()
    match = PREFIX.fullmatch(head)
    assert match is not None
    assert (int(match[1]), match[2], json.loads(match[3])) == (os.getpid(), "torch/x.py:7", {"artifact": {"name": "a"}})
    assert rest[:3] == ["\tone", "\t", "\ttwo"]
    envelope = json.loads(PREFIX.fullmatch(rest[3])[3])
    payload = rest[4][1:]
    assert envelope["has_payload"] == hashlib.md5(payload.encode()).hexdigest()
    assert envelope["frame_id"] == 0
    assert json.loads(payload) == {"é": 1}
    assert re.fullmatch(rf"dedicated_log_torch_trace_{os.getpid()}_[0-9a-f]{{8}}\.log", Path(log.path).name)
    log.close()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_payload_comes_back(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        log = opened(Path(folder))
        log.write({"artifact": {}}, text, "x.py:1")
        log.close()
        assert log.path is not None
        body = Path(log.path).read_bytes().decode().partition("\n\t")[2][:-1]
        assert body.replace("\n\t", "\n") == text


def test_rank_is_in_the_name(tmp_path: Path) -> None:
    log = TraceLog(str(tmp_path))
    assert log.open(3)
    assert log.path is not None
    assert Path(log.path).name.startswith(f"dedicated_log_torch_trace_rank_3_{os.getpid()}_")
    log.close()


def test_a_torn_event_does_not_swallow_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    write = os.write

    def interrupted(fd: int, data: bytes) -> int:
        write(fd, data[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.write({"a": 1}, None, "x.py:1")
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))  # short writes, as a slow disk makes them
    log.write({"b": 2}, None, "x.py:1")
    assert log.path is not None
    torn, whole = Path(log.path).read_text().splitlines()
    assert len(torn) == 10
    assert json.loads(PREFIX.fullmatch(whole)[3]) == {"b": 2}
    log.close()


def test_faults_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = TraceLog(str(tmp_path / "absent"))
    assert not log.open(None)
    assert not log.open(None)
    log = opened(tmp_path)
    assert log.path is not None
    os.unlink(log.path)
    log.write({"a": 1}, None, "x.py:1")
    assert log.dead is not None
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("fxscope: recording stopped: ") for line in lines)


def test_threads_write_whole_events(tmp_path: Path) -> None:
    log = opened(tmp_path)

    def work(number: int) -> None:
        for _ in range(200):
            with log.lock:
                log.write({"n": number}, f"{number}\n" * 50, "x.py:1")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert log.path is not None
    events = Path(log.path).read_text().split("\nV")
    assert len(events) == 1200
    for event in events:
        head, *payload = event.rstrip("\n").split("\n")
        number = json.loads(head.split("] ", 1)[1])["n"]
        assert payload == [f"\t{number}"] * 50 + ["\t"]
