"""A forward that was taken apart, and the backward that AOTAutograd gives it, have eager's gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fxscope.passes.aten import decomposition_table


def _attention(**options: Any) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


def _masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.where(torch.arange(5) < 4, 0.0, float("-inf")).to(q.dtype).expand(5, 5)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)


# What has a second output that its backward reads.
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "attention": _attention(),
    "attention-causal": _attention(is_causal=True),
    "attention-masked": _masked,
    "layer_norm": lambda q, k, v: F.layer_norm(q, (8,), k[0, 0, 0], v[0, 0, 0]),
    "group_norm": lambda q, k, v: F.group_norm(q, 2, k[0, 0, 0, :2], v[0, 0, 0, :2]),
    "batch_norm": lambda q, k, v: F.batch_norm(q, None, None, k[0, 0, 0, :2], v[0, 0, 0, :2], training=True),
    "rms_norm": lambda q, k, v: F.rms_norm(q, (8,), k[0, 0, 0]),
    "cross_entropy": lambda q, k, v: F.cross_entropy(q[0, 0], torch.arange(5)) + (k * v).sum(),
}


@pytest.mark.parametrize(
    ("name", "table", "dtype"),
    [
        *((name, "core", torch.float32) for name in FUNCTIONS),
        *((name, "prims", torch.float64) for name in FUNCTIONS if name.startswith("attention")),
    ],
)
def test_gradients_are_eagers(name: str, table: str, dtype: torch.dtype) -> None:
    from torch._functorch.aot_autograd import aot_function, make_boxed_func

    function = FUNCTIONS[name]
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, 5, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    compiled = aot_function(
        function,
        fw_compiler=lambda graph, _: make_boxed_func(graph),
        decompositions=decomposition_table(table),
    )
    want, got = function(*inputs), compiled(*inputs)
    torch.testing.assert_close(got, want)
    weight = torch.randn_like(want)
    eager = torch.autograd.grad((want * weight).sum(), inputs, allow_unused=True)
    ours = torch.autograd.grad((got * weight).sum(), inputs, allow_unused=True)
    for one, other in zip(ours, eager, strict=True):
        torch.testing.assert_close(
            torch.zeros(()) if one is None else one, torch.zeros(()) if other is None else other, check_dtype=False
        )
