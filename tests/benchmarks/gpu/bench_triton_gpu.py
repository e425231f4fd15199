"""Generated kernels against eager, Inductor and Liger-Kernel on one NVIDIA GPU.

    python tests/benchmarks/gpu/bench_triton_gpu.py --out results.json [--match softmax] [--peers inductor,tuned,liger,eager] [--tune-log]

Kernel time: median of replays of a CUDA graph of 20 launches over three sets of inputs in rotation. GB/s: bytes that must move
(each input once, each output once, weights not counted) over that time. Every candidate of the tuner is run on outputs filled
with NaN and compared with float64 before it may win.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from gpu_cases import Case, all_cases
from torch.fx import GraphModule

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2.4e-3, torch.float16: 4e-4}


def graph_of(case: Case, inputs: list[torch.Tensor]) -> tuple[GraphModule, list[Any]]:
    """The functional ATen graph that a compiler gets, with fake inputs: the forward, or the backward that AOTAutograd gives."""
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    found: dict[str, tuple[GraphModule, list[Any]]] = {}

    def keep(kind: str) -> Any:
        def compiler(gm: GraphModule, example: Any) -> Any:
            found[kind] = (gm, list(example))
            return make_boxed_func(gm)

        return compiler

    def cut(*args: Any, **kwargs: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(*args, **kwargs)
        found["backward"] = (backward, [n.meta["val"] for n in backward.graph.find_nodes(op="placeholder")])
        return forward, backward

    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            out = case.f(*args)
            return out if isinstance(out, tuple) else (out,)

    if case.backward:
        inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    with torch.set_grad_enabled(case.backward):
        aot_module_simplified(
            Module(),
            inputs,
            fw_compiler=keep("forward"),
            inference_compiler=keep("forward"),
            partition_fn=cut,
            decompositions={},
        )
    return found["backward" if case.backward else "forward"]


def sources_of(case: Case) -> list[Any]:
    """Every candidate's source, on fake tensors: needs no GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from fxscope.targets.triton.executable import Compiled
    from fxscope.targets.triton.schedule import candidates
    from fxscope.targets.triton.tune import known_choice, tuned_path

    found: list[Any] = []

    def collect(nest: Any, write: Any, name: str, values: Any) -> Any:
        options = candidates(nest)
        known = known_choice(tuned_path(write(nest, options[0]), options, "NVIDIA H200"), options)
        if known is not None:
            found.append(write(nest, known))
            return known
        found.extend(write(nest, option) for option in options)
        return options[0]

    with FakeTensorMode() as mode:
        inputs = case.fake()
        gm, example = graph_of(case, inputs)
    del mode
    compiled = Compiled(gm, example, collect, torch.device("cpu"), False, bind=False)
    if case.shift:
        for memory in compiled.plan.inputs[:1]:
            memory.misaligned = True
    return found


def _precompile(job: tuple[Any, tuple[int, int]]) -> str | None:
    from fxscope.targets.triton.module import compile_binary

    try:
        compile_binary(*job)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def precompile(cases: list[Case], capability: tuple[int, int], processes: int) -> str:
    """Fill Triton's disk cache with every candidate, in processes that never touch the GPU."""
    begin = time.time()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        sources = [s for some in pool.map(_sources_safely, cases, chunksize=1) for s in some]
        unique = list({(s.text, s.schedule): s for s in sources}.values())
        failures = [f for f in pool.imap_unordered(_precompile, [(s, capability) for s in unique], chunksize=2) if f]
    for failure in sorted(set(failures))[:10]:
        print("  precompile:", failure)
    return f"{len(unique)} kernels compiled in {time.time() - begin:.0f} s by {processes} processes, {len(failures)} failed"


class Traced(Exception):
    """Raised instead of running what Inductor compiled."""


