"""Graphs as a backend gets them; used by the tests of Triton kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx


def graph(function: Any, *args: torch.Tensor) -> torch.fx.GraphModule:
    """A function's ATen graph on fake tensors, whose output is a tuple."""
    gm = make_fx(function, tracing_mode="fake")(*args)
    out = gm.graph.output_node()
    if not isinstance(out.args[0], (tuple, list)):
        out.args = ((out.args[0],),)
        gm.recompile()
    return gm
