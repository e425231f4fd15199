"""A small transformer on two or more ranks: DDP, FSDP2, or functional collectives inside the compiled function.

    fxscope run -- torchrun --nproc-per-node 2 samples/parallel_transformer.py --parallel ddp --uneven
    fxscope ranks <the recording>

``--uneven`` gives rank 1 a longer sequence one step before the others, so it recompiles while they wait; ``--watch`` lets rank 1
alone print a value in the middle of its model, which breaks its graph. Runs on GPUs with NCCL where there is one for each rank, else
on CPUs with gloo.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, VOCABULARY = 256, 1000


class Block(nn.Module):
    """Attention and an MLP."""

    def __init__(self, watch: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.watch = watch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, WIDTH) to the same."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        if self.watch:
            print(f"norm {x.norm().item():.2f}")  # on rank 1 alone: its graph ends here
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, layers: int, watch: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(watch and number == layers - 1) for number in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, length) to logits."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def summed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A row-parallel linear layer: each rank holds a part of the inner dimension, and the parts are summed."""
    from torch.distributed._functional_collectives import all_reduce

    return torch.relu(all_reduce(x @ weight, "sum", dist.group.WORLD)) * 0.5


def main() -> None:
    """A few steps on each rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parallel", choices=["ddp", "fsdp2", "functional"], default="ddp")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--backend", default="inductor")
    args = parser.parse_args()
    local, world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= world
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if args.parallel == "functional":
        weight = torch.randn(64, 64, device=device)
        layer = torch.compile(summed, backend=args.backend)
        for step in range(args.steps):
            print(
                f"rank {rank} step {step}: {layer(torch.ones(8, 64, device=device), weight).mean().item():.4f}",
                flush=True,
            )
        dist.destroy_process_group()
        return
    model: nn.Module = Transformer(args.layers, args.watch and rank == 1).to(device)
    if args.parallel == "ddp":
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=2)
    else:
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    compiled = torch.compile(model, backend=args.backend, dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(args.steps):
        longer = args.uneven and (step > 2 or (step == 2 and rank == 1))
        tokens = torch.randint(VOCABULARY, (4, 96 if longer else 64), device=device)
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(compiled(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}: loss {loss.item():.3f}, {time.perf_counter() - began:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