def _precompile_inductor(case: Case) -> str | None:
    """Let Inductor write its kernels to its disk cache, without running (and so without tuning) any."""
    from torch._inductor.compile_fx import compile_fx

    def backend(gm: GraphModule, example: Any) -> Any:
        compile_fx(gm, example)
        raise Traced

    try:
        inputs = case.make("cuda")
        gm, example = graph_of(case, inputs) if case.backward else (None, [])
        function = case.f if gm is None else gm.forward
        args = inputs if gm is None else [torch.empty(tuple(x.shape), dtype=x.dtype, device="cuda") for x in example]
        with torch.no_grad():
            torch.compile(function, backend=backend, dynamic=False)(*args)
    except Exception as error:  # Dynamo wraps Traced; anything else shows up when the peer is measured
        text = f"{type(error).__name__}: {error}"
        return None if "Traced" in text else text.splitlines()[0][:200]
    finally:
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    return None


def precompile_inductor(cases: list[Case], processes: int) -> str:
    """Inductor's default kernels of all cases, compiled in parallel."""
    begin = time.time()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        failures = [f for f in pool.imap_unordered(_precompile_inductor, cases, chunksize=1) if f]
    del os.environ["TORCHINDUCTOR_COMPILE_THREADS"]
    for failure in sorted(set(failures))[:5]:
        print("  inductor:", failure)
    return f"Inductor compiled {len(cases)} cases in {time.time() - begin:.0f} s, {len(failures)} failed"


def _sources_safely(case: Case) -> list[Any]:
    try:
        return sources_of(case)
    except Exception as error:
        print("  plan failed:", case.name, type(error).__name__, error)
        return []


