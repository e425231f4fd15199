"""Numbers with their nouns."""

from __future__ import annotations

from fxscope.words import count


def test_one_is_one_and_others_are_many() -> None:
    assert [count(number, "graph") for number in (0, 1, 2)] == ["0 graphs", "1 graph", "2 graphs"]
    assert count(2, "pass") == "2 passes"
    assert (count(1, "launch", "launches"), count(3, "launch", "launches")) == ("1 launch", "3 launches")
