"""A hostile recording can neither run code, write outside, hang for long, nor garble the terminal; and nothing uses the network."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Escape sequences, bells, carriage returns, bidirectional overrides, and markup of the libraries that print.
EVIL = "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202eevil[bold red]x[/]{{7*7}}<script>alert(1)</script>"
# Importing torch 2.15 looks for CUDA's libraries with ldconfig, whatever the recording.
HOOK = """\
import os, sys
def of_torch(args):
    frame = sys._getframe() if args[1:2] == (["/sbin/ldconfig", "-p"],) else None
    while frame and (frame.f_code.co_name, frame.f_globals.get("__name__")) != ("<module>", "torch"):
        frame = frame.f_back
    return frame is not None
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        os.write(2, f"NETWORK {event} {args!r}\\n".encode())
    if event in ("os.system", "os.exec", "subprocess.Popen", "pickle.find_class") and not of_torch(args):
        os.write(2, f"RAN {event} {args!r}\\n".encode())
sys.addaudithook(watch)
"""


def _event(envelope: dict[str, object], payload: str | None = None) -> str:
    if payload is not None:
        envelope["has_payload"] = hashlib.md5(payload.encode("utf-8", "surrogatepass")).hexdigest()
    body = "" if payload is None else "\t" + payload.replace("\n", "\n\t") + "\n"
    return f"V1129 11:59:38.304000 440 torch/_dynamo/x.py:1] {json.dumps(envelope)}\n{body}"


def _artifact(name: str, payload: str, encoding: str = "string") -> str:
    return _event(
        {"artifact": {"name": name, "encoding": encoding}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}, payload
    )


GRAPH = f"""class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[{10**30}]", L_y_: "f32[4]"):
        # File: /tmp/{EVIL}.py:12 in forward, code: {EVIL}
        __import__ = L_x_.__class__.__bases__[0].__subclasses__()
        owned = torch.ops.load_library("/tmp/evil.so");  owned = None
        system = __import__("os").system("touch OWNED")
        loaded = torch.load("/tmp/evil.pt")
        y: "f32[4]" = torch.relu(L_y_)
        return (y,)
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One log with every trick."""
    ids: dict[str, object] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    deep = "[" * 200_000 + "]" * 200_000
    tree = "TREE_GUARD_MANAGER:\n" + "\n".join(
        "| " * depth + f"+- EQUALS_MATCH: L['x'] == {EVIL}" for depth in range(3000)
    )
    text = "".join(
        [
            _event({"str": [f"/home/{EVIL}/../../../../etc/passwd", 0]}),
            _event({"dynamo_start": {"stack": [{"line": 10**18, "name": EVIL, "filename": 0, "loc": EVIL}]}, **ids}),
            _event({"dynamo_output_graph": {"sizes": {"__import__": [10**30]}}, **ids}, GRAPH),
            _event({"dynamo_cpp_guards_str": {}, **ids}, tree),
            _artifact("../../../../tmp/fxscope-escaped", "x"),
            _artifact("/etc/fxscope-escaped", "x"),
            _artifact("..\\..\\windows", "x"),
            _artifact("con", "x"),
            _artifact("a" * 5000, "x"),
            _artifact("recompile_reasons", deep, "json"),
            _artifact("recompile_reasons", json.dumps([EVIL] * 3), "json"),
            _artifact("fxscope.launches", json.dumps({"entries": [{"id": "0/0", "calls": 10**400}]}), "json"),
            _artifact("fxscope.launches", json.dumps({"entries": [{"id": [], "graph": {}, "calls": 1}]}), "json"),
            _artifact("fxscope.graph", json.dumps({"graph": [], "inputs": [3], "backend": {}}), "json"),
            _artifact("fxscope.session", json.dumps({"argv": 3, "cwd": [], "devices": [3], "rank": "x"}), "json"),
            _artifact("fxscope.config", json.dumps({"values": {"torch._dynamo.config.x": [[]]}, "main": 1}), "json"),
            _artifact("fxscope.failure", json.dumps({"id": [], "stack": [3], "message": {}, "line": "x"}), "json"),
            _artifact("inductor_runtime_and_tensor_meta", json.dumps({"ops": 3}), "json"),
            _artifact("inductor_runtime_and_tensor_meta", json.dumps({"ops": [{"estimated_runtime_ns": "x"}]}), "json"),
            _artifact("graph_execution", json.dumps({"graph_execution_order": 3}), "json"),
            _artifact("inductor_provenance_tracking_node_mappings", json.dumps({"postToPre": 3}), "json"),
            _artifact("dynamo_graph_break_reason", f"Graph break in user code at {EVIL}:{10**25}\n{EVIL}"),
            _event(
                {
                    "compilation_metrics": {"co_name": EVIL, "co_filename": EVIL, "entire_frame_compile_time_s": 1e308},
                    **ids,
                }
            ),
            _event(
                {"compilation_metrics": {"start_time_us": "1e999", "duration_us": [[[]]], "guard_count": EVIL}, **ids}
            ),
            _event({"frame_id": -(10**40), "frame_compile_id": EVIL, "attempt": {}, "dynamo_start": {}}),
            _event({"chromium_event": {}}, deep),
            *(
                _event({"chromium_event": {}}, json.dumps({"ph": "X", "ts": start, "dur": 1e308, "tid": {}}))
                for start in (-1e308, 0.0, 1e308)
            ),
            _event({"link": {"name": EVIL, "url": "javascript:alert(1)"}}),
            "V1129 99:99:99.999999 99999999999999999999 x.py:1] " + '{"a":' * 100_000 + "\n",
        ]
    )
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "dedicated_log_torch_trace_evil.log").write_text(text, "utf-8")
    (folder / "session.json").write_text('{"argv": ["' + "A" * 10_000 + '"], "exit_code": [], "state": 7}')
    return folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which every use of the network and every started program is told on standard error."""
    folder = tmp_path_factory.mktemp("hook")
    (folder / "sitecustomize.py").write_text(HOOK)
    return {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "100"}


