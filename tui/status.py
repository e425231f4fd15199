"""The top line: what runs, how it is, and the counts that matter."""

from __future__ import annotations

import os
import re
import shlex

from rich.cells import cell_len

from .program import Program
from .spans import Span, clean, head_of
from .store import Snapshot
from .widgets.bar import Bar, Item, size

LAUNCHERS = (
    ["torchrun"],
    ["-m", "torch.distributed.run"],
    ["-m", "torch.distributed.launch"],
    ["accelerate", "launch"],
)


def elapsed_text(seconds: float) -> str:
    """``mm:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def program_name(snapshot: Snapshot | None) -> str:
    """The script and its arguments, short."""
    if snapshot is None:
        return ""
    argv = snapshot.session.argv
    if not argv:
        return os.path.basename(snapshot.session.path.rstrip("/")) or snapshot.session.path
    script = _script(argv)
    return shlex.join([os.path.basename(argv[script]), *argv[script + 1 :]])


def _script(argv: list[str]) -> int:
    """Where the program itself is named: behind Python with its options, and behind a known launcher with its own.

    What any other program does with a ``.py`` file is not known: it may be a plugin or a configuration.
    """
    at = 0
    if re.fullmatch(r"python[\d.]*", os.path.basename(argv[0])) and len(argv) > 1:
        at = 1
        while argv[at].startswith("-") and argv[at] not in ("-c", "-m") and at + 1 < len(argv):
            at = min(at + (2 if argv[at] in ("-W", "-X") else 1), len(argv) - 1)
    begin = [os.path.basename(argv[at]), *argv[at + 1 : at + 2]]
    launcher = next((words for words in LAUNCHERS if begin[: len(words)] == words), None)
    if launcher is None:
        return at
    behind = range(at + len(launcher), len(argv))
    return next((number for number in behind if argv[number].endswith(".py") or argv[number] in ("-m", "--module")), at)


def state_spans(snapshot: Snapshot | None, program: Program | None, seconds: float) -> list[Span]:
    """State and time, with a sign that does not need colour."""
    if program is not None:
        if program.running:
            return [("\u25cf live ", "good"), (elapsed_text(seconds), "")]
        code = program.code
        return [("\u2714 ended", "good")] if code == 0 else [(f"\u2716 exit {code}", "bad")]
    if snapshot is None:
        return [("\u2026 reading", "dim")]
    session = snapshot.session
    length = session.ended - session.started if session.started else 0.0
    time = [(f" {elapsed_text(length)}", "dim")] if length > 0 else []
    if session.state == "live":
        return [("\u25cf live", "good"), *time]
    if session.exit_code is None:
        return [("\u25cb read", "dim"), *time]
    return [("\u2714 ended", "good") if session.exit_code == 0 else (f"\u2716 exit {session.exit_code}", "bad"), *time]


def status_items(
    snapshot: Snapshot | None, program: Program | None, seconds: float, rank: int | None, paused: bool, width: int = 120
) -> list[Item | None]:
    """Items of the top line; the program's name gets what ``width`` leaves."""
    items = [None, *_counts(snapshot, program, seconds, rank, paused)]
    name = clean(program_name(snapshot))
    room = max(8, min(48, width - sum(size(item) + Bar.GAP for item in items if item is not None)))
    if cell_len(name) > room:
        name = f"{head_of(name, room - 1)}\u2026"
    return [Item([("fxscope", "accent")], keep=3), Item([(name, "strong")], keep=4), *items]


def _counts(
    snapshot: Snapshot | None, program: Program | None, seconds: float, rank: int | None, paused: bool
) -> list[Item]:
    items = [Item(state_spans(snapshot, program, seconds), keep=9)]
    if program is not None and program.seems_to_ask:
        items.append(Item([("asks? ", "warn"), ("0", "accent")], "app.view('output')", keep=9))
    if paused:
        items.append(Item([("\u2016 paused", "warn")], "app.pause", keep=9))
    if snapshot is None:
        return items
    totals = snapshot.totals

    def count(label: str, value: str, bad: str, view: str, keep: int) -> None:
        items.append(Item([(f"{label} ", "dim"), (value, bad)], f"app.view('{view}')", keep))

    count("graphs", str(totals.graphs), "", "graph", 8)
    sites = f"@{totals.break_sites}" if totals.graph_breaks else ""
    count("breaks", f"{totals.graph_breaks}{sites}", "warn" if totals.graph_breaks else "", "breaks", 8)
    count("recompiles", str(totals.recompiles), "warn" if totals.recompiles else "", "recompiles", 8)
    if totals.limit_hits:
        count("limit", str(totals.limit_hits), "bad", "recompiles", 8)
    count("fail", str(totals.failures), "bad" if totals.failures else "", "overview", 6)
    ranks = snapshot.session.ranks
    if len(ranks) > 1:
        shown = "all" if rank is None else str(rank)
        items.append(Item([("rank ", "dim"), (f"{shown}/{len(ranks)}", "")], "app.rank", 7))
    return items
