"""Programs that are recorded by a test, and their logs read by hand and by PyTorch's own tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

Events = Callable[[Path], list[tuple[dict, str]]]

EAGER = """
import torch
def f(x):
    return (x.sin() + 1).sum()
"""


def start(script: Path, folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess:
    record = ["-m", "fxscope", "run", "--headless", "--quiet"]
    command = [sys.executable, *record, *options, "-o", str(folder), str(script)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
    )
    assert done.returncode == 0, done.stderr
    return done


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def string_ids(value: object) -> Iterator[int]:
    """Every interned string that an envelope refers to."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "filename" and isinstance(item, int):
                yield item
            else:
                yield from string_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from string_ids(item)


def check_log(log: Path, log_events: Events) -> list[tuple[dict, str]]:
    """tlparse reads it strictly, and every string was named before it was used, once."""
    events = log_events(log)
    known: dict[int, str] = {}
    used = 0
    for envelope, _ in events:
        if "str" in envelope:
            text, number = envelope["str"]
            assert number not in known
            known[number] = text
        for number in string_ids(envelope):
            assert number in known, envelope
            used += 1
    assert used or not any("dynamo_start" in envelope for envelope, _ in events)
    out = log.parent / f"{log.stem}-tlparse"
    done = subprocess.run(
        ["tlparse", "--strict", "--no-browser", "-o", str(out), str(log)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Stats { ok:" in done.stderr or "Unknown fields" in done.stderr
    assert "fail" not in done.stderr
    return events


def artifacts(events: list[tuple[dict, str]], name: str) -> list[dict]:
    return [json.loads(payload) for envelope, payload in events if envelope.get("artifact", {}).get("name") == name]


def calls(events: list[tuple[dict, str]]) -> list[tuple[str, int]]:
    """Id and last total of each entry; an entry is in a flush only if it changed since the one before."""
    last = {row["graph"]: row for flush in artifacts(events, "fxscope.launches") for row in flush["entries"]}
    return sorted((row["id"], row["calls"]) for row in last.values())


def compiles(events: list[tuple[dict, str]]) -> int:
    return sum("dynamo_output_graph" in envelope for envelope, _ in events)
