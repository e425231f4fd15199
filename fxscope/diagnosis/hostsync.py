"""Operations of a graph for which the host waits until the device has finished: each call of the graph pays for them.

Read from the graph that the backend got, on devices that run behind the host (not on the CPU itself).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fxscope.diagnosis.context import Context, user_place
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.statement import code_at
from fxscope.recording.records import Compile
from fxscope.words import count

_STAGES = ("inference", "forward", "dynamo")  # the first that a compile has: decomposed graphs show what masks become
_ASYNCHRONOUS = re.compile(r"device\(type='(?:cuda|xpu|hip)'|\b(?:cuda|xpu|hip):\d")


class _Kind(NamedTuple):
    pattern: re.Pattern[str]
    what: str
    fix: str


_KINDS = (
    _Kind(
        re.compile(r"_local_scalar_dense|\.item\(\)|\.tolist\(\)"),
        "a value is read (.item())",
        "keep the value a tensor on the device, and read it once in a while instead of in every call",
    ),
    _Kind(
        re.compile(
            r"\baten\.(?:nonzero|unique\w*|masked_select)\b|\.nonzero\(|torch\.(?:nonzero|unique|masked_select)\("
        ),
        "a shape depends on data (nonzero, unique, boolean masks)",
        "keep the shape: multiply by the mask, torch.where, torch.nonzero_static",
    ),
    _Kind(
        re.compile(
            r"device_put[^\n]*device\(type='cpu'|_to_copy[^\n]*device\(type='cpu'|\.cpu\(\)|\.to\(['\"]cpu['\"]"
        ),
        "a tensor is copied to the CPU",
        'copy outside of the compiled function, once in a while, with .to("cpu", non_blocking=True)',
    ),
)
_PIECE = 1 << 16  # characters
_FILE = re.compile(r"^\s*# File: (.+?):(\d+) in (\S+?), code: (.*)$")


def findings(context: Context) -> list[Finding]:
    """One finding per line of the program whose operations make the host wait."""
    sites: dict[tuple[str, int, str], list[tuple[Compile, str, _Kind]]] = {}
    for compile_ in context.recording.compiles:
        if compile_.status != "ok":
            continue
        text = _graph_text(context, compile_)
        if not any(_ASYNCHRONOUS.search(piece) for piece in _pieces(text)):
            continue
        for place, line, kind in syncs(text):
            file, number, code = place or (*user_place(compile_), "")
            sites.setdefault((file, number, code), []).append((compile_, line, kind))
    return [_finding(place, members) for place, members in sites.items()]


def _graph_text(context: Context, compile_: Compile) -> str:
    stages = {graph.stage: graph for graph in compile_.graphs}
    graph = next((stages[name] for name in _STAGES if name in stages), None)
    return context.recording.text(graph.event) if graph is not None else ""


def _pieces(text: str) -> Iterator[str]:
    """Whole lines together: one search keeps the interpreter's lock, a tenth of a second on a graph of 50,000 nodes."""
    start = 0
    while start < len(text):
        stop = text.find("\n", start + _PIECE) + 1 or len(text)
        yield text[start:stop]
        start = stop


def syncs(text: str) -> list[tuple[tuple[str, int, str] | None, str, _Kind]]:
    """Place (file, line, code), text and kind of every such operation of a printed graph."""
    if not any(kind.pattern.search(piece) for piece in _pieces(text) for kind in _KINDS):
        return []
    found = []
    place: tuple[str, int, str] | None = None
    for line in text.splitlines():
        at = _FILE.match(line)
        if at is not None:
            place = (at[1], int(at[2]), at[4].strip())
            continue
        if line.lstrip().startswith("#"):
            continue
        for kind in _KINDS:
            if kind.pattern.search(line):
                found.append((place, line.strip(), kind))
                break
    return found


def _finding(place: tuple[str, int, str], members: list[tuple[Compile, str, _Kind]]) -> Finding:
    file, line, code = place
    compiles = {compile_.key: compile_ for compile_, _, _ in members}
    calls = sum(compile_.calls or 0 for compile_ in compiles.values())
    kinds = list(dict.fromkeys(kind for _, _, kind in members))
    first = members[0][0]
    return Finding(
        ids=["host-sync"],
        category="cost",
        severity="low",
        title=f"The host waits for the device: {'; '.join(kind.what for kind in kinds)}",
        file=file,
        line=line,
        function=first.function,
        code=code or code_at(file, line),
        cause="The program goes on only when the device has finished everything before this line, so launches are no longer ahead of the device"
        + (f"; that happened in {count(calls, 'call')}." if calls else "."),
        fix=f"{'; '.join(kind.fix for kind in kinds).capitalize()}.",
        gain="the time that the device idles after each wait (not measured; a profiler shows it as gaps)",
        evidence=[
            Evidence(kind="compile", text=f"{compile_.id}: {text[:160]}", compile_key=compile_.key)
            for compile_, text, _ in members[:20]
        ],
        cost=float(calls or len(members)),
    )
