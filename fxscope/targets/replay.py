"""Timing on a CUDA device: calls captured once as a CUDA graph, its replays timed by events with no gap of the host among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

AHEAD = 400_000  # cycles the device is kept busy while the host puts a replay and its events into the queue


def capture(call: Callable[[int], Any], launches: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``launches`` calls, which get 0, 1, 2..., after three that warm up the stream.

    Raises:
        Exception: What the call raises, or what cannot be captured in it (it waits for the device, say). The device and the random
            generator can be used afterwards.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        # relaxed: autograd's own thread, where a call has a backward in it, may allocate meanwhile
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
            for i in range(launches):
                call(i)
    except Exception:
        _end_capture()
        raise
    return graph


def _end_capture() -> None:
    """After a capture that failed, the random generator still believes in it; one that succeeds sets it right."""
    torch.cuda.synchronize()
    blank = torch.zeros(1, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        blank.add_(1)


def seconds(run: Callable[[], Any], ahead: int = AHEAD) -> float:
    """Seconds on the device between the start and the end of what ``run`` queues.

    Args:
        run: A graph's ``replay``, or calls.
        ahead: Cycles of waiting put before it; 0 for what the host itself is part of.
    """
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if ahead:
        torch.cuda._sleep(ahead)
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3
