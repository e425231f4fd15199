"""Budgets and baselines: what a run may do, and what it did beyond that."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from fxscope.diagnosis.context import Context
from fxscope.diagnosis.diagnose import diagnose, explain_records
from fxscope.diagnosis.findings import Finding, severity_rank
from fxscope.diagnosis.fixes import place_of
from fxscope.diagnosis.frames import frames
from fxscope.diagnosis.story import Change, Frame, plain_function
from fxscope.errors import UnreadableError
from fxscope.source import base_name
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits; None for no limit.

    Attributes:
        max_graph_breaks: Break events of the run (``totals.graph_breaks``).
        max_recompiles: Compiled recompiles of the run (``totals.recompiles``).
        max_compile_seconds: Wall-clock seconds of compiling.
        fail_on: Findings of this severity or worse fail.
    """

    max_graph_breaks: int | None = None
    max_recompiles: int | None = None
    max_compile_seconds: float | None = None
    fail_on: Literal["high", "medium", "low", "info"] | None = None


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is over the budget.

    Attributes:
        rule: Name of the budget, or ``baseline``.
        message: One line.
        details: One line per site, with the fix.
    """

    rule: str
    message: str
    details: tuple[str, ...] = ()
    file: str = ""
    line: int = 0


class BaselineBreak(msgspec.Struct, frozen=True, kw_only=True):
    """A graph break that is known. Its line number is not part of it: code above may move it."""

    file: str
    function: str
    code: str
    kind: str
    count: int


class BaselineRecompile(msgspec.Struct, frozen=True, kw_only=True):
    """Recompiles of one function that are known."""

    file: str
    function: str
    cause: str
    count: int


class Baseline(msgspec.Struct, kw_only=True):
    """What a run is allowed to do because it did so when the file was written."""

    schema: Literal["fxscope.baseline/1"] = "fxscope.baseline/1"
    graphs: int = 0
    limit_hits: int = 0
    failures: int = 0
    graph_breaks: list[BaselineBreak] = msgspec.field(default_factory=list)
    recompiles: list[BaselineRecompile] = msgspec.field(default_factory=list)


def baseline_of(recording: Recording) -> Baseline:
    """The baseline that this run would pass, sorted so that the committed file changes only where the run does."""
    breaks: dict[tuple[str, str, str, str], int] = {}
    for found in recording.graph_breaks:
        file, _, code = place_of(found)
        key = (base_name(file), plain_function(found.function), code.strip(), found.gb_id or found.kind)
        breaks[key] = breaks.get(key, 0) + found.count
    recompiles: dict[tuple[str, str, str], int] = {}
    for frame in frames(Context(recording)):
        for change in _compiled(frame):
            name = (base_name(frame.place[0]), frame.name, change.ids[0])
            recompiles[name] = recompiles.get(name, 0) + 1
    totals = recording.totals
    return Baseline(
        graphs=totals.graphs,
        limit_hits=totals.limit_hits,
        failures=totals.failures,
        graph_breaks=[
            BaselineBreak(file=file, function=function, code=code, kind=kind, count=number)
            for (file, function, code, kind), number in sorted(breaks.items())
        ],
        recompiles=[
            BaselineRecompile(file=file, function=function, cause=cause, count=number)
            for (file, function, cause), number in sorted(recompiles.items())
        ],
    )


def load_baseline(path: str | Path) -> Baseline:
    """Read a baseline file.

    Raises:
        UnreadableError: Absent, or no baseline.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Baseline)
    except FileNotFoundError:
        raise UnreadableError(
            f"{path}: no such baseline; write it with fxscope check RECORDING --baseline {path} --update-baseline"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise UnreadableError(f"{path}: not a baseline ({error}); write it anew with --update-baseline") from None


def save_baseline(path: str | Path, baseline: Baseline) -> None:
    """Write a baseline file, one entry a line, for version control: whole, or not at all where the disk is full.

    A file that is there keeps its mode; where its folder takes no new file, it is written in place.

    Raises:
        OSError: It cannot be written; what was there before is as it was.
    """
    text = msgspec.json.format(msgspec.json.encode(baseline), indent=1).decode() + "\n"
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():  # a device, or a folder that refuses it
        place.write_text(text, encoding="utf-8")
        return
    temporary = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        if place.exists():
            shutil.copymode(place, temporary)
        os.replace(temporary, place)
    except OSError as error:
        # The folder takes no new file, or the file is a mount of its own: it may be writable all the same.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY) or not place.exists():
            raise
        place.write_text(text, encoding="utf-8")
    finally:
        temporary.unlink(missing_ok=True)


def violations(recording: Recording, budget: Budget, baseline: Baseline | None = None) -> list[Violation]:
    """Everything that the run did beyond its budget and its baseline.

    Args:
        recording: The run.
        budget: Limits on counts.
        baseline: What is known already; None for no comparison.
    """
    explain_records(recording)
    totals = recording.totals
    found = []
    if budget.max_graph_breaks is not None and totals.graph_breaks > budget.max_graph_breaks:
        file, line = _first_break(recording)
        found.append(
            Violation(
                rule="max-graph-breaks",
                message=f"{count(totals.graph_breaks, 'graph break')} at {count(totals.break_sites, 'site')}, allowed {budget.max_graph_breaks}",
                details=break_details(recording),
                file=file,
                line=line,
            )
        )
    if budget.max_recompiles is not None and totals.recompiles > budget.max_recompiles:
        file, line = _first_recompile(recording)
        found.append(
            Violation(
                rule="max-recompiles",
                message=f"{count(totals.recompiles, 'recompile')}, allowed {budget.max_recompiles}",
                details=recompile_details(recording),
                file=file,
                line=line,
            )
        )
    if budget.max_compile_seconds is not None and totals.compile_seconds > budget.max_compile_seconds:
        slow = sorted(recording.compiles, key=lambda compile_: -(compile_.seconds or 0.0))[:5]
        found.append(
            Violation(
                rule="max-compile-seconds",
                message=f"{totals.compile_seconds:.1f} s of compiling, allowed {budget.max_compile_seconds:g} s",
                details=tuple(
                    f"{each.id} {each.function} ({base_name(each.file)}:{each.line}): {each.seconds or 0.0:.1f} s"
                    for each in slow
                ),
            )
        )
    if budget.fail_on is not None:
        found.extend(_bad_findings(diagnose(recording), budget.fail_on))
    if baseline is not None:
        found.extend(_beyond(recording, baseline))
    return found


def break_details(recording: Recording) -> tuple[str, ...]:
    """One line per break site: where, what, and the first sentence of the fix."""
    lines = []
    for found in recording.graph_breaks:
        file, line, code = place_of(found)
        first = (found.fix or "").split("\n", 1)[0]
        lines.append(
            f"{base_name(file)}:{line}: {code.strip() or found.kind} [{found.cause}] x{found.count}. {first}".rstrip()
        )
    return tuple(lines)


def recompile_details(recording: Recording) -> tuple[str, ...]:
    """One line per function that recompiled: where, how often, the guard, and the fix."""
    return tuple(_recompile_line(frame) for frame in frames(Context(recording)) if frame.changes)


def _compiled(frame: Frame) -> list[Change]:
    """The recompiles that were made; one that the limit refused is a limit hit."""
    return [change for change in frame.changes if change.recompile.outcome == "compiled"]


def _recompile_line(frame: Frame) -> str:
    change = (_compiled(frame) or frame.changes)[-1]
    first = (change.recompile.fix or "").split("\n", 1)[0]
    refused = len(frame.changes) - len(_compiled(frame))
    times = f"x{len(_compiled(frame))}{f' and {refused} refused' if refused else ''}"
    return f"{base_name(frame.place[0])}:{frame.place[1]}: {frame.name} {times}: {change.guard.guard[:120]} [{change.ids[0]}]. {first}".rstrip()


def _first_break(recording: Recording) -> tuple[str, int]:
    file, line, _ = place_of(recording.graph_breaks[0])
    return file, line


def _first_recompile(recording: Recording) -> tuple[str, int]:
    frame = next((each for each in frames(Context(recording)) if each.changes), None)
    return frame.place if frame else ("", 0)


def _bad_findings(findings: list[Finding], fail_on: str) -> list[Violation]:
    return [
        Violation(
            rule=finding.ids[0],
            message=f"[{finding.severity}] {finding.site or 'run'}: {finding.title}",
            details=(finding.cause, *finding.fix.split("\n")),
            file=finding.file,
            line=finding.line,
        )
        for finding in findings
        if severity_rank(finding.severity) <= severity_rank(fail_on)
    ]


def _beyond(recording: Recording, baseline: Baseline) -> list[Violation]:
    now = baseline_of(recording)
    known = {(each.file, each.function, each.code, each.kind): each.count for each in baseline.graph_breaks}
    found = []
    for each in now.graph_breaks:
        before = known.get((each.file, each.function, each.code, each.kind), 0)
        if each.count > before:
            site = next(
                (
                    record
                    for record in recording.graph_breaks
                    if place_of(record)[2].strip() == each.code and base_name(place_of(record)[0]) == each.file
                ),
                None,
            )
            file, line, _ = place_of(site) if site is not None else (each.file, 0, "")
            what = "new graph break" if not before else f"{each.count} graph breaks instead of {before}"
            fix = (site.fix or "").split("\n", 1)[0] if site is not None else ""
            found.append(
                Violation(
                    rule="baseline",
                    message=f"{what} at {each.file}:{line}: {each.code or each.kind}",
                    details=(fix,),
                    file=file,
                    line=line,
                )
            )
    told = {(each.file, each.function, each.cause): each.count for each in baseline.recompiles}
    stories: dict[tuple[str, str, str], Frame] = {}
    for story in frames(Context(recording)) if now.recompiles else ():
        for change in _compiled(story):
            stories.setdefault((base_name(story.place[0]), story.name, change.ids[0]), story)
    for entry in now.recompiles:
        before = told.get((entry.file, entry.function, entry.cause), 0)
        if entry.count > before:
            frame = stories[entry.file, entry.function, entry.cause]
            found.append(
                Violation(
                    rule="baseline",
                    message=f"{count(entry.count, 'recompile')} of {entry.function} ({entry.file}) by {entry.cause}, known {before}",
                    details=(_recompile_line(frame),),
                    file=frame.place[0],
                    line=frame.place[1],
                )
            )
    if baseline.graphs and not now.graphs:
        found.append(
            Violation(rule="baseline", message=f"nothing was compiled, known {count(baseline.graphs, 'graph')}")
        )
    for name, number, before in (
        ("limit hit", now.limit_hits, baseline.limit_hits),
        ("failure", now.failures, baseline.failures),
    ):
        if number > before:
            found.append(Violation(rule="baseline", message=f"{count(number, name)}, known {before}"))
    return found
