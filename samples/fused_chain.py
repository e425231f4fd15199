"""A chain of pointwise ops, at several sizes: why fusion pays, and from which size on.

    fxscope run -o chain.fxscope samples/fused_chain.py
    fxscope bench chain.fxscope --graph 0/0 --executors eager,inductor

Unfused, relu(x + b) moves 5n elements (x+b: read x, read b, write; relu: read, write); fused it moves 3n with a full-size b. Small tensors
pay for launches instead, and there fusion saves one launch in two.
"""

from __future__ import annotations

import torch


def chain(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Four pointwise ops."""
    return torch.tanh(torch.relu(x + b) * 0.5) + x


def main() -> None:
    """Each size is a call; automatic dynamic shapes make it two graphs, not five."""
    compiled = torch.compile(chain)
    for size in (64, 256, 1024, 4096):
        x, b = torch.randn(64, size), torch.randn(64, size)
        error = (compiled(x, b) - chain(x, b)).abs().max().item()
        print(f"{size:6d} columns: largest error {error:.1e}")


if __name__ == "__main__":
    main()
