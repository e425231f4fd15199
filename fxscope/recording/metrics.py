"""The numbers of ``compilation_metrics``: seconds by phase, and what is worth keeping of its hundred fields."""

from __future__ import annotations

from typing import Any

# Dumps of whole configurations and stacks: nine tenths of the bytes, read again when somebody asks for them.
_HEAVY = frozenset(
    {
        "dynamo_config",
        "inductor_config",
        "functorch_config",
        "compiler_config",
        "stack_trace",
        "exception_stack_trace",
        "graph_node_shapes",
        "triton_kernel_compile_times_us",
        "restart_reasons",
    }
)


_MOST = 1e30  # of any unit: nanoseconds since the beginning of the universe are 4e26


def keep(metrics: dict[str, Any]) -> dict[str, Any]:
    """The fields that a record carries."""
    return {key: value for key, value in metrics.items() if value is not None and key not in _HEAVY}


def number(value: Any) -> float | None:
    """A number of a metric, None for anything else and for what is so large that sums of it would not be finite."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) < _MOST else None


def integer(value: Any, otherwise: int | None) -> int | None:
    """An integer that JSON readers can hold, or what to take instead of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 else otherwise


def seconds(metrics: dict[str, Any], name: str) -> float | None:
    """A duration, whichever of its two notations the log has: ``<name>_time_s`` or microseconds under its newer name."""
    direct = number(metrics.get(f"{name}_time_s"))
    if direct is not None:
        return direct
    newer = {
        "entire_frame_compile": ("duration_us", "dynamo_cumulative_compile_time_us"),
        "backend_compile": ("aot_autograd_cumulative_compile_time_us",),
        "inductor_compile": ("inductor_cumulative_compile_time_us",),
    }
    for key in newer.get(name, ()):
        value = number(metrics.get(key))
        if value is not None:
            return value / 1e6
    return None


def interval(metrics: dict[str, Any]) -> tuple[float, float] | None:
    """Unix seconds of start and end, where the log has them."""
    start = number(metrics.get("start_time_us"))
    begin = start / 1e6 if start is not None else number(metrics.get("start_time"))
    if begin is None:
        return None
    end = number(metrics.get("end_time_us"))
    if end is not None:
        return begin, max(begin, end / 1e6)
    length = seconds(metrics, "entire_frame_compile")
    return None if length is None else (begin, begin + max(0.0, length))


def phases(metrics: dict[str, Any], *, has_aot: bool) -> dict[str, float]:
    """Disjoint seconds of a frame's compile: ``dynamo``, ``aot`` (``backend`` where no AOT graph was logged), ``inductor``."""
    whole = seconds(metrics, "entire_frame_compile")
    if whole is None:
        return {}
    backend = min(seconds(metrics, "backend_compile") or 0.0, whole)
    inductor = min(seconds(metrics, "inductor_compile") or 0.0, backend or whole)
    backend = max(backend, inductor)
    parts = {
        "dynamo": whole - backend,
        "aot" if has_aot or inductor else "backend": backend - inductor,
        "inductor": inductor,
    }
    return {name: value for name, value in parts.items() if value > 0}


def union_seconds(intervals: list[tuple[float, float]]) -> float:
    """Length of the union of intervals: compiles of several ranks or threads at once count once."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        if end > reached:
            total += end - max(begin, reached)
            reached = end
    return total
