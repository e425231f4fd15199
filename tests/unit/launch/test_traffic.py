"""The traffic model, by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx import symbolic_trace

from fxscope.launch.traffic import predicted_seconds, traffic
from fxscope.passes.aten import to_aten
from fxscope.passes.cost import Machine

N = 64 * 256
BYTES = 4 * N


def model(function, *inputs, **options):
    return traffic(to_aten(symbolic_trace(function), list(inputs), decompositions="inductor"), **options)


def test_relu_of_a_sum_moves_5n_and_3n():
    x, b = torch.randn(64, 256), torch.randn(64, 256)
    found = model(lambda x, b: torch.relu(x + b), x, b)
    assert (found.unfused_bytes, found.fused_bytes, found.floor_bytes) == (5 * BYTES, 3 * BYTES, 3 * BYTES)
    assert (found.unfused_launches, found.fused_launches) == (2, 1)
    assert found.flops == 2 * N


def test_a_bias_is_read_once():
    found = model(lambda x, b: torch.relu(x + b), torch.randn(64, 256), torch.randn(256))
    assert found.fused_bytes == 2 * BYTES + 1024


def test_a_longer_chain_moves_no_more_when_fused():
    x, r = torch.randn(64, 256), torch.randn(64, 256)
    found = model(lambda x, r: torch.tanh(torch.sigmoid(torch.relu(x) * 0.5 + r)) + x, x, r)
    assert found.fused_bytes == 3 * BYTES
    assert found.unfused_bytes == (2 + 2 + 3 + 2 + 2 + 3) * BYTES
    assert (found.unfused_launches, found.fused_launches) == (6, 1)


@pytest.mark.parametrize(
    ("function", "passes"),
    [(lambda x: F.softmax(x, -1), 3), (lambda x: F.layer_norm(x, (256,)), 2), (lambda x: x.sum(-1), 1)],
)
def test_reductions_of_one_or_more_passes(function, passes):
    x = torch.randn(64, 256)
    kept, spilled = model(function, x), model(function, x, on_chip=16)
    assert [group.passes for group in kept.groups] == [passes]
    assert kept.groups[0].row_bytes == 1024
    out = 64 * 4 if passes == 1 else BYTES
    assert kept.fused_bytes == BYTES + out
    assert spilled.fused_bytes == passes * BYTES + out


def test_a_matrix_product_is_a_kernel_of_its_own():
    x, w = torch.randn(64, 256), torch.randn(256, 256)
    found = model(lambda x, w: torch.relu(x @ w) + 1, x, w)
    assert found.fused_launches == 2
    assert found.fused_bytes == (BYTES + 256 * 256 * 4 + BYTES) + 2 * BYTES
    assert found.flops == 2 * 64 * 256 * 256 + 2 * N
    assert found.intensity == pytest.approx(found.flops / found.fused_bytes)


def test_views_move_nothing():
    found = model(lambda x: x.view(-1).view(256, 64).t().unsqueeze(0), torch.randn(64, 256))
    assert (found.unfused_bytes, found.fused_bytes, found.fused_launches) == (0, 0, 0)


def test_an_empty_graph():
    found = model(lambda x: x, torch.randn(2))
    assert found.unfused_bytes == found.flops == 0
    assert found.intensity == 0


def test_the_prediction_takes_the_longer_of_bytes_and_flops():
    machine = Machine(bandwidth=1e9, flops=1e10, launch=1e-5, origin="by hand")
    assert predicted_seconds(1000_000, 0, 1, machine) == pytest.approx(1.01e-3)
    assert predicted_seconds(0, 10**8, 2, machine) == pytest.approx(1.002e-2)


def test_a_view_that_leaves_is_written_once_in_the_shape_it_has_in_memory():
    x = torch.randn(64, 256)
    assert model(lambda x: (x + 1).unsqueeze(0).expand(8, 64, 256), x).fused_bytes == 2 * BYTES
    assert model(lambda x: (x + 1).unsqueeze(0).expand(8, 64, 256).clone(), x).fused_bytes > 8 * BYTES


def test_chains_that_share_nothing_are_two_kernels():
    x, y = torch.randn(64, 256), torch.randn(64, 256)
    found = model(lambda x, y: (torch.relu(x) + 1, torch.sin(y) * 2), x, y)
    assert (found.fused_launches, found.fused_bytes) == (2, 4 * BYTES)
