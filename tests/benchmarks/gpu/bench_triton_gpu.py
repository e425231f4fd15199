"""Generated kernels against eager, Inductor and Liger-Kernel on one NVIDIA GPU.

    python tests/benchmarks/gpu/bench_triton_gpu.py --prepare prepared.json --peers inductor,tuned,liger,eager
    python tests/benchmarks/gpu/bench_triton_gpu.py --prepared prepared.json --peers inductor,tuned,liger,eager --out results.json
    python tests/benchmarks/gpu/gpu_tables.py results.json --page docs/performance_gpu.md

The first fills the compilers' caches (Inductor tunes itself for up to half a minute a case: many processes compile, one at a time is
timed), the second measures. With several GPUs, one process each: `--part 0/2` and `--part 1/2`.

Kernel time: median of replays of a CUDA graph of 20 launches (200 of small ones) over three sets of inputs in rotation (eight).
GB/s: bytes that must move (each input once, each output once, weights not counted) over that time; beside it the rate of a
device-to-device copy of one such tensor, by the same harness. Every candidate of the tuner is run on outputs filled with NaN and
compared with float64 before it may win.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from gpu_cases import Case, all_cases
from gpu_graphs import error_of, exact_outputs, graph_of, inputs_of
from gpu_peers import PEERS
from gpu_precompile import precompile, precompile_inductor, tune_inductor
from gpu_timing import in_turn
from torch.fx import GraphModule

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2.4e-3, torch.float16: 4e-4}


def brief(error: Exception) -> str:
    """One line about a failure."""
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:160]


class Bench:
    """Measures cases and keeps the rows."""

    def __init__(self, peers: list[str], tune_log: bool, repeats: int, tuned: set[str] | None) -> None:
        self.peers, self.tune_log, self.repeats = peers, tune_log, repeats
        self.tuned = tuned  # the cases that have the peer `tuned`; None: all
        self.rows: list[dict[str, Any]] = []
        self.candidates: list[dict[str, Any]] = []
        self.ceilings: dict[float, float] = {}
        self.order = {case.name: at for at, case in enumerate(all_cases())}

    def ours(self, case: Case, gm: GraphModule, inputs: list[Any]) -> Any:
        """Our executable, tuned, every candidate checked; and its largest error."""
        from fxscope.targets.triton.executable import TritonExecutable
        from fxscope.targets.triton.tune import Tuner

        exact, names = exact_outputs(gm, inputs)
        limit = TOLERANCE[case.dtype]

        def verify(name: str, outputs: dict[str, torch.Tensor]) -> str | None:
            for key, tensor in outputs.items():
                if key in names:
                    error = error_of(tensor, names[key])
                    if not error <= limit:
                        return f"error {error:.2e} in {key}"
            return None

        def log(name: str, schedule: Any, seconds: float | None, why: str) -> None:
            gbps = case.bytes / seconds / 1e9 if seconds else 0
            self.candidates.append(
                {"case": case.name, "kernel": name, "schedule": schedule.text(), "gbps": round(gbps), "why": why}
            )
            if self.tune_log:
                print(f"    {gbps:6.0f}  {schedule.text()}  {why}")

        tuner = Tuner(torch.device("cuda", 0), log, verify)
        executable = TritonExecutable(gm, inputs, tuner.choose, torch.device("cuda", 0), False)
        got = executable(*inputs)
        errors = [error_of(a, b) for a, b in zip(got, exact, strict=True) if isinstance(a, torch.Tensor)]
        return executable, max(errors, default=0.0)

    def ceiling(self, case: Case) -> float:
        """GB/s of a copy of one full-size tensor of the case, sets in rotation like everything else: by the driver or by a kernel."""
        size = case.rows * case.cols * case.dtype.itemsize
        if size not in self.ceilings:
            sets = [
                (torch.empty(size // 2, dtype=torch.int16, device="cuda"), torch.randn(size // 4, device="cuda"))
                for _ in range(3 if size > 2**24 else 8)
            ]
            pairs = [(out, x.view(torch.int16)[: out.numel()]) for out, x in sets]
            words = [(out.view(torch.int32), x.view(torch.int32)) for out, x in pairs]
            copies = {
                "driver": lambda i: pairs[i % len(pairs)][0].copy_(pairs[i % len(pairs)][1]),
                "kernel": lambda i: torch.neg(words[i % len(words)][1], out=words[i % len(words)][0]),
            }
            self.ceilings[size] = 2 * size / min(self.time(case, copies, {}).values()) / 1e9
        return self.ceilings[size]

    def time(self, case: Case, calls: dict[str, Any], row: dict[str, Any]) -> dict[str, float]:
        """Median seconds of each call; they take turns, after the clocks are up."""
        launches = 20 if case.bytes > 2**24 else 200
        counts = {name: 3 if name == "eager" else launches for name in calls}

        def failed(name: str, error: Exception) -> None:
            row[f"{name}_failed"] = brief(error)

        return in_turn(calls, counts, 7 * self.repeats, failed)

    def run(self, case: Case) -> None:
        """One row."""
        begin = time.time()
        gm, example = graph_of(case, case.make("cuda"))
        sets = [inputs_of(case, gm, example, seed) for seed in range(3 if case.bytes > 2**24 else 8)]
        row: dict[str, Any] = {"case": case.name, "group": case.group, "page": case.best_of_page, "bytes": case.bytes}
        row["at"] = self.order[case.name]
        executable, row["error"] = self.ours(case, gm, sets[0])
        row["wrong"] = not row["error"] <= TOLERANCE[case.dtype] * (1 if not case.backward else 3)
        row["schedules"] = [s.schedule.text() for s in executable.latest.sources]
        row["tune_s"] = round(time.time() - begin, 1)
        calls: dict[str, Any] = {"ours": lambda i: executable(*sets[i % len(sets)])}
        for peer in self.peers:
            if peer == "tuned" and self.tuned is not None and case.name not in self.tuned:
                continue
            try:
                made = PEERS[peer](case, gm, sets)
                if made is not None:
                    made(0)
                    calls[peer] = made
            except Exception as error:
                row[f"{peer}_failed"] = brief(error)
        for name, seconds in self.time(case, calls, row).items():
            row[name] = round(case.bytes / seconds / 1e9)
            row[f"{name}_us"] = round(seconds * 1e6, 2)
        row["ceiling"] = round(self.ceiling(case))
        row["seconds"] = round(time.time() - begin, 1)
        self.rows.append(row)
        self.show(row)
        torch._dynamo.reset()
        torch.cuda.empty_cache()

    def show(self, row: dict[str, Any]) -> None:
        """One line."""
        best = max((row.get(p, 0) for p in self.peers), default=0)
        peers = " ".join(f"{p} {row.get(p, '-')}" for p in self.peers)
        gain = f"x{row['ours'] / best:.3f}" if best else ""
        wrong = " WRONG" if row["wrong"] else ""
        print(f"{row['case']:42s} ours {row['ours']:5d} {peers}  copy {row['ceiling']} page {row['page'] or '-'}  {gain}"
              f"  err {row['error']:.1e}{wrong}  {row['seconds']} s | {row['schedules'][0]}", flush=True)  # fmt: skip


def copy_ceiling() -> float:
    """GB/s of a device-to-device copy of 1 GiB."""
    a, b = torch.randn(2**28, device="cuda"), torch.empty(2**28, device="cuda")
    times = []
    for i in range(30):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(10):
            b.copy_(a)
        end.record()
        end.synchronize()
        times += [start.elapsed_time(end) / 10 * 1e-3] * (i > 9)  # the first ten warm the clocks up
    return 2 * a.numel() * 4 / statistics.median(times) / 1e9


def chosen(match: str, group: str, skip: int, limit: int) -> list[Case]:
    """Cases whose name holds all words of one of the comma-separated alternatives (``a+b,c``)."""
    words = [word.split("+") for word in match.split(",") if word]
    cases = [
        c for c in all_cases() if group in c.group and (not words or any(all(p in c.name for p in w) for w in words))
    ]
    return cases[skip:][:limit]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="triton_gpu.json", type=Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--group", default="")
    parser.add_argument("--peers", default="inductor")
    parser.add_argument("--tune-log", action="store_true")
    parser.add_argument(
        "--prepare", type=Path, help="fill the caches, note here which cases Inductor has tuned, and stop"
    )
    parser.add_argument("--prepared", type=Path, nargs="+", help="what --prepare noted")
    parser.add_argument("--repeats", type=int, default=2, help="sevenths of the rounds")
    parser.add_argument("--seconds", type=float, default=500, help="start no further case after this long")
    parser.add_argument("--no-precompile", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument(
        "--part", default="0/1", help="the k-th of every n cases, as k/n: one process for each GPU of a host"
    )
    parser.add_argument("--limit", type=int, default=1000)
    return parser.parse_args()


def main() -> None:
    """Run the cases that match, print a table, write JSON."""
    import triton

    options = arguments()
    begin = time.time()
    part, parts = map(int, options.part.split("/"))
    cases = chosen(options.match, options.group, options.skip, options.limit)[part::parts]
    cases.sort(key=lambda case: case.group != "small")  # the quick ones first, should time run out
    peers = [p for p in options.peers.split(",") if p]
    processes = max((os.cpu_count() or 4) // parts, 2)
    if not options.no_precompile and not options.prepared:
        print(precompile(cases, (9, 0), processes), flush=True)
        if "inductor" in peers:
            print(precompile_inductor(cases, min(14, processes)), flush=True)
    if options.prepare:
        left = options.seconds - (time.time() - begin)
        done = tune_inductor(cases, processes, left) if "tuned" in peers else []
        options.prepare.write_text(json.dumps({"tuned": done}))
        return
    tuned = None
    if options.prepared:
        tuned = {name for path in options.prepared for name in json.loads(path.read_text())["tuned"]}
    bench = Bench(peers, options.tune_log, options.repeats, tuned)
    facts = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy_gbps": round(copy_ceiling()),
    }
    print(facts, flush=True)
    left_out: list[str] = []

    def write() -> None:
        found = {"facts": facts, "rows": bench.rows, "candidates": bench.candidates, "left_out": left_out}
        options.out.write_text(json.dumps(found))

    for case in cases:
        if time.time() - begin > options.seconds:
            left_out.append(case.name)
            continue
        try:
            bench.run(case)
        except Exception as error:
            traceback.print_exc(limit=-4)
            bench.rows.append({"case": case.name, "group": case.group, "failed": brief(error)})
            print("FAILED", case.name, brief(error), flush=True)
        write()  # what was measured outlives a stop
    if left_out:
        print("left out for time:", "; ".join(left_out))
    write()


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    main()
