"""Why a cache missed: the part of the key that differs."""

from __future__ import annotations

from pathlib import Path

import pytest

import fxscope
from fxscope.diagnosis.caches import components_of, key_difference
from fxscope.diagnosis.compare import compare


def test_the_differing_part_is_named() -> None:
    first = ["[abc] gm: graph", "[d1] example_inputs[0]: shape=[4]", "[e] config[a]: 1", "[f] x: 1"]
    second = ["[abc] gm: graph", "[d2] example_inputs[0]: shape=[8]", "[e] config[a]: 1", "[f] y: 2"]
    assert key_difference(first, second) == [
        "example_inputs[0]: shape=[4] -> shape=[8]",
        "only the first has x: 1",
        "only the second has y: 2",
    ]
    assert key_difference(first, first) == []


def test_long_parts_show_where_they_differ() -> None:
    a, b = "x" * 5000 + "left" + "y" * 5000, "x" * 5000 + "right" + "y" * 5000
    (line,) = key_difference([f"[1] gm: {a}"], [f"[2] gm: {b}"])
    assert len(line) < 300
    assert "xleft" in line
    assert "xright" in line


def test_payloads_of_any_kind_are_read() -> None:
    assert components_of('{"key": "k", "components": ["[a] b: c"]}') == ("k", ["[a] b: c"])
    assert components_of("not json") == ("", [])
    assert components_of("[1]") == ("", [])


@pytest.mark.shared
def test_real_keys(shared: Path) -> None:
    recording = fxscope.open(shared / "traces" / "h200" / "resnet50")
    misses = [event for event in recording.cache_events if event.cache == "fx_graph"]
    keys = [components_of(recording.text(event.event)) for event in misses[:2]]
    lines = key_difference(keys[0][1], keys[1][1])
    assert any(line.startswith("example_inputs[0]: ") for line in lines)
    assert all(len(line) < 400 for line in lines)
    same = compare(recording, recording)
    assert same.cache_keys == {}
    assert (same.graph_breaks, same.recompiles, same.graphs) == ([], [], [])
