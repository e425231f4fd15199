"""Many numbers in few words: the ranks of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST = 6  # spans that are written out; a reader looks for what is odd, and more hide it


def spans(numbers: Iterable[int], most: int = _MOST) -> str:
    """``0-2, 4, 7-999``; where there are more than ``most`` spans, the first ones and how many numbers are in the rest."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return written(found, most)


def gaps(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each span of numbers from 0 on that are missing below the largest one."""
    found = []
    following = 0
    for number in sorted(set(numbers)):
        if number > following:
            found.append((following, number - 1))
        following = number + 1
    return found


def written(pairs: Sequence[tuple[int, int]], most: int = _MOST) -> str:
    """As ``spans``, of the first and the last number of each span."""
    parts = [
        f"{first}-{last}" if last > first + 1 else ", ".join(map(str, range(first, last + 1)))
        for first, last in pairs[:most]
    ]
    rest = sum(last - first + 1 for first, last in pairs[most:])
    return ", ".join(parts) + (f" and {rest} more" if rest else "")
