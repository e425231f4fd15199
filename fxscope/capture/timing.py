"""``--time-launches``: sampled times of compiled forwards and backwards, by device events where tensors are on a GPU."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fxscope.capture.launches import Entry, like

_DENSE = 32  # calls that are all timed, after the first, which may still be compiling; then one in _STRIDE
_STRIDE = 16


class Samples:
    """Times of one direction of one entry, in seconds: their sum and extremes, for a program may run for weeks.

    Any thread of the program may add, and the one that flushes reads.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin at zero, in a forked child; another thread of the parent may have held the lock."""
        self._lock = threading.RLock()  # a signal handler may call the compiled function that it interrupted here
        self.number = 0
        self.total = 0.0
        self.low = float("inf")
        self.high = 0.0
        self.clock = "host"
        self._pending: list[tuple[Any, Any]] = []

    def add(self, seconds: float) -> None:
        """Take in one time."""
        with self._lock:
            self.total += seconds
            self.low, self.high = min(self.low, seconds), max(self.high, seconds)
            self.number += 1

    def add_events(self, begin: Any, end: Any) -> None:
        """Take in a pair of device events, to be read when both have passed."""
        self.clock = "device"
        with self._lock:
            self._pending.append((begin, end))

    def collect(self) -> None:
        """Read the pairs of events that have passed, without waiting for any.

        Only in a thread of the program's, between its calls: a query from another thread ends a CUDA graph that is being captured.
        """
        with self._lock:
            pending, self._pending = self._pending, []
        try:
            for begin, end in pending:
                if end.query():
                    self.add(begin.elapsed_time(end) / 1e3)
                else:
                    self.add_events(begin, end)
        except RuntimeError:
            return  # the device has failed, which the program hears from its own calls; what was taken is lost

    def summary(self) -> dict[str, Any] | None:
        """Count, total, mean, extremes of what was collected; None where nothing was sampled."""
        with self._lock:
            number, total, low, high = self.number, self.total, self.low, self.high
        if not number:
            return None
        mean = total / number
        return {"samples": number, "total": total, "mean": mean, "min": low, "max": high, "clock": self.clock}


class Timing:
    """Both directions of one entry."""

    def __init__(self) -> None:
        self.forward = Samples()
        self.backward = Samples()

    def forget(self) -> None:
        """Begin at zero, in a forked child."""
        self.forward.forget()
        self.backward.forget()

    def collect(self) -> None:
        """Read the device events that have passed."""
        self.forward.collect()
        self.backward.collect()

    def summary(self) -> dict[str, Any]:
        """The fields that ``fxscope.launches`` carries."""
        rows = {"forward": self.forward.summary(), "backward": self.backward.summary()}
        return {name: row for name, row in rows.items() if row is not None}


class _Watch:
    """Times one span on the device that the arguments are on."""

    def __init__(self, samples: Samples, cuda: Any) -> None:
        self.samples = samples
        self.cuda = cuda
        self.begin: Any = None
        if cuda is not None:
            self.begin = cuda.Event(enable_timing=True)
            self.begin.record()
        else:
            self.begin = time.perf_counter()

    def stop(self) -> None:
        if self.cuda is None:
            self.samples.add(time.perf_counter() - self.begin)
        else:
            end = self.cuda.Event(enable_timing=True)
            end.record()
            self.samples.add_events(self.begin, end)


def timed(function: Callable[..., Any], entry: Entry) -> Callable[..., Any]:
    """The compiled function with sampled calls timed; a sampled call's backward is timed by hooks on its node."""
    timing = entry.timing = Timing()
    seen = 0

    def sampled(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 1 or (seen > _DENSE and seen % _STRIDE):
            return function(*args, **kwargs)
        cuda = _cuda_of(args)
        if cuda is not None:
            timing.collect()
        watch = _Watch(timing.forward, cuda)
        result = function(*args, **kwargs)
        watch.stop()
        _time_backward(result, timing.backward, cuda)
        return result

    return like(sampled, function)


def _cuda_of(args: tuple[Any, ...]) -> Any:
    """``torch.cuda`` where a tensor argument is on a GPU, else None."""
    if any(getattr(getattr(arg, "device", None), "type", None) == "cuda" for arg in args):
        cuda = sys.modules["torch"].cuda
        return None if cuda.is_current_stream_capturing() else cuda
    return None


def _time_backward(result: Any, samples: Samples, cuda: Any) -> None:
    config = sys.modules.get("torch._dynamo.config")
    if getattr(config, "compiled_autograd", False):
        return  # it would compile the hooks into its graph
    outputs = result if isinstance(result, tuple | list) else (result,)
    nodes = (getattr(output, "grad_fn", None) for output in outputs)
    compiled = next((node for node in nodes if node is not None and "CompiledFunctionBackward" in node.name()), None)
    if compiled is None:
        return
    watches: list[_Watch] = []
    compiled.register_prehook(lambda *_: watches.append(_Watch(samples, cuda)))
    compiled.register_hook(lambda *_: watches.pop().stop() if watches else None)
