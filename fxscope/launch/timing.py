"""Timing side by side: warm-up, interleaved rounds, medians and percentiles; events and graph replay on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fxscope.errors import first_line
from fxscope.words import count

ENOUGH = 1e-3  # seconds that one sample should last, so that the clock does not show


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of one call.

    Attributes:
        samples: One per round.
        ratio: Median over the rounds of the baseline's sample divided by this one's: above 1 is faster; None without one.
        how: How it was measured, in words.
    """

    samples: tuple[float, ...]
    ratio: float | None
    how: str

    @property
    def median(self) -> float:
        """The median sample."""
        return quantile(self.samples, 0.5)

    @property
    def p10(self) -> float:
        """One in ten is faster."""
        return quantile(self.samples, 0.1)

    @property
    def p90(self) -> float:
        """One in ten is slower."""
        return quantile(self.samples, 0.9)


def quantile(samples: Sequence[float], share: float) -> float:
    """Quantile with linear interpolation between neighbours."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def measure(
    calls: Mapping[str, Callable[..., Any]],
    inputs: Sequence[Any],
    *,
    baseline: str | None = None,
    seconds: float = 1.0,
    rounds: int = 25,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Timing]:
    """Time several calls on the same inputs.

    The calls take turns in each round, so that a slow phase of the machine falls on all of them, and ratios are taken within
    a round. On a GPU a sample is a replay of a CUDA graph of several calls with inputs that rotate through more memory than the
    L2 cache holds, timed by events; what cannot be captured is timed by events alone.

    Args:
        calls: By name; each takes the inputs.
        inputs: Tensors and numbers.
        baseline: Name of the call that ratios compare with; the first one by default.
        seconds: Time to spend on each call, about.
        rounds: At most.
        cancelled: Asked between samples; what was measured until then is returned.
        progress: Told how many of how many rounds are done.
    """
    gpu = any(getattr(item, "is_cuda", False) for item in inputs)
    timers = {name: (_gpu_timer(call, inputs) if gpu else _cpu_timer(call, inputs)) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    for at in range(rounds):
        for name, (timer, _) in timers.items():
            if cancelled():
                break
            begun = time.perf_counter()
            samples[name].append(timer())
            spent[name] += time.perf_counter() - begun
        if progress is not None:
            progress(at + 1, rounds)
        if (
            cancelled()
            or (at >= 4 and all(item >= seconds for item in spent.values()))
            or (at >= 2 and sum(spent.values()) >= 8 * seconds * len(calls))
        ):
            break
    first = samples.get(baseline or next(iter(calls), ""), [])
    found = {}
    for name, taken in samples.items():
        if taken:
            pairs = [a / b for a, b in zip(first, taken, strict=False) if b]
            found[name] = Timing(
                samples=tuple(taken), ratio=quantile(pairs, 0.5) if pairs else None, how=timers[name][1]
            )
    return found


def _cpu_timer(call: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Callable[[], float], str]:
    import torch

    with torch.no_grad():
        call(*inputs)
        begun = time.perf_counter()
        call(*inputs)
        once = time.perf_counter() - begun
    inner = max(1, min(1000, int(ENOUGH / max(once, 1e-9))))

    def sample() -> float:
        with torch.no_grad():
            begun = time.perf_counter()
            for _ in range(inner):
                call(*inputs)
            return (time.perf_counter() - begun) / inner

    return sample, f"wall clock, {count(inner, 'call')} a sample, {count(torch.get_num_threads(), 'thread')}"


def _gpu_timer(call: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Callable[[], float], str]:
    import torch

    from fxscope.targets.replay import capture, seconds

    sets = rotation(inputs)
    inner = max(len(sets), 20)

    def one(at: int) -> None:
        with torch.no_grad():
            call(*sets[at % len(sets)])

    def all_of_them() -> None:
        for at in range(inner):
            one(at)

    all_of_them()
    try:
        graph = capture(one, inner)
    except Exception as error:  # noqa: BLE001 - a call that synchronises or allocates cannot be captured; said in words
        how = f"events around {count(inner, 'call')}, {count(len(sets), 'input set')} in rotation "
        how += f"(no CUDA graph: {first_line(error)})"
        return lambda: seconds(all_of_them, ahead=0) / inner, how
    how = f"CUDA graph of {count(inner, 'call')}, {count(len(sets), 'input set')} in rotation, events"
    return lambda: seconds(graph.replay) / inner, how


def rotation(inputs: Sequence[Any], most: int = 64) -> list[list[Any]]:
    """Copies of the inputs that together are at least three times the L2 cache, so that none is left there by the last call."""
    import torch

    size = sum(item.numel() * item.element_size() for item in inputs if isinstance(item, torch.Tensor))
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    count = min(most, max(1, -(-3 * cache // max(size, 1))))
    return [[item.clone() if isinstance(item, torch.Tensor) and at else item for item in inputs] for at in range(count)]
