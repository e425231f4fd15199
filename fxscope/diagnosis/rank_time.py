"""Ranks on one clock: whole compiles, how long the others can have waited for one, and whether their times compare at all."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from fxscope.recording.metrics import union_seconds as union_of
from fxscope.recording.rank_summary import RankCompile, RankSummary
from fxscope.recording.spans import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def rank_names(ranks: Iterable[RankSummary]) -> str:
    """``ranks 0-2, 7``."""
    numbers = {summary.rank for summary in ranks if summary.rank is not None}
    return ("rank " if len(numbers) == 1 else "ranks ") + spans(numbers)


def the_others(ranks: Sequence[RankSummary]) -> str:
    """Ranks named beside those that differ from them: by their number where they are many."""
    return rank_names(ranks) if len(ranks) < 5 else f"the other {len(ranks)} ranks"


def on_hosts(members: Iterable[RankSummary], ranks: Iterable[RankSummary]) -> str:
    """`` on node052``; "" where the logs do not say, or there is one machine only."""
    here = sorted({summary.host for summary in members if summary.host})
    several = len({summary.host for summary in ranks if summary.host}) > 1
    return f" on {some(here, 3)}" if here and several else ""


def base_id(id_: str) -> str:
    """A compile id without its attempt: restarts differ between ranks without harm."""
    return id_.split("_")[0]


def id_order(id_: str) -> list[int]:
    """Sort key that puts 0/10 after 0/9."""
    return [int(number) for number in re.findall(r"\d+", id_)]


def whole(compiles: Iterable[RankCompile]) -> dict[str, RankCompile]:
    """The last attempt of each id, with the time of all its attempts."""
    made: dict[str, RankCompile] = {}
    for compile_ in compiles:
        before = made.get(base_id(compile_.id))
        made[base_id(compile_.id)] = RankCompile(
            id=base_id(compile_.id),
            function=compile_.function,
            file=compile_.file,
            line=compile_.line,
            status=compile_.status,
            started=before.started if before else compile_.started,
            seconds=compile_.seconds + (before.seconds if before else 0.0),
            reason=compile_.reason or (before.reason if before else ""),
        )
    return made


class Busy:
    """When one rank compiled, for many questions: a cluster asks a million."""

    def __init__(self, compiles: Iterable[RankCompile]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._before: list[float] = []  # seconds of the spans before each
        total = 0.0
        for compile_ in sorted(compiles, key=lambda c: c.started):
            end = compile_.started + compile_.seconds
            if self._ends and compile_.started <= self._ends[-1]:
                total += max(0.0, end - self._ends[-1])
                self._ends[-1] = max(self._ends[-1], end)
                continue
            self._before.append(total)
            self._starts.append(compile_.started)
            self._ends.append(end)
            total += compile_.seconds

    def waited(self, start: float, end: float) -> float:
        """Seconds of ``[start, end]`` in which it compiled nothing itself: the most it can have waited for another."""
        return max(0.0, end - start - (self._until(end) - self._until(start)))

    def _until(self, moment: float) -> float:
        """Seconds of compiling before a moment."""
        place = bisect_left(self._starts, moment) - 1
        if place < 0:
            return 0.0
        return self._before[place] + min(moment, self._ends[place]) - self._starts[place]


def some(items: list[str], most: int = 6) -> str:
    """The first few of a list, and how many more."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def comparable(ranks: Iterable[RankSummary]) -> bool:
    """Whether the ranks' times share one clock: their spans all overlap. Logs of different runs, or clocks far apart, do not.

    A rank whose log is cut off has no span of which this could be asked.
    """
    timed = [summary for summary in ranks if summary.compiles and not summary.cut]
    return len(timed) > 1 and max(summary.started for summary in timed) < min(summary.ended for summary in timed)


def union_seconds(compiles: Iterable[RankCompile]) -> float:
    """Seconds in which at least one of these compiles."""
    return union_of([(compile_.started, compile_.started + compile_.seconds) for compile_ in compiles])
