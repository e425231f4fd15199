"""What ranks have that should be the same: breaks, collectives and their order, shapes, caches, versions, run times."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.rank_time import id_order, on_hosts, rank_names, the_others
from fxscope.words import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fxscope.recording.rank_summary import RankSummary

# What torch logs by itself; of the rest, a rank without it only did not ask for it.
_ALWAYS_LOGGED = frozenset({"rank-collectives", "rank-cache"})
_SITE = re.compile(r"(.*?:\d+) (.*)", re.DOTALL)  # the file's name may hold blanks
_MOST = 12  # groups of ranks that are told one by one


def told_together(ranks: list[RankSummary], texts: Iterable[tuple[RankSummary, str]]) -> list[Evidence]:
    """A line for each text, with the ranks of which it is true; the machine of a rank that stands alone."""
    groups: dict[str, list[RankSummary]] = defaultdict(list)
    for summary, text in texts:
        groups[text].append(summary)
    lines = [
        f"{rank_names(members)}{on_hosts(members, ranks) if len(members) < 4 else ''}: {text}"
        for text, members in list(groups.items())[:_MOST]
    ]
    if len(groups) > _MOST:
        lines.append(f"and {len(groups) - _MOST} more groups of ranks")
    return [Evidence(kind="note", text=line) for line in lines]


def diverging_records(ranks: list[RankSummary]) -> list[Finding]:
    """Collectives, order of execution, shapes, caches and versions of torch that are not the same on all ranks."""
    return [
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
        *_versions(ranks),
    ]


def diverging_breaks(ranks: list[RankSummary]) -> list[Finding]:
    """Lines at which some ranks break the graph and others do not."""
    found = []
    kinds: dict[str, list[str]] = defaultdict(list)
    for text in sorted({text for summary in ranks for text in summary.break_sites}):
        found_site = _SITE.match(text)
        place, kind = found_site.groups() if found_site is not None else (text, "")
        kinds[place].append(kind)
    for place, what in kinds.items():
        counts = [(s, sum(s.break_sites.get(f"{place} {kind}", 0) for kind in what)) for s in ranks]
        have, others = [s for s, times in counts if times], [s for s, times in counts if not times and not s.cut]
        if not others:
            continue
        file, _, line = place.rpartition(":")
        found.append(
            Finding(
                ids=["rank-breaks", "rank-divergence"],
                category="breaks",
                severity="medium",
                title=f"{rank_names(have)} {'breaks' if len(have) == 1 else 'break'} the graph at {place}, "
                f"{the_others(others)} {'does' if len(others) == 1 else 'do'} not",
                file=file,
                line=int(line) if line.isdecimal() else 0,
                cause=f"{'; '.join(what)}: the line runs, or breaks, on some ranks only, so their graphs and collectives differ.",
                fix="Take the condition out of the compiled function, or let every rank run the same code there.",
                evidence=told_together(ranks, ((s, f"{count(times, 'break')} there") for s, times in counts)),
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
    """One finding where ``key`` is not the same on all ranks that have it; a rank whose log lacks it says nothing.

    Nor does one whose log is cut off, as long as what it has is how the others begin.
    """
    groups: dict[tuple[object, ...], list[RankSummary]] = defaultdict(list)
    for summary in sorted(ranks, key=lambda s: s.cut):
        value = key(summary)
        if summary.cut and any(other[: len(value)] == value for other in groups):
            continue
        if value or id_ in _ALWAYS_LOGGED:
            groups[value].append(summary)
    if len(groups) < 2:
        return []
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0].rank or 0))
    usual = ordered[0][0]
    texts: list[tuple[RankSummary, str]] = []
    for value, members in ordered:
        at = next(
            (i for i, (a, b) in enumerate(zip(usual, value, strict=False)) if a != b), min(len(usual), len(value))
        )
        differs = (
            "" if value == usual else f"; differs first at {at + 1}: {value[at] if at < len(value) else 'nothing more'}"
        )
        texts += [(member, f"{len(value)} {what}{differs}") for member in members]
    return [
        Finding(
            ids=[id_],
            category=category,  # type: ignore[arg-type]
            severity=severity,  # type: ignore[arg-type]
            title=f"{what} differ between ranks: {_groups(ordered)}",
            cause=cause,
            fix=fix,
            evidence=told_together(ranks, texts),
        )
    ]


def _groups(ordered: list[tuple[tuple[object, ...], list[RankSummary]]], most: int = 4) -> str:
    shown = " | ".join(rank_names(members) for _, members in ordered[:most])
    return shown + (f" | {len(ordered) - most} more groups" if len(ordered) > most else "")


def _versions(ranks: list[RankSummary]) -> list[Finding]:
    groups: dict[tuple[object, ...], list[RankSummary]] = defaultdict(list)
    for summary in ranks:
        if summary.torch:
            groups[summary.torch,].append(summary)
    if len(groups) < 2:
        return []
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0].rank or 0))
    return [
        Finding(
            ids=["rank-torch"],
            category="wrong",
            severity="medium",
            title=f"ranks run different versions of torch: {_groups(ordered)}",
            cause="Other versions trace, fuse and cache differently: graphs, collectives and results of the ranks need not agree.",
            fix="Start every rank from the same environment or container image.",
            evidence=told_together(ranks, ((s, f"torch {s.torch}") for _, members in ordered for s in members)),
        )
    ]


def missing_waits(ranks: list[RankSummary]) -> list[Finding]:
    """Collectives whose result nothing waits for."""
    lacking = [summary for summary in ranks if summary.missing_waits and not summary.cut]
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
            evidence=told_together(
                ranks,
                (
                    (s, f"{id_}: {count} started, not waited for")
                    for s in lacking
                    for id_, count in s.missing_waits.items()
                ),
            ),
        )
    ]


def imbalance(ranks: list[RankSummary], noticeable: float) -> list[Finding]:
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
        if high > 1.1 * low and (kind != "measured" or lost > noticeable):
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
            evidence=evidence,
            cost=worst,
        )
    ]
