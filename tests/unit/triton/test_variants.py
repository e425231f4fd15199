"""One compiled island, called with inputs of several shapes, from several threads."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import Schedule
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device


class Interrupted(TritonExecutable):
    """Another thread calls it with other inputs whenever this one has said which variant is the latest."""

    others: tuple[torch.Tensor, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "latest" and self.others and threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=self, args=self.others)
            thread.start()
            thread.join()


def test_threads_that_come_with_the_same_inputs_compile_once() -> None:
    """Both would tune, too, on one card at a time."""
    x = on_device(torch.arange(300.0))
    meeting = threading.Barrier(2)
    chosen: list[str] = []

    def choose(nest: Nest, write: Any, name: str, values: Any) -> Schedule:
        chosen.append(name)
        if threading.current_thread() is not threading.main_thread():
            with contextlib.suppress(threading.BrokenBarrierError):  # nobody else comes: that is what is tested
                meeting.wait(1)
        return first_candidate(nest, write, name, values)

    double = TritonExecutable(graph(lambda x: x * 2, x), (x,), choose, DEVICE, INTERPRETED)
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(double(x[:70])[0])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(chosen) == 2
    assert all(torch.equal(got, x[:70] * 2) for got in results)
    assert len(results) == 3


def test_threads_get_the_variant_of_their_own_inputs() -> None:
    small, large = on_device(torch.arange(5.0)), on_device(torch.arange(700.0))
    double = Interrupted(graph(lambda x: x * 2, large), (large,), first_candidate, DEVICE, INTERPRETED)
    double(small)
    double(large)
    double.others = (large,)
    (got,) = double(small)
    assert torch.equal(got, small * 2)
