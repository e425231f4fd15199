"""The two regimes: where the launch decides and where the bandwidth does, by a sweep over sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.errors import UsageError, first_line
from fxscope.launch.correctness import check, reference
from fxscope.launch.executors import prepare
from fxscope.launch.timing import measure
from fxscope.launch.traffic import traffic
from fxscope.passes.aten import to_aten
from fxscope.passes.buffers import unchanged_buffers
from fxscope.passes.cost import Machine
from fxscope.targets.target import Kind, Target

if TYPE_CHECKING:
    from torch.fx import GraphModule

Make = Callable[[int], "tuple[GraphModule, list[Any]]"]


class Point(msgspec.Struct, kw_only=True):
    """One size.

    Attributes:
        ms: Milliseconds by executor; those that failed or were wrong at this size are missing, a note of the sweep says why.
        max_rel_err: Of the same executors, against the reference (``correctness.reference``).
    """

    size: int
    bytes: int
    ms: dict[str, float]
    max_rel_err: dict[str, float]


class Sweep(msgspec.Struct, kw_only=True):
    """Sizes, smallest first.

    Attributes:
        kinds: By executor: ``measured``, ``modelled`` or ``interpreted``; only like kinds are compared.
        crossover_bytes: By executor: traffic at which the bytes take as long as the fixed cost; null where the sweep shows one
            regime only.
        sentence: What the figures say.
    """

    points: list[Point]
    kinds: dict[str, Kind]
    fixed_ms: dict[str, float]
    gbps: dict[str, float]
    crossover_bytes: dict[str, int | None]
    sentence: str
    notes: list[str]


def sweep(
    make: Make,
    sizes: Sequence[int],
    executors: Sequence[str | Target],
    machine: Machine,
    *,
    seconds: float = 0.2,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] | None = None,
) -> Sweep:
    """Time a family of graphs; at every size each executor is checked first, and a wrong one is not timed.

    Args:
        make: The graph and inputs of one size.
        sizes: Any order.
        executors: Names or targets; the modelled ones give their model's time.
        machine: Ceilings.
        seconds: For each executor at each size.
        cancelled: Asked between sizes.
        progress: Told in words.

    Raises:
        UsageError: No size could be run.
    """
    points: list[Point] = []
    notes: list[str] = []
    kinds: dict[str, Kind] = {}
    for size in sorted(set(sizes)):
        if cancelled():
            notes.append("cancelled")
            break
        if progress is not None:
            progress(f"size {size}")
        point = _point(make, size, executors, machine, seconds, cancelled, notes, kinds)
        if point is not None and point.ms:
            points.append(point)
    if not points:
        raise UsageError(f"no size could be run: {'; '.join(notes) or 'none was given'}")
    names = [name for name in kinds if any(name in point.ms for point in points)]  # in the order asked for
    fixed, rate, cross = {}, {}, {}
    for name in names:
        fixed[name], rate[name], cross[name] = regimes([(p.bytes, p.ms[name]) for p in points if name in p.ms])
    return Sweep(
        points=points,
        kinds={name: kinds[name] for name in names},
        fixed_ms=fixed,
        gbps=rate,
        crossover_bytes=cross,
        sentence=_sentence(points, kinds, fixed, rate, cross),
        notes=notes,
    )


def _point(
    make: Make,
    size: int,
    executors: Sequence[str | Target],
    machine: Machine,
    seconds: float,
    cancelled: Callable[[], bool],
    notes: list[str],
    kinds: dict[str, Kind],
) -> Point | None:
    try:
        gm, inputs = make(size)
        moved = traffic(to_aten(gm, inputs, decompositions="inductor")).fused_bytes
        expected = reference(gm, inputs)
    except Exception as error:  # noqa: BLE001 - a size that the graph does not allow is a note
        notes.append(f"size {size}: {first_line(error)}")
        return None
    calls: dict[str, Callable[..., Any]] = {}
    ms: dict[str, float] = {}
    errors: dict[str, float] = {}
    for item in executors:
        name = item if isinstance(item, str) else item.name
        try:
            executor = prepare(item, gm, inputs, machine=machine)
            found = check(executor.call, gm, inputs, expected)
        except Exception as error:  # noqa: BLE001 - whatever a compiled graph raises is a note
            notes.append(f"size {size}: {name}: {first_line(error)}")
            continue
        if not found.within:
            detail = found.text or f"relative error {found.max_rel:.1e}, allowed {found.tolerance:.0e}"
            notes.append(f"size {size}: {name} is wrong and not timed: {detail}")
            continue
        kinds[name] = executor.kind
        errors[name] = found.max_rel
        if executor.modelled is not None:
            ms[name] = executor.modelled * 1e3
        else:
            calls[name] = executor.call
    given = [item.detach().clone() if hasattr(item, "detach") else item for item in inputs]
    with unchanged_buffers(gm):
        timed = measure(calls, given, seconds=seconds, rounds=15, cancelled=cancelled)
    ms.update({name: timing.median * 1e3 for name, timing in timed.items()})
    return Point(size=size, bytes=moved, ms=ms, max_rel_err=errors)


def regimes(samples: Sequence[tuple[int, float]]) -> tuple[float, float, int | None]:
    """Fixed milliseconds, GB/s, and the bytes at which both weigh the same.

    The fixed cost is the least time of the small half; the rate is that of the largest size without the fixed cost. None where
    the time at the largest size is under twice the fixed cost: the sweep never left the first regime.
    """
    ordered = sorted(samples)
    fixed = min(ms for _, ms in ordered[: max(1, (len(ordered) + 1) // 2)])
    largest, slowest = ordered[-1]
    if slowest < 2 * fixed:
        return fixed, largest / slowest / 1e6, None
    rate = largest / (slowest - fixed) / 1e6
    return fixed, rate, int(fixed * rate * 1e6)


def _sentence(
    points: list[Point],
    kinds: dict[str, Kind],
    fixed: dict[str, float],
    rate: dict[str, float],
    cross: dict[str, int | None],
) -> str:
    parts = []
    names = list(cross)
    for name, at in cross.items():
        said = labelled(name, kinds[name])
        if at is None:
            parts.append(
                f"{said} takes {_time(fixed[name])} whatever the size up to {_size(points[-1].bytes)}: launches decide, "
                "fewer and larger calls help"
            )
        else:
            parts.append(
                f"{said} takes {_time(fixed[name])} whatever the size below about {_size(at)} of traffic (launches decide); "
                f"above, time grows with bytes at {rate[name]:.1f} GB/s (bandwidth decides, only moving less helps)"
            )
    # A model's time or an interpreter's says nothing about this machine's, so it overtakes nothing.
    alike = [name for name in names[1:] if kinds[name] == kinds[names[0]] == "measured"]
    if alike:
        parts.append(_crossing(points, names[0], alike))
    return ". ".join(part for part in parts if part) + "."


def labelled(name: str, kind: Kind) -> str:
    """An executor's name, with what its times are where they were not measured."""
    return name if kind == "measured" else f"{name} ({kind})"


