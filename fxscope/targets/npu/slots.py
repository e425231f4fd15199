"""Where a group's values lie in the accumulator while one tile is worked on: live ranges and slots."""

from __future__ import annotations

from dataclasses import dataclass, field

from fxscope.targets.npu.groups import Group, Matrix, Windowed
from fxscope.targets.npu.machine import Machine


@dataclass
class Slots:
    """Slot of every value of a group.

    Attributes:
        kinds: Kind of each slot.
        of: Value id to slot.
        reused: Micro index to True where its result takes over its first operand's slot.
    """

    kinds: list[str] = field(default_factory=list)
    of: dict[int, int] = field(default_factory=dict)

    def lines(self, rows: int, cols: int, machine: Machine) -> int:
        """Accumulator lines of one set of slots for a tile of rows x cols."""
        return sum(slot_lines(kind, rows, cols, machine) for kind in self.kinds)


def slot_lines(kind: str, rows: int, cols: int, machine: Machine) -> int:
    """Lines of one value."""
    width = machine.lines(cols, 4)
    return {"full": rows * width, "row": width, "col": rows, "one": 1}[kind]


def allocate(group: Group) -> Slots:
    """Slots by linear scan: loads first (they are prefetched together), results over operands that die.

    Operands that do not change from tile to tile (``row``, ``one``) keep their slot to themselves, so that a tile can
    find them loaded.
    """
    slots = Slots()
    last: dict[int, int] = {}
    for index, micro in enumerate(group.micros):
        for source in micro.sources:
            last[source] = index
    for store in group.stores:
        last[store.number] = len(group.micros)
    free: dict[str, list[int]] = {"full": [], "row": [], "col": [], "one": []}
    pinned: set[int] = set()

    def take(kind: str) -> int:
        if free[kind]:
            return free[kind].pop()
        slots.kinds.append(kind)
        return len(slots.kinds) - 1

    if isinstance(group.anchor, Matrix | Windowed):
        slots.of[0] = take(group.kinds[0])
    for load in group.loads:
        slots.of[load.number] = take(load.kind)
        if load.kind in ("row", "one"):
            pinned.add(load.number)
    for index, micro in enumerate(group.micros):
        dying = [
            source for source in dict.fromkeys(micro.sources) if last.get(source) == index and source not in pinned
        ]
        kind = group.kinds[micro.result]
        heir = micro.sources[-1] if micro.fn == "sel" else None
        # `sel` starts from its last operand and reads the others later: only that one may be written over.
        candidates = [heir] if heir is not None else list(micro.sources) if micro.op != "red" else []
        over = next(
            (source for source in candidates if source in dying and group.kinds[source] == kind),
            None,
        )
        if over is not None:
            slots.of[micro.result] = slots.of[over]
            dying.remove(over)
            released = [source for source in dying if slots.of[source] != slots.of[over]]
        else:
            slots.of[micro.result] = take(kind)
            released = dying
        for source in released:
            free[group.kinds[source]].append(slots.of[source])
        if micro.result not in last:
            last[micro.result] = index
    return slots


def fits(group: Group, machine: Machine) -> bool:
    """Whether the smallest useful tile of a group fits half of the accumulator (the other half is worked on)."""
    slots = allocate(group)
    half = machine.acc_lines // 2
    if group.anchor is not None:
        return slots.lines(4, min(group.cols, 4 * machine.line_words), machine) <= half
    cols = group.cols if group.reduces else min(group.cols, 4 * machine.line_words)
    if group.reduces:
        return slots.lines(1, cols, machine) <= machine.acc_lines
    return slots.lines(4, cols, machine) <= half
