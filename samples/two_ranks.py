"""Two ranks that each compile the same step and sum their gradients.

Record it with ``fxscope run -- torchrun --nproc-per-node 2 samples/two_ranks.py``.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A loss."""
    return torch.tanh(x @ weight).square().mean()


def main() -> None:
    """Three steps on each rank."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    weight = torch.ones(16, 16, requires_grad=True)
    compiled = torch.compile(step)
    for _ in range(3):
        loss = compiled(torch.randn(8, 16), weight)
        loss.backward()
        dist.all_reduce(weight.grad)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, gradient norm {weight.grad.norm().item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
