"""The Triton target: generated fused kernels for pointwise chains and row reductions."""

from __future__ import annotations

from typing import Any


def target() -> Any:
    """The target (entry point ``fxscope.targets``); torch is imported here, Triton when something is compiled."""
    from fxscope.targets.triton.target import TritonTarget

    return TritonTarget()
