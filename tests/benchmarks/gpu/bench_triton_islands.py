"""Real graphs: the fused islands of recorded programs, rebuilt on the GPU, launched, checked, and timed against Inductor.

    python tests/benchmarks/gpu/bench_triton_islands.py FOLDER_WITH_LOGS --out islands.json
    python tests/benchmarks/gpu/bench_triton_islands.py FOLDER_WITH_LOGS --logs bert_amp --island "0/1 forward" --timed 2

Every distinct island of every forward and backward graph runs once, on the values that the whole graph hands it, and each of its
outputs is compared with float64: right is what is as near to it as eager is (twice its error, or one rounding of the coarsest dtype
in the island). The largest islands are tuned and timed, input sets in rotation.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpu_graphs import reference
from gpu_precompile import precompile_source
from gpu_timing import in_turn
from torch.fx import GraphModule


@dataclass
class Piece:
    """A distinct island: where it was found, its graph, and what the graph around it hands it."""

    where: str
    graph: GraphModule
    inputs: list[Any]

    @property
    def bytes(self) -> int:
        """Of its inputs."""
        return sum(x.numel() * x.element_size() for x in self.inputs if isinstance(x, torch.Tensor))


class Kept(torch.fx.Interpreter):
    """Runs a graph and keeps what every node gave."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n.name] = value
        return value


def pieces_of(path: Path, device: str) -> list[Piece]:
    """Distinct islands of a log's forward and backward graphs."""
    from fxscope.errors import FxscopeError
    from fxscope.graph.inputs import backward_inputs
    from fxscope.graph.load import recorded_symbols
    from fxscope.passes.aten import to_aten
    from fxscope.passes.partition import partition
    from fxscope.passes.recorded import load
    from fxscope.passes.split import extract
    from fxscope.recording.recording import open_recording
    from fxscope.targets.triton.target import TritonTarget

    target, found = TritonTarget(), {}
    recording = open_recording(path)
    for compile_ in recording.compiles:
        forward: tuple[Any, Any] | None = None
        for stage in ("forward", "backward", "inference"):
            if stage not in compile_.stages:
                continue
            try:
                recorded = load(path, compile_.key, stage, device=device)
                inputs = recorded.inputs
                if stage == "forward":
                    with torch.no_grad():
                        forward = recorded.graph, recorded.module(*inputs)
                elif stage == "backward" and forward is not None:
                    # What the forward saved: values made up one by one do not fit together, and overflow on the way.
                    inputs = backward_inputs(*forward, recorded.graph, symbols=recorded_symbols(recording, compile_))
                module = to_aten(recorded.module, inputs, decompositions="none")
            except FxscopeError as error:
                print(f"{path.name} {compile_.key} {stage}: {error}")
                continue
            kept = Kept(module)
            with torch.no_grad():
                kept.run(*inputs)
            for island in partition(module, target.supports).kept:
                graph = extract(module, island.nodes)
                text = str([(n.op, str(n.target), str(n.meta.get("val"))) for n in graph.graph.nodes])
                if text not in found:
                    first, last = island.nodes[0].name, island.nodes[-1].name
                    where = f"{compile_.key} {stage} {first}..{last} ({len(island.nodes)} nodes)"
                    handed = [kept.values[n.name] for n in graph.graph.find_nodes(op="placeholder")]
                    found[text] = Piece(where, graph, handed)
    return list(found.values())


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative norm of a difference where the exact value is a number, or the share of elements that differ where they are whole."""
    if not got.is_floating_point():
        return float((got != want).double().mean()) if got.numel() else 0.0
    known = torch.isfinite(want)
    got, want = got[known].double(), want[known].double()
    return float((got - want).norm() / want.norm().clamp_min(1e-300)) if got.numel() else 0.0


def rounding(graph: GraphModule) -> float:
    """Half a unit in the last place of the coarsest floating dtype in a graph; of float32 four units."""
    values = [v for n in graph.graph.nodes for v in [n.meta.get("val")] if isinstance(v, torch.Tensor)]
    steps = [torch.finfo(v.dtype).eps for v in values if v.dtype.is_floating_point]
    coarsest = max(steps, default=0.0)
    return coarsest / 2 if coarsest > 1e-6 else 4 * coarsest


def judge(
    graph: GraphModule, got: Sequence[Any], eager: Sequence[Any], exact: Sequence[Any]
) -> list[tuple[float, float, bool]]:
    """Per tensor output: our error, eager's, and whether ours is no worse."""
    out, step = [], rounding(graph)
    for one, other, want in zip(got, eager, exact, strict=True):
        if isinstance(one, torch.Tensor):
            ours, theirs = distance(one, want), distance(other, want)
            alike = one.dtype == other.dtype and torch.equal(torch.isnan(one), torch.isnan(other))
            # Eager alone is far off where it overflows on the way: then ours has to overflow in the same places.
            near = ours <= max(2 * theirs, step) if math.isfinite(theirs) else not math.isfinite(ours)
            out.append((ours, theirs, alike and near))
    return out


