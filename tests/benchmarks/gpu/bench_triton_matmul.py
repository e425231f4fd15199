"""Matrix products with what follows them: one generated kernel, the library and a generated tail, Inductor, eager.

    python tests/benchmarks/gpu/bench_triton_matmul.py --out matmul.json [--seconds 100]

`chosen` is what the tuner took by measurement; `fused` its best product in one kernel, `library` cuBLAS and the best kernel behind it.
Times are medians of CUDA-graph replays with input sets in rotation, taken in turn; errors are relative norms against float64.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_timing import in_turn
from torch.fx.experimental.proxy_tensor import make_fx


def bias_relu_residual(x, w, b, r):
    return torch.relu(F.linear(x, w, b)) + r


def bias_gelu(x, w, b, r):
    return F.gelu(F.linear(x, w, b), approximate="tanh")


def gate(x, w, b, r):
    y = x @ w.t()
    return y * torch.sigmoid(y) * r


FUNCTIONS = (bias_relu_residual, bias_gelu, gate)
SIZES = (
    (8192, 4096, 4096),
    (4096, 1024, 4096),
    (2048, 768, 3072),
    (512, 4096, 4096),
    (64, 4096, 4096),
    (16, 4096, 11008),
)
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 8e-4, torch.float32: 2e-6}


def make(rows: int, depth: int, cols: int, dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    """Input, weight, bias, residual."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    shapes = ((rows, depth), (cols, depth), (cols,), (rows, cols))
    scales = (1.0, depth**-0.5, 1.0, 1.0)
    made = [torch.randn(s, generator=generator, device="cuda") * k for s, k in zip(shapes, scales, strict=True)]
    return [x.to(dtype) for x in made]


def island(function: Callable[..., Any], args: list[torch.Tensor]) -> torch.fx.GraphModule:
    """The function's ATen graph, its result in a tuple."""
    gm = make_fx(function, tracing_mode="fake")(*args)
    gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
    gm.recompile()
    return gm


def measure(function: Callable[..., Any], rows: int, depth: int, cols: int, dtype: torch.dtype) -> dict[str, Any]:
    """One row of the table."""
    from fxscope.targets.triton.executable import TritonExecutable
    from fxscope.targets.triton.matmul import MatmulNest
    from fxscope.targets.triton.schedule import LIBRARY
    from fxscope.targets.triton.tune import Tuner

    device = torch.device("cuda", 0)
    size = (rows * depth + depth * cols + 2 * rows * cols) * dtype.itemsize
    sets = [make(rows, depth, cols, dtype, seed) for seed in range(3 if size > 2**26 else 8)]
    gm = island(function, sets[0])
    want = function(*(x.double() for x in sets[0]))
    seen: list[tuple[Any, float | None, str]] = []
    tuner = Tuner(device, lambda name, schedule, seconds, why: seen.append((schedule, seconds, why)))
    chosen = TritonExecutable(gm, sets[0], tuner.choose, device, False)
    timed = [(seconds, s) for s, seconds, _ in seen if s.form == "matmul" and seconds is not None]
    best = min(timed, key=lambda pair: pair[0])[1] if timed else None

    def forced(schedule: Any) -> TritonExecutable:
        def choose(nest: Any, write: Any, name: str, values: Any = None) -> Any:
            return schedule if isinstance(nest, MatmulNest) else tuner.choose(nest, write, name, values)

        return TritonExecutable(gm, sets[0], choose, device, False)

    compiled = torch.compile(function, dynamic=False)
    calls: dict[str, Callable[..., Any]] = {
        "chosen": chosen,
        "library": forced(LIBRARY),
        "inductor": compiled,
        "eager": function,
    }
    if best is not None:
        calls["fused"] = forced(best)
    row: dict[str, Any] = {
        "case": f"{function.__name__} {str(dtype).removeprefix('torch.')} {rows}x{depth}x{cols}",
        "taken": chosen.latest.sources[0].schedule.text() if chosen.launches == 1 else LIBRARY.text(),
        "launches": chosen.launches,
        "rejected": [f"{s.text()}: {why}" for s, _, why in seen if why],
    }
    with torch.no_grad():
        for name, call in calls.items():
            got = call(*sets[0])
            got = got[0] if isinstance(got, tuple) else got
            row[f"{name}_error"] = float((got.double() - want).norm() / want.norm())
        runs = {name: (lambda i, c=call: c(*sets[i % len(sets)])) for name, call in calls.items()}
        times = in_turn(runs, dict.fromkeys(runs, 12), 15)
    row |= {f"{name}_us": round(some * 1e6, 2) for name, some in times.items()}
    row["tflops"] = round(2 * rows * depth * cols / row["chosen_us"] / 1e6)
    row["wrong"] = not row["chosen_error"] <= TOLERANCE[dtype]
    torch._dynamo.reset()
    return row


def main() -> None:
    """All rows, printed and written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="matmul.json", type=Path)
    parser.add_argument("--seconds", type=float, default=150)
    options = parser.parse_args()
    begin, rows = time.time(), []
    for dtype in (torch.bfloat16, torch.float32):
        for function in FUNCTIONS if dtype == torch.bfloat16 else FUNCTIONS[:1]:
            for sizes in SIZES if dtype == torch.bfloat16 else SIZES[1:4]:
                if time.time() - begin > options.seconds:
                    break
                row = measure(function, *sizes, dtype)
                rows.append(row)
                print({k: v for k, v in row.items() if k != "rejected"}, len(row["rejected"]), "rejected", flush=True)
                options.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
