"""What a launch costs on the host, and how long a compile takes without tuning.

    python tests/benchmarks/gpu/bench_triton_host.py

Prints medians of 20 rounds of 500 calls, interleaved: Triton's own launch of the same kernel, and our compiled island, output
allocation and checks of the inputs included. Seconds of a compile without tuning, on empty caches, are until its result is there:
three in a row in this process, the target made just before; and the first one of a fresh process, by ``torch.compile`` (what its
backend does is counted, Dynamo's tracing is not) and by a target that was made before the graph was traced. Triton hashes its own
files once per process, in a thread that starts when the target is made. Imports are not counted.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
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


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the chain."""
    shapes = ((64, 1024), (1024,), (64, 1024))
    return tuple(torch.randn(shape, device="cuda") for shape in shapes)  # type: ignore[return-value]


def first(way: str) -> float:
    """Seconds of the first compile of this process: ``backend``, or ``target`` made before the graph is traced."""
    args = inputs()
    importlib.import_module("triton.compiler")
    from fxscope.targets.triton.target import TritonTarget

    spent = []
    compile_island = TritonTarget.compile

    def timed(self: TritonTarget, *rest: Any) -> Any:
        begin = time.perf_counter()
        made = compile_island(self, *rest)
        spent.append(time.perf_counter() - begin)
        return made

    TritonTarget.compile = timed  # type: ignore[method-assign]
    if way == "backend":
        with torch.no_grad():
            torch.compile(chain, backend="fxscope_triton")(*args)
    else:
        target = TritonTarget()
        target.compile(island(chain, *args), args)(*args)
    torch.cuda.synchronize()
    return sum(spent)


def first_of_a_process(way: str) -> float:
    """``first`` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TRITON_CACHE_DIR": folder, "FXSCOPE_CACHE_DIR": folder, "FXSCOPE_TRITON_AUTOTUNE": "0"}
        command = [sys.executable, __file__, "--first", way]
        done = subprocess.run(
            command, env={**os.environ, **caches}, capture_output=True, text=True, timeout=200, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return round(float(done.stdout.split()[-1]), 3)


def main() -> None:
    """Measure and print one JSON object."""
    if sys.argv[1:2] == ["--first"]:
        print(first(sys.argv[2]))
        return
    os.environ["FXSCOPE_TRITON_AUTOTUNE"] = "0"
    begin = time.perf_counter()
    importlib.import_module("triton.compiler")
    imported = time.perf_counter() - begin
    from fxscope.targets.triton import module
    from fxscope.targets.triton.target import TritonTarget

    x, b, r = inputs()
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
                "first_compile_seconds": {way: first_of_a_process(way) for way in ("backend", "target")},
                "import_seconds": round(imported, 3),
                "overlap": source.overlap,
                "nodes": len(gm.graph.nodes),
            }
        )
    )


if __name__ == "__main__":
    main()
