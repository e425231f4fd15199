"""Ranks on one clock: whole compiles, how long the others can have waited for one, and whether their times compare at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fxscope.recording.rank_summary import RankCompile, RankSummary

if TYPE_CHECKING:
    from collections.abc import Iterable


def rank_names(ranks: Iterable[RankSummary]) -> str:
    """``ranks 0, 2``."""
    numbers = sorted({summary.rank for summary in ranks if summary.rank is not None})
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))


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


def waited(rank: RankSummary, start: float, end: float) -> float:
    """Seconds of ``[start, end]`` in which this rank compiled nothing itself: the most it can have waited for another."""
    busy = 0.0
    position = start
    for compile_ in sorted(rank.compiles, key=lambda c: c.started):
        begin, stop = max(compile_.started, position), min(compile_.started + compile_.seconds, end)
        if stop > begin:
            busy += stop - begin
            position = stop
    return max(0.0, end - start - busy)


def some(items: list[str], most: int = 6) -> str:
    """The first few of a list, and how many more."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def comparable(ranks: list[RankSummary]) -> bool:
    """Whether the ranks' times share one clock: their spans all overlap. Logs of different runs, or clocks far apart, do not."""
    return max(summary.started for summary in ranks) < min(summary.ended for summary in ranks)


def union_seconds(compiles: Iterable[RankCompile]) -> float:
    """Seconds in which at least one of these compiles."""
    total = position = 0.0
    for compile_ in sorted(compiles, key=lambda c: c.started):
        end = compile_.started + compile_.seconds
        total += max(0.0, end - max(position, compile_.started))
        position = max(position, end)
    return total


def longest_wait(ranks: list[RankSummary], name: str, compile_: RankCompile) -> float:
    """The most that any other rank can have waited (seconds) while ``name`` compiled this."""
    return max(waited(o, compile_.started, compile_.started + compile_.seconds) for o in ranks if o.name != name)
