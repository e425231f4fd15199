"""Four graph breaks and the rewrite in tensor terms of each: a branch, an item, a print, a list of masked rows.

fxscope run samples/break_rewrites.py            # four functions, each cut into pieces
fxscope run samples/break_rewrites.py --fixed    # the same results, one graph each
"""

from __future__ import annotations

import sys

import torch


def clipped(x: torch.Tensor) -> torch.Tensor:
    """A branch on data."""
    y = x * 2
    if y.abs().max() > 4:
        y = y / 4
    return y + 1


def clipped_fixed(x: torch.Tensor) -> torch.Tensor:
    """Both sides are computed, the choice is made on the device."""
    y = x * 2
    return torch.where(y.abs().max() > 4, y / 4, y) + 1


def scaled(x: torch.Tensor) -> torch.Tensor:
    """A value that leaves the graph as a Python number."""
    peak = x.abs().max().item()
    return x / peak


def scaled_fixed(x: torch.Tensor) -> torch.Tensor:
    """It stays a tensor and broadcasts."""
    peak = x.abs().max()
    return x / peak


def watched(x: torch.Tensor) -> torch.Tensor:
    """A print in the middle."""
    y = torch.sin(x)
    print("mean", round(float(y.mean()), 3))
    return y.cos()


def watched_fixed(x: torch.Tensor) -> torch.Tensor:
    """The print is left out while compiling."""
    y = torch.sin(x)
    if not torch.compiler.is_compiling():
        print("mean", round(float(y.mean()), 3))
    return y.cos()


def positive_mean(x: torch.Tensor) -> torch.Tensor:
    """A boolean mask: the number of rows depends on data."""
    return x[x > 0].mean()


def positive_mean_fixed(x: torch.Tensor) -> torch.Tensor:
    """A masked sum over the fixed shape."""
    mask = x > 0
    return torch.where(mask, x, 0).sum() / mask.sum()


PAIRS = [
    (clipped, clipped_fixed),
    (scaled, scaled_fixed),
    (watched, watched_fixed),
    (positive_mean, positive_mean_fixed),
]


def main(*, fixed: bool = False) -> None:
    """Run each function twice, compiled."""
    torch.manual_seed(0)
    x = torch.randn(64)
    for bad, good in PAIRS:
        compiled = torch.compile(good if fixed else bad, backend="eager")
        print(bad.__name__, round(float((compiled(x) + compiled(x)).sum()), 4))


if __name__ == "__main__":
    main(fixed="--fixed" in sys.argv[1:])