def _crossing(points: list[Point], first: str, others: list[str]) -> str:
    """Where another executor overtakes the first one."""
    found = []
    for name in others:
        shared = [point for point in points if first in point.ms and name in point.ms]
        wins = [point.ms[name] < point.ms[first] for point in shared]
        if shared and all(wins):
            found.append(f"{name} is faster than {first} at every size")
        elif shared and not any(wins):
            found.append(f"{name} is never faster than {first}")
        elif shared and wins[-1] and not wins[0]:
            found.append(f"{name} overtakes {first} at {_size(shared[wins.index(True)].bytes)}")
        elif shared:
            found.append(f"{name} and {first} take turns")
    return "; ".join(found)


def plot(found: Sweep, width: int = 58, height: int = 14) -> str:
    """Time against bytes, both logarithmic, as text; one letter per executor."""
    names = list(found.fixed_ms)
    cells = [
        (math.log10(max(1, p.bytes)), math.log10(p.ms[n]), at)
        for p in found.points
        for at, n in enumerate(names)
        if n in p.ms
    ]
    low_x, high_x = min(c[0] for c in cells), max(c[0] for c in cells)
    low_y, high_y = min(c[1] for c in cells), max(c[1] for c in cells)
    grid = [[" "] * width for _ in range(height)]
    for x, y, at in cells:
        column = int((x - low_x) / ((high_x - low_x) or 1) * (width - 1))
        line = height - 1 - int((y - low_y) / ((high_y - low_y) or 1) * (height - 1))
        mark = chr(ord("a") + at)
        grid[line][column] = mark if grid[line][column] in (" ", mark) else "*"
    labels = [""] * height
    labels[0], labels[-1] = _time(10**high_y), _time(10**low_y)
    lines = [f"{label:>9} |{''.join(row).rstrip()}" for label, row in zip(labels, grid, strict=True)]
    lines.append(f"{'':>9} +{'-' * width}")
    left, right = _size(int(10**low_x)), _size(int(10**high_x))
    lines.append(f"{'':>11}{left}{right:>{width - len(left)}}  traffic")
    lines.append(
        "  "
        + "  ".join(f"{chr(ord('a') + at)} {labelled(name, found.kinds[name])}" for at, name in enumerate(names))
        + "  * several"
    )
    return "\n".join(lines)


def _size(count: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def _time(ms: float) -> str:
    return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1e3:.3g} µs"


def scale_first_axis(gm: GraphModule, inputs: Sequence[Any], data: Sequence[int]) -> Make:
    """Graphs of other sizes from one: the first axis of the data inputs is repeated or cut.

    Args:
        gm: Must not have its sizes written into it (``view(8, -1)`` does); sizes it does not allow become notes of the sweep.
        inputs: As the graph was made for.
        data: Positions of the inputs that grow; parameters stay.
    """
    import torch

    def make(size: int) -> tuple[GraphModule, list[Any]]:
        given = []
        for at, item in enumerate(inputs):
            if at in data and isinstance(item, torch.Tensor) and item.dim():
                rows = item.shape[0]
                given.append(item.repeat(-(-size // rows), *[1] * (item.dim() - 1))[:size].contiguous())
            else:
                given.append(item)
        return gm, given

    return make
