"""Graphs as a backend gets them; used by the tests of Triton kernels."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

# tests/gpu runs some of these tests on a card: FXSCOPE_TEST_DEVICE=cuda.
DEVICE = torch.device(os.environ.get("FXSCOPE_TEST_DEVICE", "cpu"), 0)
INTERPRETED = DEVICE.type == "cpu"


def on_device(x: torch.Tensor) -> torch.Tensor:
    """The tensor on the device of the tests, with its strides and where it starts: all of its storage is moved."""
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return whole.to(DEVICE).as_strided(x.shape, x.stride(), x.storage_offset())


def graph(function: Any, *args: torch.Tensor) -> torch.fx.GraphModule:
    """A function's ATen graph on fake tensors, whose output is a tuple."""
    gm = make_fx(function, tracing_mode="fake")(*args)
    out = gm.graph.output_node()
    if not isinstance(out.args[0], (tuple, list)):
        out.args = ((out.args[0],),)
        gm.recompile()
    return gm