def _run(*args: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "fxscope", *args], capture_output=True, env=env, cwd=cwd, timeout=120, check=False
    )


COMMANDS: list[tuple[str, ...]] = [
    ("report", "{}"),
    ("report", "{}", "--json"),
    ("report", "{}", "--html", "out.html"),
    ("diagnose", "{}"),
    ("diagnose", "{}", "--json"),
    ("check", "{}", "--max-graph-breaks", "0"),
    ("check", "{}", "--json"),
    ("events", "{}"),
    ("events", "{}", "--json"),
    ("events", "{}", "--payload"),
    ("artifacts", "{}", "-o", "files"),
    ("annotate", "{}"),
    ("annotate", "{}", "--json"),
    ("annotate", "{}", "--html", "margin.html"),
    ("ranks", "{}"),
    ("ranks", "{}", "--json"),
    ("index", "{}"),
    ("index", "{}", "--json"),
    ("bundle", "{}", "--graph", "0/0", "-o", "issue.zip"),
    ("scrub", "{}", "clean"),
    ("diff", "{}", "{}"),
    ("diff", "{}", "{}", "--json"),
    ("export", "table", "{}", "--graph", "0/0"),
    ("export", "fx", "{}", "--graph", "0/0", "-o", "g.txt"),
    ("export", "dot", "{}", "--graph", "0/0", "-o", "g.dot"),
    ("export", "json", "{}", "--graph", "0/0", "-o", "g.json"),
    ("export", "repro", "{}", "--graph", "0/0", "-o", "repro.py"),
    ("export", "perfetto", "{}", "-o", "trace.json"),
    ("passes", "{}", "--graph", "0/0"),
    ("passes", "{}", "--graph", "0/0", "--json"),
    ("npu", "report", "{}", "--graph", "0/0"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: "-".join(part for part in c if part != "{}"))
def test_every_verb_stands_it(command: tuple[str, ...], hostile: Path, watched: dict[str, str], tmp_path: Path) -> None:
    before = set(Path("/tmp").glob("fxscope-escaped*"))
    done = _run(*(part.format(hostile) for part in command), env=watched, cwd=tmp_path)
    text = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
    assert done.returncode in (0, 1, 2, 3, 4), text[-2000:]
    assert "Traceback" not in text
    assert "internal error" not in text
    for control in ("\x1b[2J", "\x1b]0", "\x07", "\x9b", "\u202e"):
        assert control not in text, (control, command)
    assert "RAN " not in text
    assert "NETWORK" not in text
    assert not (tmp_path / "OWNED").exists()
    assert before == set(Path("/tmp").glob("fxscope-escaped*"))
    assert not Path("/etc/fxscope-escaped").exists()
    for path in tmp_path.rglob("*"):
        assert path.resolve().is_relative_to(tmp_path.resolve())
    for written in tmp_path.glob("*.html"):
        page = written.read_text("utf-8")
        assert "<script>alert(1)" not in page
        assert "http://" not in page.replace("http://www.w3.org", "")
        assert 'href="javascript:' not in page


def test_texts_made_to_exhaust_a_parser(watched: dict[str, str], tmp_path: Path) -> None:
    """Code nested so deep that Python's own walkers give up."""
    text = ""
    for number, code in enumerate(["x" + "+1" * 9_000, "not " * 9_000 + "x", "x" + ".a" * 9_000]):
        ids: dict[str, object] = {"frame_id": number, "frame_compile_id": 0, "attempt": 0}
        broken = (
            f"Graph break in user code at /tmp/x.py:7\nGraph Break Reason: Data-dependent branching\n  Explanation: {code}\n"
            f'\nUser code traceback:\n  File "/tmp/x.py", line 7, in f\n    {code}\n'
        )
        text += _event({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **ids}, broken)
        text += _event({"artifact": {"name": "recompile_reasons", "encoding": "json"}, **ids}, f'["0/0: {code}"]')
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "dedicated_log_torch_trace_x.log").write_text(text)
    for command in (("diagnose", "r"), ("annotate", "r"), ("scrub", "r", "clean")):
        done = _run(*command, env=watched, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("name", ["session.json", "dedicated_log_torch_trace_b.log"])
def test_a_pipe_or_device_in_place_of_a_file_holds_nobody(name: str, watched: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "dedicated_log_torch_trace_a.log").write_text(_event({"str": ["a", 0]}))
    os.mkfifo(folder / name)
    assert _run("report", "r", env=watched, cwd=tmp_path).returncode == 0
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert _run("report", "r", env=watched, cwd=tmp_path).returncode == 0


def test_a_zip_bomb_stops_with_a_line(tmp_path: Path, watched: dict[str, str]) -> None:
    bomb = tmp_path / "dedicated_log_torch_trace_bomb.log.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        file.write(_event({"str": ["a", 0]}).encode())
        for _ in range(300):
            file.write(b"\x00" * (1 << 20))
    done = _run("report", str(bomb), env={**watched, "FXSCOPE_MAX_UNPACKED": str(64 << 20)}, cwd=tmp_path)
    assert done.returncode in (0, 3)
    assert b"unpacks to more than" in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *_strings(item))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def test_json_keeps_the_text_whole(hostile: Path, watched: dict[str, str], tmp_path: Path) -> None:
    """JSON is data: it escapes the control characters and loses none of them."""
    done = _run("report", str(hostile), "--json", env=watched, cwd=tmp_path)
    document = json.loads(done.stdout)
    assert any("\x1b[2J" in text for text in _strings(document))


def test_a_real_log_uses_no_network_and_starts_nothing(shared: Path, watched: dict[str, str], tmp_path: Path) -> None:
    log = str(shared / "traces" / "models" / "T5")
    for verb in (("report", log), ("diagnose", log), ("events", log), ("ranks", log)):
        done = _run(*verb, env=watched, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-500:]
        assert b"NETWORK" not in done.stderr
        assert b"RAN " not in done.stderr
