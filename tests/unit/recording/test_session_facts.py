"""The session of a recording: from session.json, from the recorder's events, or from nothing but the logs."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fxscope
from fxscope.diagnosis.diagnose import diagnose

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"


def artifact(name: str, value: Any, **context: Any) -> bytes:
    payload = json.dumps(value, indent=0)
    record = {"artifact": {"name": name, "encoding": "json"}, **context}
    record["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    lines = "".join("\n\t" + line for line in payload.split("\n"))
    return f"V1129 14:36:23.000000 11179 fxscope/capture/tracelog.py:1] {json.dumps(record)}{lines}\n".encode()


def log(*parts: bytes) -> bytes:
    body = lzma.decompress((TRACES / "compiled_autograd.log.xz").read_bytes())
    return parts[0] + body + b"".join(parts[1:]) if parts else body


def write(folder: Path, content: bytes, session: dict[str, Any] | None = None) -> Path:
    (folder / "dedicated_log_torch_trace_1.log").write_bytes(content)
    if session is not None:
        (folder / "session.json").write_text(json.dumps(session))
    return folder


SESSION = {
    "argv": ["train.py", "--lr", "1"],
    "cwd": "/home/me",
    "python": "3.11.7",
    "torch": "2.13.0",
    "devices": [{"type": "cuda", "name": "H200", "count": 2}],
    "unavailable": [{"feature": "launches", "reason": "no hook"}],
}


def test_foreign_log(tmp_path: Path) -> None:
    session = fxscope.open(write(tmp_path, log())).session
    assert (session.torch, session.python, session.state) == ("2.13.0+cpu", "3.11.7", "unknown")
    assert (session.argv, session.exit_code, session.processes) == ([], None, 1)
    assert 1.0 < session.ended - session.started < 10.0


def test_recorder_events(tmp_path: Path) -> None:
    launches = {"at": 5.0, "entries": [{"id": "0/1", "attempt": 1, "graph": 2, "calls": 7, "forward": {"mean": 0.25}}]}
    more = {"at": 6.0, "entries": [{"id": "0/1", "attempt": 1, "graph": 2, "calls": 9}, {"id": "9/9", "calls": 1}, 3]}
    graph = {"backend": "inductor", "nodes": 12, "inputs": [{"name": "x", "kind": "tensor"}]}
    recording = fxscope.open(
        write(
            tmp_path,
            log(
                artifact("fxscope.session", SESSION)
                + artifact("fxscope.config", {"main": False, "values": {"torch._dynamo.config.a": 1}})
                + artifact("fxscope.config", {"main": True, "values": {"torch._dynamo.config.b": 2}}),
                artifact("fxscope.graph", graph, frame_id=0, frame_compile_id=1, attempt=1),
                artifact("fxscope.launches", launches),
                artifact("fxscope.launches", more),
                artifact("fxscope.end", {"reason": "exit"}),
            ),
        )
    )
    session = recording.session
    assert (session.argv, session.cwd, session.python) == (["train.py", "--lr", "1"], "/home/me", "3.11.7")
    assert session.devices == ["H200 x2"]
    assert session.config == {"torch._dynamo.config.b": 2}
    assert (session.backend, session.state) == ("inductor", "ended")
    assert "not recorded: launches (no hook)" in session.notes
    row = recording.find("0/1")
    assert (row.calls, row.call_seconds, row.nodes, row.backend) == (9, 0.25, 12, "inductor")
    assert row.inputs == graph["inputs"]
    (launch,) = recording.launches
    assert (launch.compile_key, launch.graph, launch.calls, launch.at) == ("0/1_1", 2, 9, 6.0)


@pytest.mark.parametrize(
    ("version", "noted"),
    [("2.10.0+cu128", True), ("2.11.0", False), ("2.15.1", False), ("2.16.0.dev2027", True), ("3.0.0", True)],
)
def test_a_torch_that_is_not_tested_is_named_once(tmp_path: Path, version: str, noted: bool) -> None:
    versions = artifact("torch_version", {"pytorch_version": version, "oss": True})
    recorded = artifact("fxscope.session", {**SESSION, "torch": version}) * 2
    body = log().replace(b"2.13.0+cpu", version.encode())
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    notes = fxscope.open(write(tmp_path / "with", recorded + versions + body)).session.notes
    said = f"recorded with torch {version}; fxscope is tested with 2.11 to 2.15, so facts may be missing"
    assert notes.count(said) == noted
    # A log that TORCH_TRACE alone wrote lacks nothing that a recorder would have hooked.
    assert said not in fxscope.open(write(tmp_path / "without", versions + body)).session.notes


def test_recorded_failure_and_limit_win_over_the_log(tmp_path: Path) -> None:
    body = lzma.decompress((TRACES / "fullgraph.log.xz").read_bytes()).replace(b" 11154 ", b" 11179 ")
    stack = [{"file": "/home/me/a.py", "line": 5, "function": "f", "code": "g()"}]
    failure = {"phase": "fullgraph", "type": "Unsupported", "message": "two\nlines", "file": "/home/me/a.py", "line": 5}
    limit = {"function": "g", "file": "/home/me/a.py", "line": 9, "limit": "recompile_limit", "value": 8}
    where = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    refused = {"frame_id": 1, "frame_compile_id": 8, "attempt": 0}
    write(
        tmp_path,
        body
        + artifact("fxscope.failure", {**failure, "stack": stack}, **where)
        + artifact("fxscope.failure", {**failure, "phase": "backward", "type": "E"}, **where)
        + artifact("fxscope.failure", {**failure, "phase": "new phase", "type": "F"})
        + artifact("fxscope.limit", limit, **refused),
    )
    recording = fxscope.open(tmp_path)
    assert [(f.phase, f.type, f.compile_key) for f in recording.failures] == [
        ("fullgraph", "Unsupported", "0/0"),
        ("fullgraph", "FailOnRecompileLimitHit", "1/8"),
        ("backward", "E", "0/0"),
        ("dynamo", "F", ""),
    ]
    assert recording.failures[0].stack[0].code == "g()"
    assert recording.failures[0].message == "two\nlines"
    assert len(recording.limit_hits) == 1


def test_session_file_says_how_it_ended(tmp_path: Path) -> None:
    session = fxscope.open(
        write(tmp_path, log(), {"argv": ["a.py"], "exit_code": 130, "state": "ended", "started": 1.5, "ended": 9.5})
    ).session
    assert (session.argv, session.exit_code, session.state) == (["a.py"], 130, "ended")
    assert (session.started, session.ended) == (1.5, 9.5)


@pytest.mark.parametrize("broken", [b"", b"[1]", b"{", b'{"argv": 3, "state": [], "exit_code": "x", "started": null}'])
def test_broken_session_file(tmp_path: Path, broken: bytes) -> None:
    write(tmp_path, log())
    (tmp_path / "session.json").write_bytes(broken)
    session = fxscope.open(tmp_path).session
    assert (session.argv, session.exit_code, session.state) == ([], None, "unknown")


def test_killed_recorder(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    alive = {"state": "live", "host": socket.gethostname(), "pid": os.getpid()}
    assert fxscope.open(write(tmp_path, log(), alive)).session.state == "live"
    dead = fxscope.open(write(tmp_path, log(), {**alive, "pid": gone.pid})).session
    assert dead.state == "unknown"
    assert any("no end" in note for note in dead.notes)
    elsewhere = {**alive, "pid": gone.pid, "host": "another machine"}
    assert fxscope.open(write(tmp_path, log(), elsewhere)).session.state == "live"


def of_rank(folder: Path, rank: int, host: str) -> None:
    """A process with a rank, whose graph 2 is a compile."""
    graph = artifact("fxscope.graph", {"graph": 2}, frame_id=0, frame_compile_id=1, attempt=1)
    name = f"dedicated_log_torch_trace_rank_{rank}_11179.log"
    (folder / name).write_bytes(artifact("fxscope.session", {**SESSION, "host": host, "rank": rank}) + log() + graph)


def forked(folder: Path, pid: int, host: str, calls: int) -> None:
    """A child of process 11179, which has no rank, and calls what its parent compiled."""
    text = artifact("fxscope.session", {**SESSION, "host": host, "forked_from": 11179})
    text += artifact("fxscope.launches", {"entries": [{"graph": 2, "calls": calls}]})
    (folder / f"dedicated_log_torch_trace_{pid}.log").write_bytes(text.replace(b" 11179 fx", b" %d fx" % pid))


def test_calls_of_a_forked_child_without_a_rank(tmp_path: Path) -> None:
    of_rank(tmp_path, 3, "a")
    forked(tmp_path, 500, "a", 7)
    recording = fxscope.open(tmp_path)
    assert [(launch.compile_key, launch.calls, launch.process) for launch in recording.launches] == [
        ("r3:0/1_1", 7, 500)
    ]
    assert recording.find("r3:0/1").calls == 7


def test_a_parent_is_looked_for_on_the_machine_of_its_child(tmp_path: Path) -> None:
    for rank, host in enumerate("ab"):
        of_rank(tmp_path, rank, host)
    forked(tmp_path, 500, "a", 7)
    forked(tmp_path, 600, "b", 40)
    recording = fxscope.open(tmp_path)
    assert [recording.find(f"r{rank}:0/1").calls for rank in (0, 1)] == [7, 40]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fxscope.config", [1]),
        ("fxscope.config", 3),
        ("fxscope.config", {"thread": [1], "values": {}}),
        ("fxscope.config", {"thread": 1, "values": [1]}),
        ("fxscope.graph", {"graph": 0, "inputs": [3, {"name": "x"}]}),
    ],
)
def test_odd_payloads_are_diagnosed_around(tmp_path: Path, name: str, value: Any) -> None:
    odd = artifact(name, value, **({"frame_id": 0, "frame_compile_id": 1, "attempt": 1} if "graph" in name else {}))
    recording = fxscope.open(write(tmp_path, log() + odd))
    sound = tmp_path / "sound"
    sound.mkdir()
    assert [f.ids for f in diagnose(recording)] == [f.ids for f in diagnose(fxscope.open(write(sound, log())))]
    assert recording.find("0/1").inputs == ([{"name": "x"}] if "graph" in name else [])
