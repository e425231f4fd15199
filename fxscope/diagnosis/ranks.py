"""What is wrong between ranks: one that compiles while the others wait, schedules that differ, waits that are missing."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fxscope.diagnosis.findings import Evidence, Finding, worst_first
from fxscope.diagnosis.rank_time import (
    comparable,
    id_order,
    longest_wait,
    rank_names,
    some,
    union_seconds,
    waited,
    whole,
)
from fxscope.recording.rank_summary import RankSummary, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fxscope.recording.recording import Recording

# Ranks never start the same compile at the same instant; below this (seconds) nobody notices the wait.
NOTICEABLE = 0.5
# What torch logs by itself; of the rest, a rank without it only did not ask for it.
_ALWAYS_LOGGED = frozenset({"rank-collectives", "rank-cache"})
_VERIFY = "fxscope ranks {log}"


def rank_findings(recording: Recording) -> list[Finding]:
    """Findings about the ranks of one recording; empty where it has fewer than two."""
    if len(recording.session.ranks) < 2:
        return []
    return compare_ranks(summarize(recording))


def compare_ranks(summaries: Iterable[RankSummary]) -> list[Finding]:
    """Findings about the ranks among these processes, worst first. Processes without a rank are left out."""
    ranks = _main_processes(summaries)
    if len(ranks) < 2:
        return []
    findings = [
        *_diverging_compiles(ranks),
        *_staggered_compiles(ranks),
        *_diverging_breaks(ranks),
        *_diverging(
            ranks,
            "rank-collectives",
            "wrong",
            "high",
            "collective operations",
            lambda s: tuple(op for _, op in s.collectives),
            "Ranks that start different collectives, or the same ones in another order, hang or exchange the wrong tensors.",
            "Make every rank trace the same graph: no branch on the rank or on data inside the compiled region.",
        ),
        *_diverging(
            ranks,
            "rank-execution-order",
            "wrong",
            "high",
            "execution order of graphs",
            lambda s: tuple(s.execution),
            "Ranks run their graphs in different orders, so their collectives meet the wrong partners.",
            "Let all ranks take the same path through the step.",
        ),
        *_diverging(
            ranks,
            "rank-tensor-meta",
            "wrong",
            "medium",
            "tensor shapes, strides or dtypes",
            lambda s: tuple(sorted(s.tensors.items())),
            "The same graph has other shapes, strides or dtypes on some ranks.",
            "Pad or bucket the inputs so that all ranks see the same shapes, or mark the size dynamic before the first compile.",
        ),
        *_diverging(
            ranks,
            "rank-cache",
            "cost",
            "low",
            "cache hits and misses",
            lambda s: tuple(s.caches),
            "A rank that misses the cache compiles while those that hit it wait.",
            "Share one cache directory between ranks (TORCHINDUCTOR_CACHE_DIR, or the remote cache) and warm it once.",
        ),
        *_missing_waits(ranks),
        *_imbalance(ranks),
    ]
    return worst_first(findings)


def _main_processes(summaries: Iterable[RankSummary]) -> list[RankSummary]:
    """One process of each rank: where it has workers that compile too, the one that compiled most, and of these the first."""
    chosen: dict[int, RankSummary] = {}
    for summary in summaries:
        if summary.rank is None:
            continue
        best = chosen.get(summary.rank)
        if best is None or (-len(summary.compiles), summary.started) < (-len(best.compiles), best.started):
            chosen[summary.rank] = summary
    return [chosen[rank] for rank in sorted(chosen)]


def _diverging_compiles(ranks: list[RankSummary]) -> list[Finding]:
    tables = {summary.rank: whole(summary.compiles) for summary in ranks}
    ids = sorted({id_ for table in tables.values() for id_ in table}, key=id_order)
    missing: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for id_ in ids:
        have = tuple(sorted(rank for rank, table in tables.items() if rank is not None and id_ in table))
        if len(have) < len(tables):
            missing[have].append(id_)
    found = []
    for have, only in missing.items():
        first_rank = next(summary for summary in ranks if summary.rank == have[0])
        first = tables[have[0]][only[0]]
        others = [summary for summary in ranks if summary.rank not in have]
        seconds = 0.0
        if comparable(ranks):
            made = [tables[have[0]][id_] for id_ in only]
            seconds = max(sum(waited(other, c.started, c.started + c.seconds) for c in made) for other in others)
        again = f"; it compiled again because of: {first.reason}" if first.reason else ""
        having = [summary for summary in ranks if summary.rank in have]
        verb = "compiles" if len(have) == 1 else "compile"
        found.append(
            Finding(
                ids=["rank-divergence"],
                category="cost",
                severity="medium" if seconds < NOTICEABLE else "high",
                title=f"{rank_names(having)} {verb} {some(only)} and {rank_names(others)} do{'es' if len(others) == 1 else ''} not",
                file=first.file,
                line=first.line,
                function=first.function,
                cause=f"Ranks took different paths{again}."
                + (
                    f" While one compiles, the others wait in their next collective: up to {seconds:.1f} s here."
                    if seconds
                    else ""
                ),
                fix="Give all ranks inputs of the same shapes (pad or bucket, or mark_dynamic before the first compile), and keep "
                "branches on rank or data out of the compiled function.",
                gain=f"up to {seconds:.1f} s of waiting (the log does not time collectives)" if seconds else "",
                verify=_VERIFY.format(log=first_rank.log),
                evidence=[
                    Evidence(
                        kind="note",
                        text=f"{summary.name}: {len(tables[summary.rank])} compile ids, {len(set(only) & tables[summary.rank].keys())} of {some(only)}",
                    )
                    for summary in ranks
                ],
                cost=seconds,
            )
        )
    return found


def _staggered_compiles(ranks: list[RankSummary]) -> list[Finding]:
    """The same compile on every rank, but not at the same time: each waits for the other in turn."""
    if not comparable(ranks):
        return []
    tables = {summary.name: whole(summary.compiles) for summary in ranks}
    common = set.intersection(*(set(table) for table in tables.values()))
    found = []
    for id_ in sorted(common, key=lambda i: min(table[i].started for table in tables.values())):
        rows = sorted(((table[id_], name) for name, table in tables.items()), key=lambda row: row[0].started)
        (first, early), (last, late) = rows[0], rows[-1]
        lost = union_seconds(c for c, _ in rows) - max(c.seconds for c, _ in rows)
        if lost < NOTICEABLE or last.started < first.started + first.seconds / 2:
            continue  # they overlap: nobody waits for more than the slower one
        reason = next((c.reason for c, _ in rows if c.reason), "")
        found.append(
            Finding(
                ids=["rank-stagger"],
                category="cost",
                severity="high",
                title=f"{early} compiled {id_} {last.started - first.started:.1f} s before {late}",
                file=first.file,
                line=first.line,
                function=first.function,
                cause=f"The ranks met the same change at different steps{f' ({reason})' if reason else ''}: "
                f"{early} compiled for {first.seconds:.1f} s and {late} for {last.seconds:.1f} s, each while the others waited "
                "in their collectives.",
                fix="Let all ranks see a new shape in the same step (bucket by step, not by rank), or mark the size dynamic before "
                "the first compile so that nobody recompiles.",
                gain=f"up to {lost:.1f} s, had they compiled at the same time (the log does not time collectives)",
                verify=_VERIFY.format(log=ranks[0].log),
                evidence=[
                    Evidence(
                        kind="note",
                        text=f"{name}: {id_} began {c.started - first.started:+.1f} s, took {c.seconds:.1f} s"
                        f"; the others waited up to {longest_wait(ranks, name, c):.1f} s"
                        + (f"; because of {c.reason}" if c.reason else ""),
                    )
                    for c, name in rows
                ],
                cost=lost,
            )
        )
    return found


def _diverging_breaks(ranks: list[RankSummary]) -> list[Finding]:
    found = []
    kinds: dict[str, list[str]] = defaultdict(list)
    for text in sorted({text for summary in ranks for text in summary.break_sites}):
        place, _, kind = text.partition(" ")
        kinds[place].append(kind)
    for place, what in kinds.items():
        counts = [(s, sum(s.break_sites.get(f"{place} {kind}", 0) for kind in what)) for s in ranks]
        have, others = [s for s, count in counts if count], [s for s, count in counts if not count]
        if not others:
            continue
        file, _, line = place.rpartition(":")
        found.append(
            Finding(
                ids=["rank-breaks", "rank-divergence"],
                category="breaks",
                severity="medium",
                title=f"{rank_names(have)} {'breaks' if len(have) == 1 else 'break'} the graph at {place}, "
                f"{rank_names(others)} {'does' if len(others) == 1 else 'do'} not",
                file=file,
                line=int(line) if line.isdigit() else 0,
                cause=f"{'; '.join(what)}: the line runs, or breaks, on some ranks only, so their graphs and collectives differ.",
                fix="Take the condition out of the compiled function, or let every rank run the same code there.",
                verify=_VERIFY.format(log=ranks[0].log),
                evidence=[Evidence(kind="note", text=f"{s.name}: {count} breaks there") for s, count in counts],
            )
        )
    return found


def _diverging(
    ranks: list[RankSummary],
    id_: str,
    category: str,
    severity: str,
    what: str,
    key: Callable[[RankSummary], tuple[object, ...]],
    cause: str,
    fix: str,
) -> list[Finding]:
    """One finding where ``key`` is not the same on all ranks that have it; a rank whose log lacks it says nothing."""
    groups: dict[tuple[object, ...], list[RankSummary]] = defaultdict(list)
    for summary in ranks:
        value = key(summary)
        if value or id_ in _ALWAYS_LOGGED:
            groups[value].append(summary)
    if len(groups) < 2:
        return []
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0].rank or 0))
    usual = ordered[0][0]
    evidence = []
    for value, members in ordered:
        at = next(
            (i for i, (a, b) in enumerate(zip(usual, value, strict=False)) if a != b), min(len(usual), len(value))
        )
        differs = (
            "" if value == usual else f"; differs first at {at + 1}: {value[at] if at < len(value) else 'nothing more'}"
        )
        evidence.append(Evidence(kind="note", text=f"{rank_names(members)}: {len(value)} {what}{differs}"))
    return [
        Finding(
            ids=[id_],
            category=category,  # type: ignore[arg-type]
            severity=severity,  # type: ignore[arg-type]
            title=f"{what} differ between ranks: " + " | ".join(rank_names(members) for _, members in ordered),
            cause=cause,
            fix=fix,
            verify=_VERIFY.format(log=ranks[0].log),
            evidence=evidence,
        )
    ]


def _missing_waits(ranks: list[RankSummary]) -> list[Finding]:
    lacking = [summary for summary in ranks if summary.missing_waits]
    if not lacking:
        return []
    return [
        Finding(
            ids=["missing-wait"],
            category="wrong",
            severity="medium",
            title=f"{sum(sum(s.missing_waits.values()) for s in lacking)} collectives without a wait_tensor on {rank_names(lacking)}",
            cause="A functional collective whose result no wait_tensor follows may be read before it has arrived.",
            fix="Use the result through the functional collective's own tensor, or wait for it in the graph that starts it.",
            verify=_VERIFY.format(log=ranks[0].log),
            evidence=[
                Evidence(kind="note", text=f"{s.name} {id_}: {count} started, not waited for")
                for s in lacking
                for id_, count in s.missing_waits.items()
            ],
        )
    ]


def _imbalance(ranks: list[RankSummary]) -> list[Finding]:
    """Slowest and fastest rank per graph: by the calls that were timed or, without them, by Inductor's own estimate."""
    evidence = []
    worst = 0.0
    for id_ in sorted({id_ for s in ranks for id_ in (*s.call_seconds, *s.runtimes)}, key=id_order):
        measured = sorted((s.call_seconds[id_], s.calls.get(id_, 0), s.name) for s in ranks if s.call_seconds.get(id_))
        modelled = sorted((s.runtimes[id_] / 1e9, 1, s.name) for s in ranks if s.runtimes.get(id_))
        times, kind = (measured, "measured") if len(measured) > 1 else (modelled, "modelled by Inductor")
        if len(times) < 2:
            continue
        (low, _, fastest), (high, calls, slowest) = times[0], times[-1]
        lost = (high - low) * calls
        # Timed calls are noisy, and a rank's first one is slow for reasons of its own: count only what adds up.
        if high > 1.1 * low and (kind != "measured" or lost > NOTICEABLE):
            worst = max(worst, lost)
            evidence.append(
                Evidence(
                    kind="note",
                    text=f"{id_}: {slowest} {high * 1e6:.0f} us, {fastest} {low * 1e6:.0f} us a call ({kind})",
                )
            )
    if not evidence:
        return []
    return [
        Finding(
            ids=["rank-imbalance"],
            category="cost",
            severity="low",
            title=f"{len(evidence)} graph{'s run' if len(evidence) > 1 else ' runs'} longer on some ranks",
            cause="The same graph has more work on some ranks, so the others wait for them every step.",
            fix="Balance the work: same batch and sequence lengths on each rank.",
            verify=_VERIFY.format(log=ranks[0].log),
            evidence=evidence,
            cost=worst,
        )
    ]
