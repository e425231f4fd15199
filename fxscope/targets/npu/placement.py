"""Where buffers lie: live ranges over the schedule, on-chip memory first, what does not fit is spilled by name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fxscope.targets.npu.access import Buffer
from fxscope.targets.npu.groups import Copy, Group, Matrix, Reduce, Windowed
from fxscope.targets.npu.isa import REGIONS
from fxscope.targets.npu.machine import Machine


class MemoryReport(msgspec.Struct, kw_only=True):
    """One planned region.

    Attributes:
        peak: Bytes it takes; ``bound``: most bytes that are live at once, which no plan can beat.
    """

    region: str
    peak: int
    bound: int

    @property
    def fragmentation(self) -> float:
        """Peak / bound."""
        return self.peak / self.bound if self.bound else 1.0


def schedule(groups: Sequence[Group]) -> list[Group]:
    """Groups in a topological order, nearest to the order in which they were made."""
    done = 0
    waiting = list(groups)
    out: list[Group] = []
    while waiting:
        ready = next(group for group in waiting if group.before & ~done == 0)
        waiting.remove(ready)
        out.append(ready)
        done |= 1 << ready.index
    return out


def reads(group: Group) -> list[Buffer]:
    """Buffers that a group reads."""
    found = [load.view.buffer for load in group.loads]
    anchor = group.anchor
    if isinstance(anchor, Matrix):
        found += [anchor.left.buffer, anchor.right.buffer]
    elif isinstance(anchor, Windowed):
        found.append(anchor.image.buffer)
        if anchor.weight is not None:
            found.append(anchor.weight.buffer)
    elif isinstance(anchor, Copy | Reduce):
        found.append(anchor.source.buffer)
    return found


def writes(group: Group) -> list[Buffer]:
    """Buffers that a group writes."""
    found = [store.view.buffer for store in group.stores]
    if isinstance(group.anchor, Copy):
        found.append(group.anchor.target.buffer)
    return found


def drop_dead(ordered: Sequence[Group], outputs: Sequence[Buffer]) -> list[Group]:
    """Without stores that nobody reads and groups that store nothing: copies that a product did not need after all."""
    kept = list(ordered)
    while True:
        used = {buffer for group in kept for buffer in reads(group)} | set(outputs)
        alive = []
        for group in kept:
            group.stores = [store for store in group.stores if store.view.buffer in used]
            copies = isinstance(group.anchor, Copy) and group.anchor.target.buffer in used
            if group.stores or copies:
                alive.append(group)
        if len(alive) == len(kept):
            return alive
        kept = alive


def live_ranges(ordered: Sequence[Group], outputs: Sequence[Buffer]) -> None:
    """Set first and last of every buffer, as places in the schedule."""
    for place, group in enumerate(ordered):
        for buffer in writes(group):
            buffer.first = place if buffer.first < 0 else buffer.first
            buffer.last = max(buffer.last, place)
        for buffer in reads(group):
            buffer.last = max(buffer.last, place)
    for buffer in outputs:
        buffer.last = len(ordered)


def place(
    buffers: Sequence[Buffer], outputs: Sequence[Buffer], machine: Machine
) -> tuple[dict[str, int], list[MemoryReport]]:
    """Give every buffer a region and an offset.

    Returns:
        Bytes of each region, and the plan of the regions that are shared over time.
    """
    sizes = dict.fromkeys(REGIONS, 0)
    leaving = set(outputs)
    shared: list[Buffer] = []
    for buffer in buffers:
        region = "w" if buffer.kind == "weight" else "i" if buffer.kind == "input" else "o" if buffer in leaving else ""
        if not region:
            if buffer.first >= 0:
                shared.append(buffer)
                continue
            region = "a"  # nobody writes it: an empty result
        buffer.region, buffer.offset = region, sizes[region]
        sizes[region] += buffer.bytes
    chip: list[Buffer] = []
    spilled: list[Buffer] = []
    if machine.chip.bytes:
        # Short-lived and small first: they are what on-chip memory holds most of.
        for buffer in sorted(shared, key=lambda b: ((b.last - b.first) * b.bytes, b.first)):
            if buffer.bytes <= machine.chip.bytes and _fits([*chip, buffer], machine.chip.bytes):
                chip.append(buffer)
            else:
                buffer.spilled = (
                    f"{buffer.bytes} bytes live in groups {buffer.first} to {buffer.last} do not fit on chip"
                )
                spilled.append(buffer)
        sizes["c"] = _pack(chip, 0)
    else:
        spilled = shared
    base = sizes["a"]
    sizes["a"] = max(base, _pack(spilled, base))
    for buffer in chip:
        buffer.region = "c"
    for buffer in spilled:
        buffer.region = "a"
    reports = [MemoryReport(region="a", peak=sizes["a"] - base, bound=lower_bound(spilled))]
    if machine.chip.bytes:
        reports.append(MemoryReport(region="c", peak=sizes["c"], bound=lower_bound(chip)))
    return sizes, reports


def _fits(buffers: Sequence[Buffer], limit: int) -> bool:
    return lower_bound(buffers) <= limit and _pack(buffers, 0) <= limit


def _pack(buffers: Sequence[Buffer], base: int) -> int:
    """Offsets by size, largest first, each at the lowest gap among those alive with it; returns the end."""
    placed: list[Buffer] = []
    end = base
    for buffer in sorted(buffers, key=lambda b: (-b.bytes, b.first)):
        at = base
        for other in sorted(placed, key=lambda b: b.offset):
            if other.last < buffer.first or buffer.last < other.first:
                continue
            if other.offset - at >= buffer.bytes:
                break
            at = max(at, other.offset + other.bytes)
        buffer.offset = at
        placed.append(buffer)
        end = max(end, at + buffer.bytes)
    return end


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Most bytes alive at one place of the schedule."""
    events: dict[int, int] = {}
    for buffer in buffers:
        events[buffer.first] = events.get(buffer.first, 0) + buffer.bytes
        events[buffer.last + 1] = events.get(buffer.last + 1, 0) - buffer.bytes
    live = most = 0
    for at in sorted(events):
        live += events[at]
        most = max(most, live)
    return most
