"""What is wrong between ranks: one that compiles while the others wait, or in another step, schedules that differ, missing waits."""

from __future__ import annotations

import shlex
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from fxscope.diagnosis.findings import Evidence, Finding, worst_first
from fxscope.diagnosis.rank_differs import (
    diverging_breaks,
    diverging_records,
    imbalance,
    missing_waits,
    told_together,
)
from fxscope.diagnosis.rank_runs import main_processes, split_runs
from fxscope.diagnosis.rank_time import (
    Busy,
    base_id,
    comparable,
    id_order,
    on_hosts,
    rank_names,
    some,
    the_others,
    union_seconds,
    whole,
)
from fxscope.recording.rank_summary import RankCompile, RankSummary, summarize
from fxscope.words import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxscope.recording.recording import Recording

# Ranks never start the same compile at the same instant; below this (seconds) nobody notices the wait.
NOTICEABLE = 0.5
_MOST = 8  # findings of one kind: where every rank goes its own way, the worst say what is wrong


def rank_findings(recording: Recording) -> list[Finding]:
    """Findings about the ranks of one recording; empty where it has fewer than two."""
    if len(recording.session.ranks) < 2:
        return []
    return compare_ranks(summarize(recording), str(recording.path))


def compare_ranks(summaries: Iterable[RankSummary], path: str = "PATH") -> list[Finding]:
    """Findings about the ranks among these processes, worst first. Processes without a rank are left out.

    Args:
        summaries: Of all logs, or of all processes of one recording.
        path: What the reader opened, for the command that verifies a fix.
    """
    runs = [run for run in map(main_processes, split_runs(list(summaries))) if len(run) > 1]
    findings = []
    for number, ranks in enumerate(runs, 1):
        for finding in _compare_run(ranks):
            finding.verify = f"fxscope ranks {shlex.quote(path)}"
            if len(runs) > 1:
                finding.title += f" (run {number} of {len(runs)})"
            findings.append(finding)
    return worst_first(findings)


def _compare_run(ranks: list[RankSummary]) -> list[Finding]:
    if any(summary.closed for summary in ranks):
        # One that was killed while others came to their end: what it lacks may have been still to come.
        ranks = [msgspec.structs.replace(s, cut=s.cut or s.closed is False) for s in ranks]
    return [
        *_diverging_compiles(ranks),
        *_staggered_compiles(ranks),
        *diverging_breaks(ranks),
        *diverging_records(ranks),
        *missing_waits(ranks),
        *imbalance(ranks, NOTICEABLE),
    ]


def _diverging_compiles(ranks: list[RankSummary]) -> list[Finding]:
    """Compiles that some ranks make and others, whose logs are whole, do not."""
    tables = {summary.rank: whole(summary.compiles) for summary in ranks}
    number_of = {rank: place for place, rank in enumerate(tables)}
    having: dict[str, list[int]] = defaultdict(list)
    for rank, table in tables.items():
        for id_ in table:
            having[id_].append(number_of[rank])
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for id_ in sorted(having, key=id_order):
        if len(having[id_]) < len(tables):
            groups[tuple(having[id_])].append(id_)
    busy = {summary.rank: Busy(summary.compiles) for summary in ranks} if comparable(ranks) and groups else {}
    found = []
    for places, only in groups.items():
        have, known = [ranks[place] for place in places], set(places)
        lacking = [summary for place, summary in enumerate(ranks) if place not in known and not summary.cut]
        if not lacking:
            continue
        made = [tables[have[0].rank][id_] for id_ in only]
        seconds = max(
            (sum(busy[s.rank].waited(c.started, c.started + c.seconds) for c in made) for s in lacking if busy),
            default=0.0,
        )
        found.append(_divergence(ranks, have, lacking, only, made[0], seconds))
    found.sort(key=lambda finding: -finding.cost)
    if len(found) > _MOST:
        rest = found[_MOST:]
        found[_MOST:] = [
            Finding(
                ids=["rank-divergence"],
                category="cost",
                severity="medium",
                title=f"{len(rest)} more sets of compiles that only some ranks make",
                cause="Ranks took different paths again and again.",
                fix=rest[0].fix,
                evidence=[Evidence(kind="note", text=finding.title) for finding in rest[:_MOST]],
            )
        ]
    return found


