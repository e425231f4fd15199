"""What this machine can do at most, measured: copy bandwidth, matrix rate, and the cost of a launch."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

from fxscope import words
from fxscope.passes.cost import Machine


@cache
def ceilings(device: str = "cpu", size: int | None = None) -> Machine:
    """Measure once per process and device.

    Copy: a tensor far larger than the caches, read and written (2 bytes of traffic per byte). Matrix rate: one large product
    in fp32 (bf16 on a GPU). Launch: a one-element add.

    Args:
        device: ``cpu`` or ``cuda``.
        size: Bytes of the copied tensor; by default 64 MiB on a CPU, 1 GiB on a GPU.
    """
    import torch

    gpu = device != "cpu"
    count = (size or (1 << 30 if gpu else 64 << 20)) // 4
    # Random numbers: on constant ones a GPU draws less power and runs faster.
    source = torch.rand(count, device=device)
    target = torch.empty_like(source)
    side = 8192 if gpu else 768
    matrix = torch.rand(side, side, device=device).to(torch.bfloat16 if gpu else torch.float32)
    many = 20 if gpu else 1  # calls between two waits, which cost tens of microseconds on a GPU
    small = torch.ones(1, device=device)
    with torch.no_grad():
        copy = _best(lambda: target.copy_(source), device, inner=many)
        product = _best(lambda: matrix @ matrix, device, inner=many)
        launch = _best(lambda: small + small, device, inner=200)
    return Machine(
        bandwidth=2 * 4 * count / copy,
        flops=2 * side**3 / product,
        launch=launch,
        origin=f"measured on {device} with {words.count(torch.get_num_threads(), 'thread')}"
        if not gpu
        else f"measured on {device}",
    )


def _best(call: Callable[[], object], device: str, inner: int = 1, repeats: int = 7) -> float:
    """Seconds of the fastest of several repeats: a ceiling is what the machine can do undisturbed."""
    import torch

    def wait() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    call()
    wait()
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(inner):
            call()
        wait()
        best = min(best, (time.perf_counter() - begun) / inner)
    return best
