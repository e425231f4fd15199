"""A log whose every text tries to take over the terminal, the page or the file system."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

EVIL = "\x1b[2J\x1b]0;owned\x07[bold red]x[/] <script>alert(1)</script> \x9b31m \u202e{{7*7}} ../../etc/passwd \r\n\x00"
_HEAD = "V1129 11:59:38.304000 440 torch/_dynamo/utils.py:2126] "


def event(name: str, value: Any, payload: str | None = None, **context: Any) -> str:
    record = {name: value, **context}
    if payload is not None:
        record["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    return (
        _HEAD + json.dumps(record) + "".join("\n\t" + part for part in (payload.split("\n") if payload else ())) + "\n"
    )


def write_hostile(folder: Path) -> Path:
    """Write the log below ``folder`` and return its path."""
    compile_ = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    again = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}
    line = EVIL.replace("\n", " ")
    metrics = {
        "compile_id": "0/0",
        "co_name": EVIL,
        "co_filename": "/home/me/" + EVIL,
        "co_firstlineno": 3,
        "start_time": 1795953584.8,
        "entire_frame_compile_time_s": 1.5,
        "backend_compile_time_s": 0.5,
        "guard_count": 1,
        "graph_node_count": 2,
        "has_guarded_code": True,
        "pytorch_version": "2.13.0" + EVIL,
    }
    broken = (
        f"Graph break in user code at /home/me/{line}:7\nGraph Break Reason: {line}\n  Explanation: {EVIL}\n"
        f'  Hint: {EVIL}\n\nUser code traceback:\n  File "/home/me/{line}", line 7, in {line}\n    {line}\n'
    )
    parts = [
        event("str", ["/home/me/" + EVIL, 0]),
        event("dynamo_start", {"stack": [{"line": 3, "name": EVIL, "filename": 0, "loc": EVIL}]}, **compile_),
        event("artifact", {"name": "dynamo_graph_break_reason", "encoding": "string"}, broken, **compile_),
        event("dynamo_output_graph", {}, f"class GraphModule: {EVIL}", **compile_),
        event("dynamo_cpp_guards_str", {}, f"+- RootGuardManager\n| +- EQUALS_MATCH: {line}  # {line}", **compile_),
        event("artifact", {"name": "../../" + EVIL, "encoding": EVIL}, EVIL, **compile_),
        event(
            "artifact", {"name": "fx_graph_cache_bypass", "encoding": "json"}, json.dumps({"reason": EVIL}), **compile_
        ),
        event(
            "chromium_event", {}, json.dumps({"name": EVIL, "ts": 1.0, "ph": "B", "pid": 0, "tid": EVIL}), **compile_
        ),
        event(
            "chromium_event", {}, json.dumps({"name": EVIL, "ts": 9e5, "ph": "E", "pid": 0, "tid": EVIL}), **compile_
        ),
        event("compilation_metrics", metrics, **compile_),
        event("artifact", {"name": "recompile_reasons", "encoding": "json"}, f"0/0: {line} == '{line}'", **again),
        event("artifact", {"name": "dynamo_error", "encoding": "string"}, EVIL, **again),
        event(
            "compilation_metrics",
            {**metrics, "fail_type": EVIL, "fail_reason": EVIL, "start_time": 1795953590.0},
            **again,
        ),
        event("unheard " + line, {}),
    ]
    path = folder / "hostile.log"
    path.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
    return path
