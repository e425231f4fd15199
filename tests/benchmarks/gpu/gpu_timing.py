"""Times of several calls, replayed in turn: clocks and temperature drift by more than the differences that are measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxscope.targets import replay


def in_turn(
    calls: Mapping[str, Callable[[int], Any]],
    launches: Mapping[str, int],
    rounds: int,
    failed: Callable[[str, Exception], None] | None = None,
) -> dict[str, float]:
    """Median seconds of one call of each, by replays of CUDA graphs; each round starts with another one.

    Args:
        calls: By name; each gets 0, 1, 2... and picks its inputs by that.
        launches: Calls in a graph, by name.
        failed: Told of what cannot be captured, which is then left out; without it, that is raised.
    """
    graphs = {}
    for name, call in calls.items():
        try:
            graphs[name] = _captured(call, launches[name])
        except Exception as error:
            if failed is None:
                raise
            failed(name, error)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for graph in graphs.values():  # warm: code in place, clocks up
        spent = 0.0
        while spent < 0.02:
            spent += max(replay.seconds(graph.replay), 1e-4)
    order = list(graphs)
    for at in range(rounds):
        for name in order[at % len(order) :] + order[: at % len(order)]:
            times[name].append(replay.seconds(graphs[name].replay) / launches[name])
    return {name: statistics.median(some) for name, some in times.items()}


def _captured(call: Callable[[int], Any], launches: int) -> torch.cuda.CUDAGraph:
    """A graph of some calls, which have run before; autograd's first backward within a capture can fail, its second does not."""
    call(0)
    try:
        return replay.capture(call, launches)
    except Exception:
        return replay.capture(call, launches)
