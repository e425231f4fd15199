"""The NPU target: instruction set, compiler, executor, cycle model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxscope.targets.npu.device import NpuTarget


def target(machine: str | None = None) -> NpuTarget:
    """The NPU as a Target (entry point ``fxscope.targets``: npu).

    Args:
        machine: A preset or a TOML file; None takes ``FXSCOPE_NPU`` from the environment, else gemmini-16x16.
    """
    from fxscope.targets.npu.device import NpuTarget

    return NpuTarget(machine)
