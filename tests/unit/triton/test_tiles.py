"""Tensors in different orders in one pointwise kernel: tiles in every size agree with float64, and plain kernels where a tile would not pay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")
from fxscope.targets.triton.executable import Compiled, first_candidate
from tests.unit.triton.every import run_every
from tests.unit.triton.traced import INTERPRETED, graph, on_device
from tests.unit.triton.tuning import PretendedCard, kernel

CPU = torch.device("cpu")
HALF = torch.bfloat16


def forms(function: Any, *shapes: tuple[int, ...]) -> list[str]:
    """The formulation that each kernel of a function has first, written for a card."""
    with FakeTensorMode():
        args = [torch.empty(shape) for shape in shapes]
        sources = Compiled(graph(function, *args), args, first_candidate, CPU, False, bind=False).sources
    return [source.schedule.form for source in sources]


def transposed(x, y):
    return torch.tanh(x.t()) + y


def biased(x, y, across, along):
    """Vectors along both dimensions of the tile."""
    return (x.t() * across + y) * along[:, None]


def heads(x, scale):
    """A product's result as an attention's keys; a number per batch and head beside it."""
    keys = x.view(2, 19, 3, 10).permute(0, 2, 3, 1)
    return (keys * scale[:, :, None, None]).contiguous() - 1


def both(x):
    """One read, two orders written."""
    y = torch.relu(x)
    return y * 2, y.transpose(1, 2).contiguous()


def counted(x):
    """Coordinates of a tile."""
    return (
        x.t().contiguous()
        + torch.arange(21, dtype=x.dtype, device=x.device) * torch.arange(35, dtype=x.dtype, device=x.device)[:, None]
    )


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (transposed, [(70, 33), (33, 70)]),
        (transposed, [(64, 32), (32, 64)]),
        (biased, [(21, 35), (35, 21), (21,), (35,)]),
        (heads, [(38, 30), (2, 3)]),
        (both, [(3, 20, 12)]),
    ],
)
def test_every_tile_agrees_with_float64(function: Any, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    args = tuple(on_device(torch.randn(shape).to(dtype)) for shape in shapes)
    ran = run_every(function, args)
    assert sum(option.form == "tiles" for option in ran) >= 2
    assert any(option.form == "flat" for option in ran)


def test_coordinates_within_a_tile() -> None:
    assert sum(option.form == "tiles" for option in run_every(counted, (on_device(torch.randn(21, 35)),))) >= 2


def test_large_and_small_transposes_are_tiles_and_what_is_in_one_order_is_not() -> None:
    assert forms(transposed, (4096, 1024), (1024, 4096)) == ["tiles"]
    assert forms(transposed, (16, 8), (8, 16)) == ["tiles"]
    assert forms(lambda x, y: x.t() + y.t(), (300, 200), (300, 200)) == ["flat"]
    assert forms(lambda x, y: x + y, (300, 200), (1, 200)) == ["flat"]


def test_a_tile_needs_eight_elements_along_both_dimensions_and_neighbours_to_read() -> None:
    assert forms(transposed, (300, 4), (4, 300)) == ["flat"]
    assert forms(transposed, (4, 300), (300, 4)) == ["flat"]
    assert forms(lambda x, y: x[:, ::2] * y, (40, 80), (40, 40)) == ["flat"]


def test_a_small_table_in_another_order_is_read_across() -> None:
    assert forms(lambda x, table: x + table.t(), (64, 32, 48), (48, 32)) == ["flat"]
    assert forms(lambda x, table: x + table.t(), (2, 32, 48), (48, 32)) == ["tiles"]


def test_a_small_tile_takes_part_in_a_launch_of_several() -> None:
    def function(x, y, z):
        return x.t().contiguous() + 1, y.to(torch.bfloat16), z.view(8, 6, 4, 16).permute(0, 2, 3, 1).contiguous()

    assert forms(function, (48, 64), (256,), (48, 64)) == ["several"]
    run_every(function, tuple(on_device(torch.randn(shape)) for shape in ((48, 64), (256,), (48, 64))))


@pytest.mark.skipif(not INTERPRETED, reason="the pretended card interprets")
def test_the_tuner_compares_tiles_with_the_plain_kernel() -> None:
    made = kernel(transposed, torch.randn(40, 70), torch.randn(70, 40))
    flat = next(option for option in made.options if option.form == "flat")
    assert made.options[0].form == "tiles"
    assert made.measure(PretendedCard({flat: 1e-6}))[0] == flat
    assert set(made.said) == set(made.options)
    assert [why for _, why in made.said.values() if why] == []
