"""What is wrong with a run, worst first: the findings of every diagnosis, with effects joined to their causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.diagnosis import breaks
from fxscope.diagnosis.causes import cause_of
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Finding, severity_rank, worst_first
from fxscope.diagnosis.fixes import fix_of
from fxscope.diagnosis.frames import frames
from fxscope.diagnosis.remedies import remedy

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


def diagnose(recording: Recording) -> list[Finding]:
    """Everything that is wrong, worst first. A healthy run has no finding above severity ``info``.

    Args:
        recording: The recording; it is only read.
    """
    # Late, because a report needs only explain_records and starts in a fraction of a second.
    from fxscope.diagnosis import caches, cost, failures, hostsync, nothing, pgo, recompiles, threads
    from fxscope.diagnosis.exports import export_findings
    from fxscope.diagnosis.plugins import plugin_findings
    from fxscope.diagnosis.rank_join import join_ranks
    from fxscope.diagnosis.ranks import rank_findings

    context = Context(recording)
    found_breaks = breaks.findings(context)
    found_failures = failures.findings(context)
    exported = export_findings(recording)
    found = [
        *found_failures,
        *_join_failures(found_breaks, found_failures),
        *_join_breaks(recording, recompiles.findings(context), found_breaks),
        *threads.findings(context),
        *(nothing.findings(context) if exported is None else exported),  # who exports compiles nothing, and means it
        *cost.findings(context),
        *hostsync.findings(context),
        *caches.findings(context),
        *pgo.findings(context),
        *rank_findings(recording),
        *plugin_findings(recording),
    ]
    return worst_first(join_ranks(found))


def explain_records(recording: Recording) -> None:
    """Fill ``cause`` and ``fix`` of every graph break and recompile of a recording, in place.

    ``cause`` is the leading finding id, ``fix`` the advice; both stay as they are where they are filled already.
    """
    for found in recording.graph_breaks:
        if found.cause is None:
            cause = cause_of(found)
            found.cause, found.fix = cause.ids[0], fix_of(found, cause)
    for frame in frames(Context(recording)):
        # A story has one fix, however many entries it made: a frame of 10,000 recompiles is walked once.
        fixes: dict[tuple[str, str, int | None], str] = {}
        for change in frame.changes:
            if change.recompile.cause is None:
                key = (change.ids[0], change.name, change.dim)
                if key not in fixes:
                    fixes[key] = remedy(change.ids[0], frame, change).fix
                change.recompile.cause, change.recompile.fix = change.ids[0], fixes[key]


def _join_breaks(recording: Recording, found: list[Finding], found_breaks: list[Finding]) -> list[Finding]:
    """Recompiles for a value that crossed a break are an effect of that break."""
    by_site: dict[tuple[str, int], Finding] = {}
    for finding in found_breaks:
        for evidence in finding.evidence:
            broken = recording.graph_breaks[evidence.index]
            by_site[broken.file, broken.line] = finding
    kept = []
    for finding in found:
        sites = [recording.recompiles[each.index] for each in finding.evidence if each.kind == "recompile"]
        first = next((by_site[each.file, each.line] for each in sites if (each.file, each.line) in by_site), None)
        if first is None or "break-value" not in finding.ids:
            kept.append(finding)
            continue
        first.ids.extend(
            id_
            for id_ in ("break-value", *finding.ids)
            if id_ not in first.ids and id_ not in ("dynamic-size", "changing-number")
        )
        first.cause += f" The value that crosses the break is guarded behind it: {finding.title}."
        first.evidence.extend(finding.evidence)
        first.cost += finding.cost
        if severity_rank(finding.severity) < severity_rank(first.severity):
            first.severity = finding.severity
    return kept


def _join_failures(found_breaks: list[Finding], found_failures: list[Finding]) -> list[Finding]:
    """A break that is also the failure's line is told once, as the failure."""
    failed = {(finding.file, finding.line) for finding in found_failures}
    return [finding for finding in found_breaks if (finding.file, finding.line) not in failed]
