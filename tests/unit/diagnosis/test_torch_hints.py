"""Hints of torch that our advice warns of, and a setting that it names: what they do, measured on torch 2.11 to 2.15."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import nn

from tests.versions_of_torch import TORCH

pytestmark = pytest.mark.timeout(300)
PENDING = r"PendingUnbackedSymbolNotFound|Pending unbacked symbols"


def graphs(function: Any, *arguments: Any, **settings: Any) -> int:
    """How many graphs one call of a function makes under the settings of a hint."""
    found: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        found.append(graph)
        return graph

    torch._dynamo.reset()
    with torch._dynamo.config.patch(settings):
        torch.compile(function, backend=backend)(*arguments)
    torch._dynamo.reset()
    return len(found)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_setting_for_hooks_raises_where_backward_is_outside() -> None:
    net = nn.Linear(3, 3)
    net.register_full_backward_hook(lambda module, before, after: None)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(compiled_autograd=True), pytest.raises(AssertionError, match="BackwardState"):
        torch.compile(lambda x: net(x) * 2, backend="aot_eager")(torch.ones(2, 3)).sum().backward()
    torch._dynamo.reset()


def test_a_setting_for_rnns_raises_in_training_with_an_lstm() -> None:
    lstm = nn.LSTM(3, 3)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        fast = torch.compile(lambda x: lstm(x * 2)[0] * 1, backend="aot_eager")
        with torch.no_grad():
            fast(torch.ones(2, 2, 3))
        with pytest.raises(AssertionError, match="tensors_saved_with_vc_check"):
            fast(torch.ones(2, 2, 3)).sum().backward()
    torch._dynamo.reset()


def test_captured_numbers_crash_in_numpy() -> None:
    def pad(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.pad(x.numpy(), (0, 2)))

    with pytest.raises(Exception, match=PENDING):
        graphs(pad, torch.ones(3), capture_scalar_outputs=True)


def test_captured_shapes_lose_a_function_that_loops_over_them() -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        out = x * 0
        for row in x.nonzero():
            out[row] += 1
        return out

    x = torch.tensor([0.0, 1.0, 2.0])
    assert graphs(count, x) > 0
    assert graphs(count, x, capture_dynamic_output_shape_ops=True) == 0


def test_captured_numbers_do_not_help_a_branch_or_a_row() -> None:
    def decide(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y * 2 if y.sum().item() > 3 else y * 3

    def rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[i] for i in index]).sum()

    assert graphs(decide, torch.ones(3), capture_scalar_outputs=True) > 1
    picked = torch.ones(4, 2), torch.tensor([0, 2])
    if TORCH < (2, 14):
        assert graphs(rows, *picked, capture_scalar_outputs=True) > 1
    else:
        with pytest.raises(Exception, match=PENDING):
            graphs(rows, *picked, capture_scalar_outputs=True)


def test_without_its_fast_path_an_encoder_is_one_graph_where_a_size_is_dynamic() -> None:
    layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=8, batch_first=True)
    net = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).eval()
    x = torch.ones(3, 4, 8)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        assert graphs(net, x) == (0 if TORCH < (2, 13) else 1)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert graphs(net, x) == 1
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
