"""Two recordings compared: breaks, recompiles, graphs, guards, caches, settings and times, across versions and machines."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fxscope.diagnosis.caches import components_of, key_difference
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.diagnose import explain_records
from fxscope.diagnosis.fixes import place_of
from fxscope.diagnosis.frames import frames
from fxscope.diagnosis.story import plain_function
from fxscope.graph.diff import diff_graphs
from fxscope.graph.parse import parse_graph
from fxscope.recording.guards import flat
from fxscope.recording.records import Compile, Totals
from fxscope.source import base_name
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording

_LARGEST_GRAPH = 4_000_000  # bytes of a printed graph that is still compared node by node


class BreakDelta(msgspec.Struct, kw_only=True):
    """A break site that only one recording has, or that has another count. Sites are matched by code, not by line number."""

    change: Literal["new", "gone", "more", "fewer"]
    site: str
    function: str
    code: str
    cause: str | None
    before: int
    after: int


class RecompileDelta(msgspec.Struct, kw_only=True):
    """Recompiles of one function by one cause, where the counts differ."""

    change: Literal["new", "gone", "more", "fewer"]
    file: str
    function: str
    cause: str
    what: str
    before: int
    after: int


class GraphDelta(msgspec.Struct, kw_only=True):
    """One compile in both recordings (or in one), with what changed in its graph and guards."""

    change: Literal["changed", "new", "gone"]
    function: str
    file: str
    before: str | None  # compile key
    after: str | None
    summary: str
    lines: list[str] = msgspec.field(default_factory=list)
    guards_added: dict[str, int] = msgspec.field(default_factory=dict)  # by type of guard
    guards_removed: dict[str, int] = msgspec.field(default_factory=dict)
    seconds: tuple[float | None, float | None] = (None, None)


class Comparison(msgspec.Struct, kw_only=True):
    """Everything that differs.

    Attributes:
        versions: What of torch, python, devices and argv differs: name -> (first, second).
        settings: Settings of torch that differ: name -> (first, second).
        totals: Counts of both.
        same_graphs: Graphs that are in both and equal in structure.
        cache_keys: Parts of cache keys that differ, per function.
    """

    schema: Literal["fxscope.diff/1"] = "fxscope.diff/1"
    paths: tuple[str, str]
    totals: tuple[Totals, Totals]
    versions: dict[str, tuple[Any, Any]] = msgspec.field(default_factory=dict)
    settings: dict[str, tuple[Any, Any]] = msgspec.field(default_factory=dict)
    graph_breaks: list[BreakDelta] = msgspec.field(default_factory=list)
    recompiles: list[RecompileDelta] = msgspec.field(default_factory=list)
    graphs: list[GraphDelta] = msgspec.field(default_factory=list)
    same_graphs: int = 0
    cache_keys: dict[str, list[str]] = msgspec.field(default_factory=dict)


def compare(first: Recording, second: Recording) -> Comparison:
    """Compare two recordings; neither is changed but for ``cause`` and ``fix`` of its records."""
    explain_records(first)
    explain_records(second)
    found = Comparison(paths=(first.session.path, second.session.path), totals=(first.totals, second.totals))
    found.versions = _differing(_versions(first), _versions(second))
    found.settings = _differing(_settings(first), _settings(second))
    found.graph_breaks = _break_deltas(first, second)
    found.recompiles = _recompile_deltas(first, second)
    found.graphs, found.same_graphs = _graph_deltas(first, second)
    found.cache_keys = _cache_deltas(first, second)
    return found


def _versions(recording: Recording) -> dict[str, Any]:
    session = recording.session
    return {
        "torch": session.torch,
        "python": session.python,
        "devices": session.devices,
        "backend": session.backend,
        "processes": session.processes,
        "exit_code": session.exit_code,
    }


def _settings(recording: Recording) -> dict[str, Any]:
    return dict(recording.session.config)


def _differing(first: dict[str, Any], second: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    }


def _word(before: int, after: int) -> Literal["new", "gone", "more", "fewer"]:
    return "new" if not before else "gone" if not after else "more" if after > before else "fewer"


def _break_deltas(first: Recording, second: Recording) -> list[BreakDelta]:
    counts: dict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    sample: dict[tuple[str, str, str, str], tuple[str, str | None]] = {}
    for side, recording in enumerate((first, second)):
        for found in recording.graph_breaks:
            file, line, code = place_of(found)
            key = (base_name(file), plain_function(found.function), code.strip(), found.gb_id or found.kind)
            counts[key][side] += found.count
            sample[key] = (f"{base_name(file)}:{line}", found.cause)
    return [
        BreakDelta(
            change=_word(before, after),
            site=sample[key][0],
            function=key[1],
            code=key[2],
            cause=sample[key][1],
            before=before,
            after=after,
        )
        for key, (before, after) in sorted(counts.items())
        if before != after
    ]


def _recompile_deltas(first: Recording, second: Recording) -> list[RecompileDelta]:
    counts: dict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for side, recording in enumerate((first, second)):
        for frame in frames(Context(recording)):
            for change in frame.changes:
                if change.recompile.outcome != "compiled":
                    continue  # refused: a limit hit
                counts[base_name(frame.place[0]), frame.name, change.ids[0], change.name][side] += 1
    return [
        RecompileDelta(
            change=_word(before, after),
            file=file,
            function=function,
            cause=cause,
            what=what,
            before=before,
            after=after,
        )
        for (file, function, cause, what), (before, after) in sorted(counts.items())
        if before != after
    ]


def _graph_deltas(first: Recording, second: Recording) -> tuple[list[GraphDelta], int]:
    """Compiles are paired by file and function, in order; unpaired ones are new or gone."""
    mine, yours = _by_function(first), _by_function(second)
    deltas: list[GraphDelta] = []
    same = 0
    for key in dict.fromkeys([*mine, *yours]):
        a, b = mine.get(key, []), yours.get(key, [])
        for left, right in zip(a, b, strict=False):
            delta = _pair(first, left, second, right)
            if delta is None:
                same += 1
            else:
                deltas.append(delta)
        deltas.extend(_alone("gone", left, None) for left in a[len(b) :])
        deltas.extend(_alone("new", None, right) for right in b[len(a) :])
    return deltas, same


def _by_function(recording: Recording) -> dict[tuple[int | None, str, str], list[Compile]]:
    found: dict[tuple[int | None, str, str], list[Compile]] = defaultdict(list)
    for compile_ in recording.compiles:
        if compile_.status == "ok":
            found[compile_.rank, base_name(compile_.file), compile_.function].append(compile_)
    return found


def _alone(change: Literal["new", "gone"], left: Compile | None, right: Compile | None) -> GraphDelta:
    compile_ = left or right
    assert compile_ is not None
    return GraphDelta(
        change=change,
        function=compile_.function,
        file=base_name(compile_.file),
        before=left.key if left else None,
        after=right.key if right else None,
        summary=count(compile_.nodes or 0, "node"),
        seconds=(left.seconds if left else None, right.seconds if right else None),
    )


def _pair(first: Recording, left: Compile, second: Recording, right: Compile) -> GraphDelta | None:
    summary, lines = _graph_text(first, left, second, right)
    before, after = _guard_types(first, left), _guard_types(second, right)
    added, removed = dict(after - before), dict(before - after)
    if not summary and not added and not removed:
        return None
    if not summary:
        summary = "same graph, other guards"
    return GraphDelta(
        change="changed",
        function=right.function,
        file=base_name(right.file),
        before=left.key,
        after=right.key,
        summary=summary,
        lines=lines,
        guards_added=added,
        guards_removed=removed,
        seconds=(left.seconds, right.seconds),
    )


def _graph_text(first: Recording, left: Compile, second: Recording, right: Compile) -> tuple[str, list[str]]:
    texts = []
    for recording, compile_ in ((first, left), (second, right)):
        graph = next((text for text in compile_.graphs if text.stage == "dynamo"), None)
        if graph is None or graph.size > _LARGEST_GRAPH:
            return ("", []) if left.nodes == right.nodes else (f"{left.nodes} -> {count(right.nodes or 0, 'node')}", [])
        texts.append(recording.text(graph.event))
    if texts[0] == texts[1]:
        return "", []
    diff = diff_graphs(parse_graph(texts[0], "dynamo"), parse_graph(texts[1], "dynamo"))
    if diff.empty:
        return "", []
    return diff.summary(), list(diff.lines())


def _guard_types(recording: Recording, compile_: Compile) -> Counter[str]:
    return Counter(guard.type for guard in flat(recording.guards(compile_)) if guard.type)


def _cache_deltas(first: Recording, second: Recording) -> dict[str, list[str]]:
    """Why the second run missed where the first had stored: differing parts of the keys, per function and cache."""
    keys: list[dict[tuple[str, str], tuple[str, list[str]]]] = [{}, {}]
    for side, recording in enumerate((first, second)):
        by_key = {compile_.key: compile_ for compile_ in recording.compiles}
        for event in recording.cache_events:
            compile_ = by_key.get(event.compile_key or "")
            if compile_ is not None and event.outcome in ("miss", "hit"):
                keys[side].setdefault((event.cache, compile_.function), components_of(recording.text(event.event)))
    found = {}
    for name, (key, parts) in keys[0].items():
        other, others = keys[1].get(name, ("", []))
        if key and other and key != other:
            found[f"{name[1]} ({name[0]})"] = key_difference(parts, others) or [f"{key} -> {other}"]
    return found
