"""Fills the compilers' caches in parallel before anything is measured."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gpu_cases import Case
from gpu_graphs import graph_of, inputs_of
from gpu_peers import PEERS
from torch.fx import GraphModule


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
    Compiled(gm, example, collect, torch.device("cpu"), False, bind=False)
    return [] if case.shift else found  # what is written for a tensor that starts elsewhere depends on where


def precompile_source(job: tuple[Any, tuple[int, int]]) -> str | None:
    """Compile one kernel; what went wrong, or None."""
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
        failures = [
            f for f in pool.imap_unordered(precompile_source, [(s, capability) for s in unique], chunksize=2) if f
        ]
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


@contextlib.contextmanager
def card_alone() -> Iterator[None]:
    """Holds the card: of several processes one at a time runs kernels on it, while the others compile."""
    name = f"fxscope_bench_card_{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}.lock"
    with (Path(tempfile.gettempdir()) / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        torch.cuda.synchronize()


def _measure_alone() -> None:
    """In a worker: whatever Inductor times, it times with the card to itself."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    bench = CachingAutotuner.bench

    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        with card_alone():
            return bench(self, *args, **kwargs)

    CachingAutotuner.bench = alone  # type: ignore[method-assign]


def _tune_inductor(case: Case) -> tuple[str, str | None]:
    """Tune one case, for Inductor's disk cache; its name, and what went wrong or None."""
    try:
        with card_alone():
            gm, example = graph_of(case, case.make("cuda"))
            sets = [inputs_of(case, gm, example, 0)]
        PEERS["tuned"](case, gm, sets)(0)
        torch.cuda.synchronize()
    except Exception as error:
        return case.name, f"{type(error).__name__}: {error}".splitlines()[0][:200]
    finally:
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    return case.name, None


def tune_inductor(cases: list[Case], processes: int, seconds: float) -> list[str]:
    """Max-autotune and coordinate descent of all cases: they compile in parallel and are timed one at a time.

    Args:
        cases: What to tune.
        processes: How many compile at once.
        seconds: Cases that are not done by then are given up.

    Returns:
        The names of the cases whose choices lie in Inductor's disk cache.
    """
    begin, done = time.time(), []
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(processes, _measure_alone) as pool:
        results = pool.imap_unordered(_tune_inductor, cases, chunksize=1)
        for _ in cases:
            try:
                name, why = results.next(timeout=max(begin + seconds - time.time(), 0.01))
            except multiprocessing.TimeoutError:
                print(f"  Inductor tuned: given up after {seconds:.0f} s", flush=True)
                break
            if why is None:
                done.append(name)
            else:
                print(f"  Inductor tuned {name}: {why}", flush=True)
        pool.terminate()
    del os.environ["TORCHINDUCTOR_COMPILE_THREADS"]
    print(f"Inductor tuned {len(done)} of {len(cases)} cases in {time.time() - begin:.0f} s", flush=True)
    return done


def _sources_safely(case: Case) -> list[Any]:
    try:
        return sources_of(case)
    except Exception as error:
        print("  plan failed:", case.name, type(error).__name__, error)
        return []
