"""A small network of convolutions, batch norms, pointwise ops and a softmax, in evaluation: something to fold and partition.

fxscope run -o conv.fxscope samples/conv_net.py
fxscope passes conv.fxscope --graph 0/0 --pipeline conv-bn-fold
fxscope bench conv.fxscope --graph 0/0 --executors eager,inductor,npu
"""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Convolution, batch norm, ReLU, and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) to the same."""
        return torch.relu(self.norm(self.conv(x)) + x)


class ConvNet(nn.Module):
    """A stem, two blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 3, height, width) to probabilities (batch, 10)."""
        x = torch.relu(self.norm(self.stem(x)))
        x = self.blocks(x).mean(dim=(2, 3))
        return torch.softmax(self.head(x), dim=-1)


def main() -> None:
    """One batch, evaluated."""
    torch.manual_seed(0)
    model = ConvNet().eval()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):  # statistics as after some training, so that folding changes numbers
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
            nn.init.uniform_(norm.weight, 0.5, 1.5)
    compiled = torch.compile(model)
    with torch.no_grad():
        for _ in range(3):
            probabilities = compiled(torch.randn(4, 3, 32, 32))
    print("sums", [round(float(value), 4) for value in probabilities.sum(-1)])


if __name__ == "__main__":
    main()
