"""A training step with three graph breaks, each on a line of its own: a print, a branch on data, and a logger.

Record it with ``fxscope run samples/graph_breaks.py``.
"""

from __future__ import annotations

import logging

import torch
from torch import nn

logger = logging.getLogger(__name__)


class Block(nn.Module):
    """A linear layer that looks at its own activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale down what has grown too large."""
        y = torch.relu(self.linear(x))
        if y.abs().max() > 4.0:  # a branch on data: the graph ends here
            y = y / y.abs().max()
        return y


class Model(nn.Module):
    """Two blocks and a head."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = Block(width)
        self.second = Block(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One number per row."""
        x = self.first(x)
        print(f"mean after the first block: {x.mean():.3f}")  # a print of a value: the graph ends here
        x = self.second(x)
        logger.info("second block done")  # a call that Dynamo does not trace
        return self.head(x).squeeze(-1)


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = Model()
    step = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    target = torch.randn(32)
    for number in range(4):
        loss = (step(torch.randn(32, 64)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {number}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