def compile_ahead(pieces: list[Piece], device: str, every: bool) -> str:
    """Fill Triton's cache with the first (or every) formulation of all kernels, in processes of their own."""
    from fxscope.targets.triton.executable import Compiled
    from fxscope.targets.triton.schedule import candidates

    sources: dict[Any, Any] = {}
    begin = time.time()

    def collect(nest: Any, write: Any, name: str, values: Any) -> Any:
        options = candidates(nest)
        for option in options if every else options[:1]:
            if option.form != "library":
                source = write(nest, option)
                sources[(source.text, source.schedule)] = source
        return options[0]

    for piece in pieces:
        try:
            Compiled(piece.graph, piece.inputs, collect, torch.device(device), False, bind=False)
        except Exception as error:  # listed once more, and counted, where the island is run
            print(f"  {piece.where}: {type(error).__name__}: {str(error)[:120]}")
    planned = time.time() - begin
    jobs = [(source, torch.cuda.get_device_capability()) for source in sources.values()]
    with multiprocessing.get_context("spawn").Pool(min(16, multiprocessing.cpu_count())) as pool:
        failures = [failure for failure in pool.imap_unordered(precompile_source, jobs, chunksize=4) if failure]
    for failure in sorted(set(failures))[:5]:
        print("  precompile:", failure)
    return f"{len(jobs)} kernels, planned in {planned:.0f} s, compiled in {time.time() - begin - planned:.0f} s, {len(failures)} failed"


def check(piece: Piece, device: str) -> dict[str, Any]:
    """One island untuned: compiled, run, every output against float64."""
    from fxscope.targets.triton.executable import TritonExecutable, first_candidate

    with torch.no_grad():
        eager = piece.graph(*piece.inputs)
        exact = reference(piece.graph, piece.inputs)
    executable = TritonExecutable(piece.graph, piece.inputs, first_candidate, torch.device(device), device == "cpu")
    outputs = judge(piece.graph, executable(*piece.inputs), eager, exact)
    worst = max(outputs, key=lambda item: (not item[2], item[0]), default=(0.0, 0.0, True))
    return {
        "island": piece.where, "outputs": len(outputs), "right": all(ok for _, _, ok in outputs), "worst": worst[0], "eager": worst[1],
        "launches": executable.launches,
    }  # fmt: skip


def timed(piece: Piece, device: str) -> dict[str, Any]:
    """Microseconds of one island tuned, of Inductor's, and of eager."""
    from fxscope.launch.timing import rotation
    from fxscope.targets.triton.executable import TritonExecutable, tuned

    place = torch.device(device, 0)
    executable = TritonExecutable(piece.graph, piece.inputs, tuned(place), place, False)
    sets = rotation(piece.inputs, most=16)
    compiled = torch.compile(piece.graph, dynamic=False)
    calls: dict[str, Callable[..., Any]] = {"ours": executable, "inductor": compiled, "eager": piece.graph}
    row: dict[str, Any] = {
        "island": piece.where,
        "bytes": piece.bytes,
        "launches": executable.launches,
        "sets": len(sets),
    }
    with torch.no_grad():
        exact = reference(piece.graph, piece.inputs)
        eager = piece.graph(*piece.inputs)
        row["right"] = all(ok for _, _, ok in judge(piece.graph, executable(*piece.inputs), eager, exact))
        runs = {name: (lambda i, c=call: c(*sets[i % len(sets)])) for name, call in calls.items()}
        times = in_turn(runs, dict.fromkeys(runs, 20), 15)
    torch._dynamo.reset()
    return row | {name: round(some * 1e6, 2) for name, some in times.items()}


def main() -> None:
    """Check all, time the largest, print a table, write JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", default="islands.json", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--logs", default="bert_amp,gpt2,resnet50")
    parser.add_argument("--timed", type=int, default=4)
    parser.add_argument("--checked", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument(
        "--island", default="", help="islands alone whose line holds one of these texts, split at commas"
    )
    options = parser.parse_args()
    begin, report = time.time(), []
    for name in options.logs.split(","):
        pieces = pieces_of(options.folder / name, options.device)
        pieces = [piece for piece in pieces if any(text in piece.where for text in options.island.split(","))]
        pieces = pieces[: options.checked]
        print(f"{name}: {len(pieces)} islands, {time.time() - begin:.0f} s", flush=True)
        if options.device == "cuda":
            print(" ", compile_ahead(pieces, options.device, every=False), flush=True)
        entry: dict[str, Any] = {"log": name, "islands": len(pieces), "checked": [], "failed": [], "timed": []}
        report.append(entry)
        for piece in pieces:
            if time.time() - begin > options.seconds:
                break
            try:
                entry["checked"].append(check(piece, options.device))
            except Exception as problem:  # one island must not end the table; it is listed
                entry["failed"].append(f"{piece.where}: {type(problem).__name__}: {str(problem)[:200]}")
        right = sum(row["right"] for row in entry["checked"])
        print(f"  {right} of {len(entry['checked'])} right, {len(entry['failed'])} failed, {time.time() - begin:.0f} s")
        for row in sorted(entry["checked"], key=lambda row: (row["right"], -row["worst"]))[:4]:
            print("   ", row)
        print(*[f"    {line}" for line in entry["failed"][:4]], sep="\n", flush=True)
        if options.device == "cuda":
            large = sorted(pieces, key=lambda piece: -len(piece.graph.graph.nodes) * piece.bytes)[: options.timed]
            print(" ", compile_ahead(large, options.device, every=True), flush=True)
            for piece in large:
                if time.time() - begin > options.seconds:
                    break
                try:
                    entry["timed"].append(timed(piece, options.device))
                    print("   ", entry["timed"][-1], flush=True)
                except Exception as problem:
                    entry["failed"].append(f"timed {piece.where}: {type(problem).__name__}: {str(problem)[:200]}")
                    print(entry["failed"][-1], flush=True)
        options.out.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