def reference(gm: GraphModule, inputs: list[Any]) -> list[Any]:
    """The graph in float64: every cast to a floating dtype is dropped."""

    class Exact(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            kwargs = {
                k: (torch.float64 if k == "dtype" and isinstance(v, torch.dtype) and v.is_floating_point else v)
                for k, v in kwargs.items()
            }
            args = tuple(torch.float64 if isinstance(a, torch.dtype) and a.is_floating_point else a for a in args)
            return super().call_function(target, args, kwargs)

    wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        return list(Exact(gm, garbage_collect_values=True).run(*wide))


def error_of(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative norm error, by rows so that the float64 copy stays small; NaN where anything is not finite."""
    if not got.is_floating_point():
        return float((got != want).float().mean())
    top, bottom = (
        torch.zeros((), dtype=torch.float64, device=got.device),
        torch.zeros((), dtype=torch.float64, device=got.device),
    )
    flat, exact = got.reshape(-1), want.reshape(-1)
    step = 2**26
    for i in range(0, flat.numel(), step):
        piece = exact[i : i + step].double()
        top += (flat[i : i + step].double() - piece).square().sum()
        bottom += piece.square().sum()
    return float((top / bottom).sqrt())


class Bench:
    """Measures cases and keeps the rows."""

    def __init__(self, peers: list[str], tune_log: bool, repeats: int) -> None:
        self.peers, self.tune_log, self.repeats = peers, tune_log, repeats
        self.rows: list[dict[str, Any]] = []
        self.candidates: list[dict[str, Any]] = []

    def ours(self, case: Case, gm: GraphModule, inputs: list[Any]) -> Any:
        """Our executable, tuned, every candidate checked."""
        from fxscope.targets.triton.executable import TritonExecutable
        from fxscope.targets.triton.tune import Tuner

        exact = reference(gm, inputs)
        limit = TOLERANCE[case.dtype]
        names: dict[str, Any] = {}

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
        outputs = gm.graph.output_node().args[0]
        for node, value in zip(outputs, exact, strict=True):
            if isinstance(node, torch.fx.Node):
                base = node
                while base.target in VIEW_TARGETS or base.target is __import__("operator").getitem:
                    base = base.args[0]
                index = node.args[1] if node.target is __import__("operator").getitem else 0
                names[base.name if not index else f"{base.name}_{index}"] = value
        executable = TritonExecutable(gm, inputs, tuner.choose, torch.device("cuda", 0), False)
        errors = []
        for got, want in zip(executable(*inputs), exact, strict=True):
            if isinstance(got, torch.Tensor):
                errors.append(error_of(got, want))
        return executable, max(errors, default=0.0)

    def run(self, case: Case) -> None:
        """One row."""
        from fxscope.targets.triton.tune import replay_seconds

        begin = time.time()
        forward_inputs = case.make("cuda")
        gm, example = graph_of(case, forward_inputs)
        sets = [self._inputs(case, gm, example, seed) for seed in range(3 if case.bytes > 2**22 else 8)]
        row: dict[str, Any] = {"case": case.name, "group": case.group, "page": case.best_of_page, "bytes": case.bytes}
        executable, row["error"] = self.ours(case, gm, sets[0])
        row["wrong"] = not row["error"] <= TOLERANCE[case.dtype] * (1 if not case.backward else 3)
        row["schedules"] = [s.schedule.text() for s in executable.latest.sources]
        row["tune_s"] = round(time.time() - begin, 1)
        calls: dict[str, Any] = {"ours": lambda i: executable(*sets[i % len(sets)])}
        for peer in self.peers:
            if peer == "tuned" and case.name not in TUNED:
                continue
            try:
                made = PEERS[peer](case, gm, sets)
                if made is not None:
                    made(0)
                    calls[peer] = made
            except Exception as error:
                row[f"{peer}_failed"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[
                    :160
                ]
        launches = 20 if case.bytes > 2**24 else 40
        times: dict[str, list[float]] = {name: [] for name in calls}
        replay_seconds(calls["ours"], launches=max(20, int(2e11 / case.bytes / 50)), repeats=20)  # out of idle clocks
        for _ in range(self.repeats):
            for name, call in calls.items():
                try:
                    slow = name == "eager"
                    times[name].append(replay_seconds(call, launches=6 if slow else launches, repeats=3 if slow else 5))
                except Exception as error:
                    row[f"{name}_failed"] = (
                        f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
                    )
        for name, some in times.items():
            if some:
                row[name] = round(case.bytes / statistics.median(some) / 1e9)
                row[f"{name}_us"] = round(statistics.median(some) * 1e6, 2)
        row["seconds"] = round(time.time() - begin, 1)
        self.rows.append(row)
        best = max((row.get(p, 0) for p in self.peers), default=0)
        print(f"{case.name:42s} ours {row['ours']:5d} " + " ".join(f"{p} {row.get(p, '-')}" for p in self.peers)
              + f"  page {case.best_of_page or '-'}  x{row['ours'] / best if best else 0:.3f}  err {row['error']:.1e}{' WRONG' if row['wrong'] else ''}  {row['seconds']} s | {row['schedules'][0]}", flush=True)  # fmt: skip
        torch._dynamo.reset()
        torch.cuda.empty_cache()

    def _inputs(self, case: Case, gm: GraphModule, example: list[Any], seed: int) -> list[Any]:
        if not case.backward:
            return case.make("cuda", seed)
        generator = torch.Generator(device="cuda").manual_seed(seed + 100)
        primals = dict(zip([f"primals_{i + 1}" for i in range(len(case.inputs))], case.make("cuda", seed), strict=True))
        with torch.no_grad():
            x = primals["primals_1"].double()
            mean, square = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
        out = []
        for node, value in zip(gm.graph.find_nodes(op="placeholder"), example, strict=True):
            if node.name in primals:
                out.append(primals[node.name])
            elif tuple(value.shape) == (case.rows, 1):  # what the forward saved per row
                if case.f.__name__ == "layernorm":
                    pick = mean if "1" in node.name else torch.rsqrt(square - mean.square() + 1e-5)
                else:
                    pick = torch.rsqrt(square + 1e-6) if "rsqrt" in node.name else square
                out.append(pick.to(value.dtype))
            else:
                out.append(
                    torch.randn(value.shape, generator=generator, device="cuda", dtype=torch.float32).to(value.dtype)
                )
        return out


VIEW_TARGETS = {torch.ops.aten.view.default, torch.ops.aten.permute.default, torch.ops.aten.t.default}


def eager(case: Case, gm: GraphModule, sets: list[list[Any]]) -> Any:
    def call(i: int) -> Any:
        with torch.no_grad():
            return case.f(*sets[i % len(sets)]) if not case.backward else gm(*sets[i % len(sets)])

    return call


def inductor(case: Case, gm: GraphModule, sets: list[list[Any]], **config: Any) -> Any:
    """torch.compile with its defaults: of the function, or of the same backward graph."""
    function = case.f if not case.backward else gm.forward
    compiled = torch.compile(function, dynamic=False, options=config or None)

    def call(i: int) -> Any:
        with torch.no_grad():
            return compiled(*sets[i % len(sets)])

    return call


def tuned(case: Case, gm: GraphModule, sets: list[list[Any]]) -> Any:
    """Inductor with coordinate descent and max-autotune for pointwise and reductions."""
    return inductor(case, gm, sets, coordinate_descent_tuning=True, max_autotune=True, max_autotune_pointwise=True)


def liger(case: Case, gm: GraphModule, sets: list[list[Any]]) -> Any:
    """Liger-Kernel's own kernels, called as its modules call them."""
    if not case.liger or case.dtype == torch.float16 or case.shift:
        return None
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.softmax import LigerSoftmaxFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    functions = {
        "swiglu": lambda g, u: LigerSiLUMulFunction.apply(g, u),
        "rmsnorm": lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6),
        "layernorm": lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5),
        "softmax": lambda x: LigerSoftmaxFunction.apply(x),
    }
    if case.liger == "softmax_bwd" or case.backward:
        name = "softmax" if case.liger == "softmax_bwd" else case.liger
        graphs = []
        for seed in range(2):
            made = case.make("cuda", seed)
            args = [x.detach().requires_grad_() for x in (made if case.backward else made[:1])]
            out = functions[name](*args)
            graphs.append((args, out, torch.randn_like(out)))

        def backward(i: int) -> Any:
            args, out, grad = graphs[i % len(graphs)]
            return torch.autograd.grad(out, args, grad, retain_graph=True)

        return backward

    def call(i: int) -> Any:
        with torch.no_grad():
            return functions[case.liger](*sets[i % len(sets)])

    return call


