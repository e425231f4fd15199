"""Real graphs: the fused islands of recorded programs, rebuilt on the GPU, launched, checked, and timed against Inductor.

    python tests/benchmarks/gpu/bench_triton_islands.py FOLDER_WITH_LOGS --out islands.json

Every distinct island of every forward and backward graph runs once against eager; the largest ones are timed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch


def errors(got: Any, want: Any) -> float:
    """Largest relative norm error among float outputs; integers and booleans must be equal."""
    worst = 0.0
    for one, other in zip(got, want, strict=True):
        if not isinstance(one, torch.Tensor):
            continue
        if not one.is_floating_point():
            worst = max(worst, float((one != other).float().mean()))
        elif one.numel():
            scale = other.double().norm() + 1e-12
            worst = max(worst, float((one.double() - other.double()).norm() / scale))
    return worst


def made(value: Any, device: str, generator: torch.Generator) -> Any:
    """A random tensor like a fake one, strides included."""
    if not isinstance(value, torch.Tensor):
        return value
    size = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) if value.numel() else 0
    if value.is_floating_point():
        flat = torch.rand(size, generator=generator, device=device) + 0.1
    else:
        flat = torch.randint(0, 2, (size,), generator=generator, device=device)
    return flat.to(value.dtype).as_strided(tuple(value.shape), tuple(value.stride()))


def islands(path: Path, device: str) -> list[tuple[str, torch.fx.GraphModule]]:
    """Distinct islands of a log's forward and backward graphs: (where, graph)."""
    from fxscope.errors import FxscopeError
    from fxscope.passes.partition import partition
    from fxscope.passes.recorded import load
    from fxscope.passes.split import extract
    from fxscope.recording.recording import open_recording
    from fxscope.targets.triton.target import TritonTarget

    target, found = TritonTarget(), {}
    for compile_ in open_recording(path).compiles:
        for stage in ("forward", "backward", "inference"):
            if stage not in compile_.stages:
                continue
            try:
                graph = load(path, compile_.key, stage, device=device)
                from fxscope.passes.aten import to_aten

                module = to_aten(graph.module, graph.inputs, decompositions="none")
            except FxscopeError as error:
                print(f"{path.name} {compile_.key} {stage}: {error}")
                continue
            for island in partition(module, target.supports).kept:
                piece = extract(module, island.nodes)
                text = str([(n.op, str(n.target), str(n.meta.get("val"))) for n in piece.graph.nodes])
                found.setdefault(
                    text,
                    (
                        f"{compile_.key} {stage} {island.nodes[0].name}..{island.nodes[-1].name} ({len(island.nodes)} nodes)",
                        piece,
                    ),
                )
    return list(found.values())


def main() -> None:
    """Check all, time the largest, print a table, write JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", default="islands.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--timed", type=int, default=4)
    parser.add_argument("--checked", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    from fxscope.targets.triton.target import TritonTarget

    begin, rows = time.time(), []
    for log in sorted(p for p in options.folder.iterdir() if p.is_dir()):
        pieces = islands(log, options.device)
        counts = {"log": log.name, "islands": len(pieces), "right": 0, "worst": 0.0, "wrong": []}
        sized = []
        for where, piece in pieces[: options.checked]:
            if time.time() - begin > options.seconds:
                break
            generator = torch.Generator(device=options.device).manual_seed(0)
            inputs = [made(n.meta["val"], options.device, generator) for n in piece.graph.find_nodes(op="placeholder")]
            try:
                with torch.no_grad():
                    want = piece(*inputs)
                executable = TritonTarget().compile(piece, inputs)
                error = errors(executable(*inputs), want)
            except Exception as problem:  # one island must not end the table; it is listed
                counts["wrong"].append(f"{where}: {type(problem).__name__}: {str(problem)[:160]}")
                continue
            half = any(
                isinstance(t, torch.Tensor) and t.dtype in (torch.bfloat16, torch.float16) for t in [*inputs, *want]
            )
            counts["worst"] = max(counts["worst"], error)
            if error <= (2e-2 if half else 1e-4):
                counts["right"] += 1
            else:
                counts["wrong"].append(f"{where}: error {error:.1e}")
            size = sum(t.numel() * t.element_size() for t in [*inputs, *want] if isinstance(t, torch.Tensor))
            sized.append((size, where, piece, inputs, executable))
        print(counts, flush=True)
        rows.append(counts)
        if options.device == "cpu":
            continue
        from fxscope.targets.triton.tune import replay_seconds

        for size, where, piece, inputs, executable in sorted(sized, key=lambda item: -item[0])[: options.timed]:
            if time.time() - begin > options.seconds:
                break
            compiled = torch.compile(piece, dynamic=False)
            with torch.no_grad():
                compiled(*inputs)
                calls = {
                    "ours": lambda i, e=executable, x=inputs: e(*x),
                    "inductor": lambda i, c=compiled, x=inputs: c(*x),
                }
                times = {name: replay_seconds(call, launches=20, repeats=7) * 1e6 for name, call in calls.items()}
            row = {
                "log": log.name,
                "island": where,
                "bytes": size,
                "launches": executable.launches,
                **{k: round(v, 2) for k, v in times.items()},
            }
            print(row, flush=True)
            rows.append(row)
            torch._dynamo.reset()
    Path(options.out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
