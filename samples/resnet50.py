"""ResNet-50, written out by hand: one training step, then evaluation, which makes a second graph.

Record it with ``fxscope run samples/resnet50.py``.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut; the output is four times as wide as ``width``."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * 4)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width * 4:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width * 4, 1, stride, bias=False), nn.BatchNorm2d(width * 4)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Residual block, [N, C, H, W] to [N, 4 * width, H / stride, W / stride]."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet50(nn.Module):
    """Deep Residual Learning for Image Recognition (He et al. 2015), table 1, column 50-layer.

    Args:
        blocks: Blocks per stage.
        classes: Number of classes.
    """

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        stages: list[nn.Module] = []
        inputs = 64
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            for number in range(count):
                stages.append(Bottleneck(inputs, width, 2 if stage and number == 0 else 1))
                inputs = width * 4
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images [N, 3, H, W]."""
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        return self.head(self.stages(x).mean((2, 3)))


def main() -> None:
    """One training step and one evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64, help="height and width of the images")
    parser.add_argument("--blocks", type=int, nargs=4, default=[3, 4, 6, 3], help="blocks per stage")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = ResNet50(tuple(arguments.blocks), classes=10).to(arguments.device)
    compiled = torch.compile(model)
    images = torch.randn(4, 3, arguments.size, arguments.size, device=arguments.device)
    labels = torch.arange(4, device=arguments.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = nn.functional.cross_entropy(compiled(images), labels)
    loss.backward()
    optimizer.step()
    print(f"training loss {loss.item():.2f}")
    model.eval()
    with torch.no_grad():
        print(f"evaluation: {tuple(compiled(images).shape)}")


if __name__ == "__main__":
    main()
