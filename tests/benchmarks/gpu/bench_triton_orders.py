"""Pointwise kernels over tensors in different orders: tiles, the same kernel in the order of what it writes, Inductor, eager.

    python tests/benchmarks/gpu/bench_triton_orders.py --out orders.json

GB/s of every input read once and every output written once; outputs are compared with eager's, bit by bit.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_cases import Case
from gpu_graphs import graph_of
from gpu_timing import in_turn


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.t() + y)


def keys(x: torch.Tensor) -> torch.Tensor:
    """The keys of an attention out of a product's result: batch, heads, depth, sequence."""
    return (x.permute(0, 2, 3, 1) * 0.5).contiguous()


def channels(x: torch.Tensor) -> torch.Tensor:
    """Images with channels first to channels last."""
    return torch.relu(x).contiguous(memory_format=torch.channels_last)


BF, F32 = torch.bfloat16, torch.float32
CASES: list[tuple[Callable[..., torch.Tensor], list[tuple[int, ...]], torch.dtype]] = [
    *((transposed, [(8192, 8192)], dtype) for dtype in (BF, F32)),
    (transposed, [(16384, 4095)], BF),
    *((added, [(4096, 16384), (16384, 4096)], dtype) for dtype in (BF, F32)),
    *((keys, shapes, dtype) for shapes in ([(8, 48, 4, 64)], [(16, 2048, 32, 128)]) for dtype in (BF, F32)),
    (channels, [(64, 256, 56, 56)], BF),
]


def measure(function: Callable[..., torch.Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype) -> dict[str, Any]:
    """Microseconds of each contestant."""
    from fxscope.targets.triton.executable import TritonExecutable, tuned

    device = torch.device("cuda", 0)
    total = 2 * max(math.prod(shape) for shape in shapes) * dtype.itemsize
    sets = [[torch.randn(shape, device=device).to(dtype) for shape in shapes] for _ in range(8 if total < 2**24 else 3)]
    graph, _ = graph_of(Case(function, 0, 0, dtype, "", 0), sets[0])
    choose = tuned(device)
    chosen: list[Any] = []

    def kept(nest: Any, write: Any, name: str, values: Any) -> Any:
        chosen.append(choose(nest, write, name, values))
        return chosen[-1]

    ours = TritonExecutable(graph, sets[0], kept, device, False)
    plain = TritonExecutable(
        graph, sets[0], lambda nest, *rest: choose(getattr(nest, "plain", nest), *rest), device, False
    )
    calls: dict[str, Any] = {
        "tiles": ours,
        "in order": plain,
        "inductor": torch.compile(function, dynamic=False),
        "eager": function,
    }
    wanted = function(*sets[0])
    right = torch.equal(ours(*sets[0])[0], wanted) and torch.equal(plain(*sets[0])[0], wanted)
    runs = {name: (lambda i, c=call: c(*sets[i % len(sets)])) for name, call in calls.items()}
    times = in_turn(runs, dict.fromkeys(runs, 200 if total < 2**24 else 20), 15)
    moved = sum(x.numel() for x in sets[0]) + wanted.numel()
    torch._dynamo.reset()
    kind = {BF: "bf16", F32: "fp32"}[dtype]
    return {
        "case": f"{function.__name__} {kind} {' '.join('x'.join(map(str, shape)) for shape in shapes)}",
        "right": right,
        "chosen": chosen[0].text(),
        **{name: round(seconds * 1e6, 2) for name, seconds in times.items()},
        "GB/s": round(moved * dtype.itemsize / times["tiles"] / 1e9),
    }


def main() -> None:
    """Print a line per case, write JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="orders.json", type=Path)
    options = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(measure(*case))
        print(rows[-1], flush=True)
        options.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