# Tuning takes Inductor five to thirty seconds a case; these are the ones where it gained most in gpu_kernels.md, and one of each kind.
TUNED = {
    "chain8 bf16 65536x4096", "chain8 bf16 16384x16383", "softmax bf16 8192x8192", "softmax bf16 16384x16383", "rmsnorm bf16 16384x16383",
    "layernorm bf16 65536x4096", "layernorm bf16 16384x16383", "layernorm fp32 16384x16383", "rmsnorm bwd bf16 16384x16383",
    "layernorm bwd bf16 16384x16383", "softmax_from_output bf16 16384x16383", "rmsnorm_swiglu bf16 16384x16383",
}  # fmt: skip
PEERS = {"eager": eager, "inductor": inductor, "tuned": tuned, "liger": liger}


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


def main() -> None:
    """Run the cases that match, print a table, write JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="triton_gpu.json")
    parser.add_argument("--match", default="")
    parser.add_argument("--group", default="")
    parser.add_argument("--peers", default="inductor")
    parser.add_argument("--tune-log", action="store_true")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=500, help="start no further case after this long")
    parser.add_argument("--no-precompile", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--limit", type=int, default=1000)
    options = parser.parse_args()
    begin = time.time()
    words = [w for w in options.match.split(",") if w]
    cases = [
        c
        for c in all_cases()
        if (not words or any(all(p in c.name for p in w.split("+")) for w in words)) and options.group in c.group
    ]
    cases = cases[options.skip :][: options.limit]
    if not options.no_precompile:
        print(precompile(cases, (9, 0), os.cpu_count() or 4), flush=True)
    if "inductor" in options.peers:
        print(precompile_inductor(cases, 14), flush=True)
    import triton

    bench = Bench([p for p in options.peers.split(",") if p], options.tune_log, options.repeats)
    facts = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy_gbps": round(copy_ceiling()),
    }
    print(facts, flush=True)
    left_out = []
    for case in cases:
        if time.time() - begin > options.seconds:
            left_out.append(case.name)
            continue
        try:
            bench.run(case)
        except Exception as error:
            import traceback

            traceback.print_exc(limit=-4)
            bench.rows.append(
                {"case": case.name, "group": case.group, "failed": f"{type(error).__name__}: {error}"[:300]}
            )
            print("FAILED", case.name, type(error).__name__, str(error)[:300], flush=True)
    if left_out:
        print("left out for time:", "; ".join(left_out))
    Path(options.out).write_text(
        json.dumps({"facts": facts, "rows": bench.rows, "candidates": bench.candidates, "left_out": left_out})
    )


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    main()
