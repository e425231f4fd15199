"""Two sequences aligned: which element of one is which of the other, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

_EDITS = 400  # most insertions and deletions that are searched for before order is given up


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Index pairs of a longest common subsequence (Myers, "An O(ND) Difference Algorithm", 1986).

    Where the sequences differ in more than a few hundred places, the k-th of each key is paired with the k-th instead, so that
    the work stays linear.
    """
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    head = [(position, position) for position in range(start)]
    tail = [(len(a) - end + position, len(b) - end + position) for position in range(end)]
    middle = _myers(a[start : len(a) - end], b[start : len(b) - end])
    return head + [(one + start, other + start) for one, other in middle] + tail


def _myers(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(min(len(a) + len(b), _EDITS) + 1):
        trace.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if x >= len(a) and y >= len(b):
                return _backtrack(trace, len(a), len(b))
    return _kth(a, b)


def _backtrack(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(trace) - 1, -1, -1):
        furthest = trace[edits]
        diagonal = x - y
        down = diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        start_x = furthest[before] if edits else 0
        start_y = start_x - before if edits else 0
        while x > start_x and y > start_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
            if edits and x == (start_x if down else start_x + 1) and y == (start_y + 1 if down else start_y):
                break
        x, y = start_x, start_y
    return pairs[::-1]


def _kth(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for position in range(len(b) - 1, -1, -1):
        waiting[b[position]].append(position)
    return [(position, waiting[value].pop()) for position, value in enumerate(a) if waiting.get(value)]
