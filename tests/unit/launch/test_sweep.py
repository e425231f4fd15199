"""A sweep over sizes: two regimes, checked at every size, and what a graph does not allow."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from fxscope.launch.sweep import plot, regimes, scale_first_axis, sweep
from fxscope.passes.cost import Machine
from fxscope.targets.reference import Eager, ReferenceExecutable

MACHINE = Machine(bandwidth=1e10, flops=1e11, launch=1e-6, origin="by hand")


def graph():
    torch.manual_seed(0)
    return symbolic_trace(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).eval()), [torch.randn(4, 8)]


def test_regimes_and_their_sentence():
    fixed, rate, cross = regimes([(10**k, 0.01 + 10**k / 1e7) for k in range(3, 9)])
    assert fixed == pytest.approx(0.01, rel=0.05)
    assert rate == pytest.approx(10, rel=0.01)
    assert cross == pytest.approx(1e5, rel=0.1)
    fixed, rate, cross = regimes([(10, 1.0), (3_000_000, 1.5)])  # never out of the first regime: bytes by time
    assert (fixed, rate, cross) == (1.0, pytest.approx(2.0), None)

    def make(size):
        return symbolic_trace(lambda x: torch.relu(x + 1)), [torch.randn(size)]

    found = sweep(make, [1000, 10, 3_000_000], ["eager", Eager()], MACHINE, seconds=0.01)
    assert [point.size for point in found.points] == [10, 1000, 3_000_000]
    assert found.points[0].bytes == 80
    assert "whatever the size" in found.sentence
    picture = plot(found)
    assert "traffic" in picture
    assert max(map(len, picture.splitlines())) <= 80


def test_a_sweep_grows_the_first_axis_and_notes_what_does_not_fit():
    gm, inputs = graph()
    found = sweep(scale_first_axis(gm, inputs, [0]), [1, 6], ["eager"], MACHINE, seconds=0.01)
    assert [point.size for point in found.points] == [1, 6]
    stuck = symbolic_trace(lambda x: x.view(4, 8).relu())
    found = sweep(scale_first_axis(stuck, inputs, [0]), [4, 5], ["eager"], MACHINE, seconds=0.01)
    assert [point.size for point in found.points] == [4]
    assert found.notes[0].startswith("size 5:")


class WrongWhenLarge(Eager):
    """As a kernel whose tail is not masked: right for small sizes."""

    name = "inductor"  # gets the whole graph

    def compile(self, island, example_inputs):
        def call(x):
            result = island(x)
            return result + 0.1 if len(x) > 5 else result

        return ReferenceExecutable(call, 1, [])


def test_every_size_is_checked_and_a_wrong_executor_not_timed_there():
    gm, inputs = graph()
    found = sweep(scale_first_axis(gm, inputs, [0]), [4, 8], ["eager", WrongWhenLarge()], MACHINE, seconds=0.01)
    assert [sorted(point.ms) for point in found.points] == [["eager", "inductor"], ["eager"]]
    assert found.points[0].max_rel_err["inductor"] < 1e-5
    assert [note.split(":")[0] for note in found.notes] == ["size 8"]
    assert "inductor is wrong and not timed: relative error" in found.notes[0]
