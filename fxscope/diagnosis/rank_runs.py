"""Which processes are compared: one of each rank, and of a folder with several runs each run by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.diagnosis.rank_time import rank_names
from fxscope.recording.spans import gaps, written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxscope.recording.rank_summary import RankSummary


def split_runs(summaries: list[RankSummary]) -> list[list[RankSummary]]:
    """The processes of ranks by run, in order of time: torchrun that restarts its workers, or two jobs, fill one folder.

    A run begins where a rank begins anew after every process so far has made its last compile. One of a single rank is
    none: that is a worker which the rank started late. Processes without a rank are left out, those that compiled nothing
    belong to the last run.
    """
    joined: list[list[RankSummary]] = []
    for run in _begun(summaries):
        if joined and min(len({s.rank for s in run}), len({s.rank for s in joined[-1]})) < 2:
            joined[-1] += run
        else:
            joined.append(run)
    untimed = [s for s in summaries if s.rank is not None and not s.compiles]
    if untimed:
        joined = [*joined[:-1], [*(joined[-1] if joined else []), *untimed]]
    return joined


def _begun(summaries: list[RankSummary]) -> list[list[RankSummary]]:
    """The processes of ranks that compiled something, by where a rank begins anew, those of a single rank too."""
    timed = sorted((s for s in summaries if s.rank is not None and s.compiles), key=lambda s: s.started)
    found: list[list[RankSummary]] = []
    end = 0.0
    for summary in timed:
        if not found or (summary.started > end and summary.rank in {other.rank for other in found[-1]}):
            found.append([])
        found[-1].append(summary)
        end = max(end, summary.ended)
    return found


def main_processes(run: Iterable[RankSummary]) -> list[RankSummary]:
    """One process of each rank: where it has workers that compile too, the one that compiled most, and of these the longest."""
    chosen: dict[int, RankSummary] = {}
    for summary in run:
        if summary.rank is not None:
            best = chosen.get(summary.rank)
            chosen[summary.rank] = summary if best is None else max(best, summary, key=_work)
    return [chosen[rank] for rank in sorted(chosen)]


def _work(summary: RankSummary) -> tuple[int, float]:
    return len(summary.compiles), sum(compile_.seconds for compile_ in summary.compiles)


def _places(run: list[RankSummary]) -> dict[int, set[str]]:
    """Rank to the machines that have a process of this number; where no log names one, to the folders that have one at a time."""
    places: dict[int, set[str]] = {}
    for summary in run:
        if summary.rank is not None and summary.host:
            places.setdefault(summary.rank, set()).add(summary.host)
    hosted = set(places)
    for part in _begun(run):
        folders: dict[int, set[str]] = {}
        for summary in part:
            if summary.rank is not None and summary.rank not in hosted:
                folder = summary.log.replace("\\", "/").rpartition("/")[0]
                folders.setdefault(summary.rank, set()).add(folder or ".")
        for rank, names in folders.items():
            places[rank] = max(places.get(rank, set()), names, key=len)
    return places


def rank_notes(summaries: list[RankSummary]) -> list[str]:
    """What is odd about the set of logs itself: ranks without one, logs cut off, several runs, one rank's name on all logs."""
    ranks = {summary.rank for summary in summaries if summary.rank is not None}
    notes = []
    runs = split_runs(summaries)
    if len(runs) > 1:
        notes.append(f"{len(runs)} runs, one after the other (a restart, or two jobs): each is compared by itself")
    if len(ranks) > 1 and (missing := gaps(ranks)):
        one = len(missing) == 1 and missing[0][0] == missing[0][1]
        notes.append(f"nothing was logged by rank{'' if one else 's'} {written(missing)}")
    if cut := [summary for summary in summaries if summary.cut and summary.rank is not None]:
        notes.append(f"{rank_names(cut)}: unreadable or cut off, so nothing is made of what is not in there")
    for number, run in enumerate(runs, 1):
        if open_ := [summary for summary in main_processes(run) if summary.closed is False]:
            where = f"run {number}: " if len(runs) > 1 else ""
            notes.append(f"{where}{rank_names(open_)}: killed, or still running: the recording has no end")
    for number, run in enumerate(runs, 1):
        places = _places(run)
        if twice := {rank for rank, names in places.items() if len(names) > 1}:
            names = sorted(set().union(*(places[rank] for rank in twice)))
            notes.append(
                f"{f'run {number}: ' if len(runs) > 1 else ''}{rank_names(s for s in run if s.rank in twice)}: the same number "
                f"in {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}, and one process of each number is compared; "
                "where these are ranks of one job, number them through (RANK, or rank_N in the names of the logs)"
            )
    logs = {summary.log for summary in summaries}
    if len(ranks) == 1 and len(logs) > 1:
        notes.append(
            f"all {len(logs)} logs say rank {min(ranks)}: where they are ranks, name them "
            "dedicated_log_torch_trace_rank_N_*.log and they are compared"
        )
    return notes