def _divergence(
    ranks: list[RankSummary],
    have: list[RankSummary],
    lacking: list[RankSummary],
    only: list[str],
    first: RankCompile,
    seconds: float,
) -> Finding:
    again = f" {only[0]} was compiled because of: {first.reason}." if first.reason else ""
    where = on_hosts(have, ranks) if len(have) == 1 else ""
    silent = [s for s in lacking if s.closed is False and s.last < first.started]
    dead = f", or {rank_names(silent)} had been killed by then (nothing more is in the recording, no end either)"
    counts = {s.rank: len({base_id(compile_.id) for compile_ in s.compiles}) for s in (*have, *lacking)}
    return Finding(
        ids=["rank-divergence"],
        category="cost",
        severity="medium" if seconds < NOTICEABLE else "high",
        title=f"{rank_names(have)}{where} {'compiles' if len(have) == 1 else 'compile'} {some(only)} "
        f"and {the_others(lacking)} do{'es' if len(lacking) == 1 else ''} not",
        file=first.file,
        line=first.line,
        function=first.function,
        cause=f"Ranks took different paths{dead if silent else ''}.{again}"
        + (
            f" While one compiles, the others wait in their next collective: up to {seconds:.1f} s here."
            if seconds
            else ""
        ),
        fix="Give all ranks inputs of the same shapes (pad or bucket, or mark_dynamic before the first compile), and keep "
        "branches on rank or data out of the compiled function.",
        gain=f"up to {seconds:.1f} s of waiting (the log does not time collectives)" if seconds else "",
        evidence=[
            *told_together(
                ranks, ((s, f"{count(counts[s.rank], 'compile id')}, {some(only)} among them") for s in have)
            ),
            *told_together(
                ranks, ((s, f"{count(counts[s.rank], 'compile id')}, none of {some(only)}") for s in lacking)
            ),
        ],
        cost=seconds,
    )


def _staggered_compiles(ranks: list[RankSummary]) -> list[Finding]:
    """The same compile on every rank, but not at the same time: each waits for the other in turn."""
    ranks = [summary for summary in ranks if summary.compiles and not summary.cut]
    if not comparable(ranks):
        return []
    tables = {summary.name: whole(summary.compiles) for summary in ranks}
    found: list[tuple[float, list[tuple[RankCompile, str]]]] = []
    for id_ in set.intersection(*(set(table) for table in tables.values())):
        rows = sorted(((table[id_], name) for name, table in tables.items()), key=lambda row: row[0].started)
        (first, _), (last, _) = rows[0], rows[-1]
        lost = union_seconds(c for c, _ in rows) - max(c.seconds for c, _ in rows)
        if lost >= NOTICEABLE and last.started >= first.started + first.seconds / 2:
            found.append((lost, rows))  # else they overlap: nobody waits for more than the slower one
    found.sort(key=lambda item: (-item[0], item[1][0][0].started))
    busy = {summary.name: Busy(summary.compiles) for summary in ranks} if found else {}
    findings = [_stagger(busy, lost, rows) for lost, rows in found[:_MOST]]
    if rest := found[_MOST:]:
        findings.append(
            Finding(
                ids=["rank-stagger"],
                category="cost",
                severity="high",
                title=f"{len(rest)} more compiles that the ranks made in different steps",
                cause="The ranks met the same changes at different steps, each compiling while the others waited.",
                fix=findings[0].fix,
                gain=f"up to {rest[0][0]:.1f} s for each",
                evidence=[
                    Evidence(kind="note", text=f"{rows[0][0].id}: up to {lost:.1f} s") for lost, rows in rest[:_MOST]
                ],
                cost=rest[0][0],
            )
        )
    return findings


def _stagger(busy: dict[str, Busy], lost: float, rows: list[tuple[RankCompile, str]]) -> Finding:
    """One compile, given by rank in order of time."""
    (first, early), (last, late) = rows[0], rows[-1]
    reason = next((c.reason for c, _ in rows if c.reason), "")
    shown = rows if len(rows) <= _MOST else [*rows[: _MOST // 2], *rows[-_MOST // 2 :]]
    evidence = [
        Evidence(
            kind="note",
            text=f"{name}: {c.id} began {c.started - first.started:+.1f} s, took {c.seconds:.1f} s"
            f"; the others waited up to {_longest_wait(busy, name, c):.1f} s"
            + (f"; because of {c.reason}" if c.reason else ""),
        )
        for c, name in shown
    ]
    if len(shown) < len(rows):
        evidence.insert(
            _MOST // 2, Evidence(kind="note", text=f"{count(len(rows) - len(shown), 'rank')} began between these")
        )
    return Finding(
        ids=["rank-stagger"],
        category="cost",
        severity="high",
        title=f"{early} compiled {first.id} {last.started - first.started:.1f} s before {late}",
        file=first.file,
        line=first.line,
        function=first.function,
        cause=(
            f"The ranks met the same change at different steps ({reason}): "
            if reason
            else "The ranks came to it at different times: "
        )
        + f"{early} compiled for {first.seconds:.1f} s and {late} for {last.seconds:.1f} s, each while the others waited "
        "in their collectives.",
        fix="Let all ranks see a new shape in the same step (bucket by step, not by rank), or mark the size dynamic before "
        "the first compile so that nobody recompiles."
        if reason
        else f"See what {late} does before it (loading that one rank does for all, say), and compile first, all ranks at once.",
        gain=f"up to {lost:.1f} s, had they compiled at the same time (the log does not time collectives)",
        evidence=evidence,
        cost=lost,
    )


def _longest_wait(busy: dict[str, Busy], name: str, compile_: RankCompile) -> float:
    """The most that any other rank can have waited (seconds) while ``name`` compiled this."""
    end = compile_.started + compile_.seconds
    return max(other.waited(compile_.started, end) for rank, other in busy.items() if rank != name)
