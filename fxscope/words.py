"""Numbers with their nouns, as every report, message and view says them."""

from __future__ import annotations


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 graph``, ``2 graphs``, ``0 passes``; ``plural`` where the noun forms it otherwise."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {plural or noun + ('es' if noun.endswith('ss') else 's')}"
