"""Outcomes of tests kept as they come: a pytest plugin that writes them to a file, and the sum of what the file holds.

    FXSCOPE_RESULTS=results.jsonl PYTHONPATH=scripts python -m pytest -p kept_results tests/unit/graph

A run that is stopped keeps what it has and a later one adds to it: of two outcomes of one test the later counts.
FXSCOPE_COMMIT names the state of the code; FXSCOPE_DONE is a file of test ids, a line each, that are not run again.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pytest


class Outcome(NamedTuple):
    """What one test said last: ``passed``, ``failed`` or ``skipped``, why, at which commit, and when (UTC)."""

    outcome: str
    reason: str
    commit: str
    time: str


def plain(test: str) -> str:
    """A test's id without the group that xdist's ``loadgroup`` appends."""
    return re.sub(r"@\w+$", "", test)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append an outcome; a teardown that fails makes a second line, which counts."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return  # xdist hands the workers' reports to the controller, which writes
    told = report.longrepr
    crash = getattr(told, "reprcrash", None)
    said = told[2] if isinstance(told, tuple) else crash.message if crash else str(told or "")
    line = {
        "test": plain(report.nodeid),
        "outcome": report.outcome,
        "reason": said[:300],
        "commit": os.environ.get("FXSCOPE_COMMIT", ""),
        "time": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    }
    with open(os.environ["FXSCOPE_RESULTS"], "ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        torn = file.read(1) not in (b"", b"\n")  # a run was stopped in the middle of its last line
        file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of FXSCOPE_DONE."""
    done = os.environ.get("FXSCOPE_DONE")
    if done is None:
        return
    known = set(Path(done).read_text("utf-8").splitlines())
    left_out = [item for item in items if plain(item.nodeid) in known]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if plain(item.nodeid) not in known]


def read(path: Path) -> dict[str, Outcome]:
    """The last outcome of each test in a file, in the order of time; none where the file is not there.

    A line that a stopped run has torn tells of nothing: its test has not run.
    """
    found: dict[str, Outcome] = {}
    for line in path.read_text("utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:
            continue
        test = fields.pop("test")
        found.pop(test, None)
        found[test] = Outcome(**fields)
    return found


def room(test: str) -> str:
    """``unit/graph``, ``integration``, ``tui``, ... of a test's id."""
    parts = test.split("::")[0].split("/")[1:-1]
    return "/".join(parts[:2])


def ran(collected: Iterable[str], results: dict[str, Outcome]) -> str:
    """Which of the collected tests have an outcome, told by room: ``all of unit/graph, tui; 3 of 40 integration``."""
    rooms: dict[str, list[bool]] = {}
    for test in collected:
        rooms.setdefault(room(test), []).append(test in results)
    if all(all(known) for known in rooms.values()):
        return "all"
    whole = [name for name, known in rooms.items() if all(known)]
    parts = [f"{sum(known)} of {len(known)} {name}" for name, known in rooms.items() if any(known) and not all(known)]
    none = [name for name, known in rooms.items() if not any(known)]
    told = [f"all of {', '.join(whole)}"] if whole else []
    return "; ".join([*told, *parts, *([f"none of {', '.join(none)}"] if none else [])])
