"""Ranks side by side: the document that ``fxscope ranks --json`` prints, and the rows that the reports show."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from fxscope.diagnosis.findings import Finding
from fxscope.recording.rank_summary import RankSummary, summarize

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


class RanksDocument(msgspec.Struct, kw_only=True):
    """Every process of a run, and what is wrong between its ranks."""

    schema: str = "fxscope.ranks/1"
    ranks: list[RankSummary]
    findings: list[Finding]


class RankRow(msgspec.Struct, kw_only=True):
    """One process of a run.

    Attributes:
        seconds: Sum over its compiles, in seconds.
        collectives: Collective operations that its graphs start, waits not counted.
    """

    rank: int | None
    process: int | None
    compiles: int
    seconds: float
    recompiles: int
    graph_breaks: int
    failures: int
    collectives: int


class RanksReport(msgspec.Struct, kw_only=True):
    """The ranks of a run, in short.

    Attributes:
        findings: What differs between them, worst first, as ``fxscope ranks`` and ``fxscope diagnose`` tell it.
    """

    ranks: list[RankRow]
    findings: list[Finding]


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


def ranks_report(recording: Recording) -> RanksReport | None:
    """The ranks of one recording; None where it has fewer than two."""
    if len(recording.session.ranks) < 2:
        return None
    from fxscope.diagnosis.ranks import compare_ranks  # few recordings have ranks

    summaries = summarize(recording)
    return RanksReport(ranks=[rank_row(summary) for summary in summaries], findings=compare_ranks(summaries))


def rank_table(rows: list[RankRow]) -> list[str]:
    """The rows as lines of text, under a heading."""
    titles = ("", "compiles", "seconds", "recompiles", "breaks", "failures", "collectives")
    several = Counter(row.rank for row in rows)
    cells = [
        (
            f"process {row.process}"
            if row.rank is None
            else f"rank {row.rank}" + (f", process {row.process}" if several[row.rank] > 1 else ""),
            str(row.compiles),
            f"{row.seconds:.1f}",
            str(row.recompiles),
            str(row.graph_breaks),
            str(row.failures),
            str(row.collectives),
        )
        for row in rows
    ]
    first = max((len(row[0]) for row in cells), default=0)
    return [
        row[0].ljust(first)
        + "  "
        + "  ".join(cell.rjust(len(title)) for cell, title in zip(row[1:], titles[1:], strict=True))
        for row in (titles, *cells)
    ]
