"""A module that counts its calls: eight recompiles, then the recompile limit, and every later call runs eager.

Record it with ``fxscope run samples/limit_hit.py``.
"""

from __future__ import annotations

import torch
from torch import nn


class Warmup(nn.Module):
    """Multiplies by a factor that grows with the number of calls, kept as a plain int."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """An int attribute of a module is guarded by value."""
        self.calls += 1
        return x * (self.calls / 12)


def main() -> None:
    """Twelve calls; the default limit is eight."""
    torch.compiler.reset()
    compiled = torch.compile(Warmup())
    x = torch.ones(4)
    for _ in range(12):
        print(f"{compiled(x)[0].item():.3f}")


if __name__ == "__main__":
    main()
