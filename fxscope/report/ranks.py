"""Ranks side by side: the document that ``fxscope ranks --json`` prints, and the rows that the reports show."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec

from fxscope.diagnosis.findings import Finding
from fxscope.recording.rank_summary import RankSummary, summarize
from fxscope.recording.spans import spans

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


_MOST = 8  # processes of which each gets a line of its own
_WIDEST = 18  # letters that name the largest group, so that the table fits a terminal


class RanksDocument(msgspec.Struct, kw_only=True):
    """Every process of a run, and what is wrong between its ranks.

    Attributes:
        notes: What is odd about the set of logs: ranks without one, logs cut off, several runs.
    """

    schema: Literal["fxscope.ranks/1"] = "fxscope.ranks/1"
    ranks: list[RankSummary]
    findings: list[Finding]
    notes: list[str]


class RankRow(msgspec.Struct, kw_only=True):
    """One process of a run.

    Attributes:
        seconds: Sum over its compiles, in seconds.
        collectives: Collective operations that its graphs start, waits not counted.
        run: Of several runs in one folder, one after the other, the number of its own, counted from 1.
    """

    rank: int | None
    process: int | None
    compiles: int
    seconds: float
    recompiles: int
    graph_breaks: int
    failures: int
    collectives: int
    run: int = 1


class RanksReport(msgspec.Struct, kw_only=True):
    """The ranks of a run, in short.

    Attributes:
        findings: What differs between them, worst first, as ``fxscope ranks`` and ``fxscope diagnose`` tell it.
        notes: What is odd about the set of logs.
    """

    ranks: list[RankRow]
    findings: list[Finding]
    notes: list[str]


def rank_row(summary: RankSummary) -> RankRow:
    """One process in numbers."""
    return RankRow(
        rank=summary.rank,
        process=summary.process,
        compiles=sum(compile_.status in ("ok", "empty") for compile_ in summary.compiles),
        seconds=sum(compile_.seconds for compile_ in summary.compiles),
        recompiles=summary.recompiles,
        graph_breaks=sum(summary.break_sites.values()),
        failures=summary.failures,
        collectives=sum(op != "wait_tensor" for _, op in summary.collectives),
    )


def rank_rows(summaries: list[RankSummary]) -> list[RankRow]:
    """All processes in numbers, each with its run."""
    from fxscope.diagnosis.rank_runs import split_runs

    run_of = {id(summary): number for number, run in enumerate(split_runs(summaries), 1) for summary in run}
    rows = [rank_row(summary) for summary in summaries]
    for summary, row in zip(summaries, rows, strict=True):
        row.run = run_of.get(id(summary), 1)
    return rows


def ranks_report(recording: Recording) -> RanksReport | None:
    """The ranks of one recording; None where it has fewer than two."""
    if len(recording.session.ranks) < 2:
        return None
    from fxscope.diagnosis.rank_runs import rank_notes
    from fxscope.diagnosis.ranks import compare_ranks  # few recordings have ranks

    summaries = summarize(recording)
    return RanksReport(
        ranks=rank_rows(summaries),
        findings=compare_ranks(summaries, str(recording.path)),
        notes=rank_notes(summaries),
    )


def rank_table(rows: list[RankRow], *, everything: bool = False) -> list[str]:
    """The rows as lines of text, under a heading; more than a few that are alike share a line."""
    titles = ("", "compiles", "seconds", "recompiles", "breaks", "failures", "collectives")
    several = Counter((row.run, row.rank) for row in rows)
    runs = max((row.run for row in rows), default=1)
    groups: dict[tuple[object, ...], list[RankRow]] = {}
    for place, row in enumerate(rows):
        alone = everything or len(rows) <= _MOST
        numbers = (row.compiles, row.recompiles, row.graph_breaks, row.failures, row.collectives)
        key = (row.run, row.rank is None, *numbers)
        groups.setdefault((place,) if alone else key, []).append(row)
    largest = max(groups.values(), key=len, default=[])
    cells = [
        (
            (f"run {group[0].run}: " if runs > 1 else "")
            + _label(group, several, rest=group is largest and len(groups) > 1),
            str(group[0].compiles),
            _range([row.seconds for row in group]),
            str(group[0].recompiles),
            str(group[0].graph_breaks),
            str(group[0].failures),
            str(group[0].collectives),
        )
        for group in sorted(groups.values(), key=lambda group: (group[0].run, -len(group)))
    ]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (titles, *cells)
    ]


def note_lines(summaries: list[RankSummary]) -> list[str]:
    """What is odd about the set of logs, then what could not be read of them; what several logs share is said once."""
    from fxscope.diagnosis.rank_runs import rank_notes

    groups: dict[str, list[RankSummary]] = {}
    for summary in summaries:
        for text in summary.bare_notes:
            groups.setdefault(text, []).append(summary)
    lines = rank_notes(summaries)
    for text, members in groups.items():
        ranks = {summary.rank for summary in members if summary.rank is not None}
        named = [f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"] if ranks else []
        named += [summary.log for summary in members if summary.rank is None][:3]
        lines.append(f"{', '.join(named)}: {text}")
    return lines


def _label(group: list[RankRow], several: Counter[tuple[int, int | None]], *, rest: bool) -> str:
    first = group[0]
    if len(group) == 1:
        if first.rank is None:
            return "no rank" if first.process is None else f"process {first.process}"
        return f"rank {first.rank}" + (
            f", process {first.process}" if several[first.run, first.rank] > 1 and first.process is not None else ""
        )
    if first.rank is None:
        return f"{len(group)} processes of no rank"
    ranks = {row.rank for row in group if row.rank is not None}
    text = f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks, 2)}"
    if rest and len(text) > _WIDEST:
        text = f"{len(ranks)} other ranks"  # the reader looks for those that are odd
    return text + (f", {len(group)} processes" if len(ranks) < len(group) else "")


def _range(numbers: list[float]) -> str:
    low, high = f"{min(numbers):.1f}", f"{max(numbers):.1f}"
    return low if low == high else f"{low}-{high}"
