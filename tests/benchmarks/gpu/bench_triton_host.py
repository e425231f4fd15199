"""What a launch costs on the host, and how long a compile takes without tuning.

    python tests/benchmarks/gpu/bench_triton_host.py

Prints medians of 20 rounds of 500 calls, interleaved: Triton's own launch of the same kernel, and our compiled island, output
allocation and checks of the inputs included.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx


def chain(x: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """Twenty pointwise ops."""
    for _ in range(4):
        x = torch.tanh(torch.relu(x + b) * 0.5 - r) + x
    return x


def island(function: Callable[..., Any], *args: torch.Tensor) -> torch.fx.GraphModule:
    """The ATen graph of a function, its result in a tuple."""
    gm = make_fx(function, tracing_mode="fake")(*args)
    gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
    gm.recompile()
    return gm


def medians(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds a call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(20):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(500):
                call()
            times[name].append((time.perf_counter() - begin) / 500 * 1e6)
    return {name: round(statistics.median(some), 2) for name, some in times.items()}


def main() -> None:
    """Measure and print one JSON object."""
    os.environ["FXSCOPE_TRITON_AUTOTUNE"] = "0"
    begin = time.perf_counter()
    importlib.import_module("triton.compiler")
    imported = time.perf_counter() - begin
    from fxscope.targets.triton import module
    from fxscope.targets.triton.target import TritonTarget

    x, b, r = (
        torch.randn(64, 1024, device="cuda"),
        torch.randn(1024, device="cuda"),
        torch.randn(64, 1024, device="cuda"),
    )
    gm = island(chain, x, b, r)
    seconds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRITON_CACHE_DIR"] = os.environ["FXSCOPE_CACHE_DIR"] = folder
            begin = time.perf_counter()
            executable = TritonTarget().compile(gm, (x, b, r))
            executable(x, b, r)
            torch.cuda.synchronize()
            seconds.append(round(time.perf_counter() - begin, 3))
            ours = executable
    source = ours.latest.sources[0]  # type: ignore[attr-defined]
    kernel = module.load(source, interpreted=False)
    out = torch.empty_like(x)
    by_name = dict(zip([m.name for m in ours.latest.plan.inputs], (x, b, r), strict=True))  # type: ignore[attr-defined]
    args = [by_name.get(m.name, out) for m in source.args]
    launch = kernel[source.grid]
    result = medians(
        {
            "triton": lambda: launch(*args, num_warps=source.schedule.warps, launch_pdl=source.overlap),
            "triton and torch.empty": lambda: kernel[source.grid](
                *args[:-1], torch.empty_like(x), num_warps=source.schedule.warps, launch_pdl=source.overlap
            ),
            "ours": lambda: ours(x, b, r),
            "torch.relu": lambda: torch.relu(x),
        }
    )
    print(
        json.dumps(
            {
                "microseconds": result,
                "compile_seconds_of_20_ops": seconds,
                "import_seconds": round(imported, 3),
                "overlap": source.overlap,
                "nodes": len(gm.graph.nodes),
            }
        )
    )


if __name__ == "__main__":
    main()
