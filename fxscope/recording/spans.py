"""Many numbers in few words: the ranks of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 6  # spans that are written out; a reader looks for what is odd, and more hide it


def spans(numbers: Iterable[int], most: int = _MOST) -> str:
    """``0-2, 4, 7-999``; where there are more than ``most`` spans, the first ones and how many numbers are in the rest."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    parts = [", ".join(map(str, span)) if len(span) < 3 else f"{span[0]}-{span[-1]}" for span in found[:most]]
    rest = sum(map(len, found[most:]))
    return ", ".join(parts) + (f" and {rest} more" if rest else "")
