"""Profile-guided dynamism: what an earlier run's profile made dynamic from the first compile on, and what this run hands to the next."""

from __future__ import annotations

import re

from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.guards import name_of
from fxscope.diagnosis.statement import code_at
from fxscope.words import count

_READ = re.compile(r"^get_(local|remote)_code_state$")
_WRITTEN = re.compile(r"^put_(local|remote)_code_state$")
_CODE = re.compile(r"^(?:hash\(\w+\))?(.+):(\d+):(.+):$")
_SOURCE = re.compile(r"^  (.+?): (.*)$")


def findings(context: Context) -> list[Finding]:
    """One finding where a profile was read, and one where the recompiles of this run went into one; both are facts."""
    recording = context.recording
    found = []
    for pattern, make in ((_READ, _read), (_WRITTEN, _written)):
        states = [artifact for artifact in recording.artifacts if pattern.match(artifact.name)]
        if states:
            # The last state holds what the ones before it held.
            places = dynamic_sources(recording.text(states[-1].event))
            if places:
                found.append(make(places))
    return found


def dynamic_sources(text: str) -> dict[tuple[str, int, str], list[str]]:
    """Sources that a profile makes dynamic, by file, line and function, as ``render_code_state`` of torch writes them."""
    found: dict[tuple[str, int, str], list[str]] = {}
    place = ("", 0, "")
    for line in text.splitlines():
        code, source = _CODE.match(line), _SOURCE.match(line)
        if code is not None:
            place = (code[1], int(code[2]), code[3])
        elif source is not None and ("?" in source[2] or "fully dynamic" in source[2]):
            found.setdefault(place, []).append(source[1])
    return found


def _read(places: dict[tuple[str, int, str], list[str]]) -> Finding:
    (file, line, function), sources = next(iter(places.items()))
    names = ", ".join(name_of(source) for each in places.values() for source in each)
    return _finding(
        f"PGO: {count(sum(map(len, places.values())), 'value')} dynamic from the first compile on, as an earlier run needed",
        (file, line, function),
        f"The profile of an earlier run says that these change: {names}. Their first graphs are symbolic, and the recompiles that this run would have had are avoided.",
        (
            "Nothing to do where they still change. Where they do not any more, a static graph is faster: torch._dynamo.mark_static, dynamic=False, or another "
            "TORCH_COMPILE_JOB_ID begins a new profile."
        ),
        f"recompiles of {function} avoided: {', '.join(map(name_of, sources))}",
        places,
    )


def _written(places: dict[tuple[str, int, str], list[str]]) -> Finding:
    (file, line, function), _ = next(iter(places.items()))
    sources = list(dict.fromkeys(source for each in places.values() for source in each))
    names = ", ".join(map(name_of, sources))
    return _finding(
        f"PGO: {count(len(sources), 'value')} changed, and the next run with this profile starts dynamic",
        (file, line, function),
        f"These changed in this run or before it: {names}. The profile keeps that, so that the next run with the same TORCH_COMPILE_JOB_ID has no recompile for them.",
        f'Without a profile the same is said by TORCH_COMPILE_DYNAMIC_SOURCES="{",".join(sources)}" in the environment, or by mark_dynamic in the program.',
        "one recompile per value in later runs",
        places,
    )


def _finding(
    title: str,
    place: tuple[str, int, str],
    cause: str,
    fix: str,
    gain: str,
    places: dict[tuple[str, int, str], list[str]],
) -> Finding:
    file, line, function = place
    return Finding(
        ids=["pgo"],
        category="recompiles",
        severity="info",
        title=title,
        file=file,
        line=line,
        function=function,
        code=code_at(file, line),
        cause=cause,
        fix=fix,
        gain=gain,
        evidence=[
            Evidence(kind="note", text=f"{name} ({at.rsplit('/', 1)[-1]}:{number}): {', '.join(sources)}")
            for (at, number, name), sources in list(places.items())[:20]
        ],
    )
