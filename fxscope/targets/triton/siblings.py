"""Small kernels that need nothing of one another, in one launch: the programs of a launch are dealt out among them."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fxscope.targets.triton.emit import OVERLAP, Source, Writer
from fxscope.targets.triton.fuse import Plan
from fxscope.targets.triton.ir import Kernel, Memory
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import SMS, Schedule, candidates, may_overlap, power_of_two, traffic
from fxscope.targets.triton.tiles import nest_of

SMALL = 4 * 2**20  # bytes that a device moves while it launches one kernel
SHORT_ROWS = 4096  # elements of the rows that a program holds at a time: 32 a thread
MAX_ARGUMENTS = 120  # of one launch: a kilobyte of addresses


class Siblings(Nest):
    """Several loop nests that one launch runs side by side; it has none of its own.

    Attributes:
        members: Their nests, in the order in which programs are dealt out.
    """

    def __init__(self, members: Sequence[Nest]) -> None:
        kernels = [nest.kernel for nest in members]
        self.members = sorted(members, key=lambda nest: not nest.reductions)  # what takes long starts first
        self.axes = members[0].axes
        self.kernel = Kernel(
            kernels[0].index,
            [value for kernel in kernels for value in kernel.values],
            [store for kernel in kernels for store in kernel.stores],
            nodes=[node for kernel in kernels for node in kernel.nodes],
        )
        self.picks, self.reductions, self.partials = [], [], []
        self.rows, self.cols = (), ()


@candidates.register
def _several(nest: Siblings) -> list[Schedule]:
    """How much of a member a program takes, what to take untimed first.

    ``block`` elements of a pointwise member; of a sum ``tile`` results, ``depth`` elements of the sum at a time.
    """
    total = sum(member.row_count * member.col_count for member in nest.members)
    block = max(128, min(1024, power_of_two(-(-total // (2 * SMS)))))
    sizes = dict.fromkeys([(block, 4), (256, 4), (512, 4), (1024, 4), (1024, 8)])
    firsts = {member: _first(member) for member in nest.members}
    results = sum(
        member.row_count for member, first in firsts.items() if first and first.form == "loop" and first.tile > 1
    )
    if not results:
        return [Schedule("several", *size) for size in sizes]
    tile = 8 if results < 16 * SMS else 16
    sums = dict.fromkeys([(tile, 512), (8, 512), (16, 512), (8, 128), (16, 128), (32, 64)])
    return [
        *(Schedule("several", block, 4, tile=tile, depth=depth) for tile, depth in sums),
        *(Schedule("several", *size, tile=tile, depth=512) for size in list(sizes)[1:]),
        Schedule("several", 1024, 8, tile=16, depth=512),
    ]


def launches(plan: Plan, products: Mapping[int, Kernel]) -> list[list[Kernel]]:
    """The kernels of a plan in an order in which they can run; those in one list are one launch.

    Args:
        plan: The island's kernels.
        products: Kernels that compute a library call's result too, by their index: that call.
    """
    into = {library.index: index for index, library in products.items()}
    needs: dict[int, set[int]] = {index: set() for index in plan.kernels if index not in into}
    for index, kernel in plan.kernels.items():
        unit = into.get(index, index)
        needs[unit] |= {into.get(need, need) for need in kernel.needs} - {unit}
    units = Units(needs)
    joined: dict[int, tuple[list[Kernel], set[Memory]]] = {}
    for index, kernel in plan.kernels.items():
        if index in into or index in products or not kernel.stores or not _is_small(kernel, plan):
            continue
        memories = _memories(kernel)
        for first, (kernels, held) in joined.items():
            if units.are_apart(first, index) and len(held | memories) <= MAX_ARGUMENTS:
                units.join(first, index)
                kernels.append(kernel)
                held |= memories
                break
        else:
            joined[index] = [kernel], memories
    return [joined[index][0] if index in joined else [plan.kernels[index]] for index in units.order()]


class Units:
    """Launches and what each waits for, directly (``needs``) and through others (``before``: a bit for each of ``bits``)."""

    def __init__(self, needs: dict[int, set[int]]) -> None:
        self.needs = needs
        self.bits = {unit: 1 << place for place, unit in enumerate(needs)}
        self.before = dict.fromkeys(needs, 0)
        for unit in self.order():
            for need in needs[unit]:
                self.before[unit] |= self.bits[need] | self.before[need]

    def are_apart(self, one: int, other: int) -> bool:
        """Whether neither waits for the other."""
        return not (self.before[one] & self.bits[other] or self.before[other] & self.bits[one])

    def join(self, first: int, other: int) -> None:
        """Make two that are apart one launch, which goes by the name of the first."""
        self.needs[first] |= self.needs.pop(other)
        self.bits[first] |= self.bits.pop(other)
        self.before[first] |= self.before.pop(other)
        together = self.bits[first] | self.before[first]
        for unit, some in self.needs.items():
            if other in some:
                self.needs[unit] = some - {other} | {first}
            if self.before[unit] & self.bits[first]:
                self.before[unit] |= together

    def order(self) -> list[int]:
        """An order in which each stands behind what it needs, else by their numbers."""
        done: dict[int, None] = {}
        begun: set[int] = set()
        for start in sorted(self.needs):
            waiting = [start]
            while waiting:
                unit = waiting[-1]
                ahead = sorted(self.needs[unit] - done.keys(), reverse=True)
                if ahead:
                    begun.add(unit)
                    if not begun.isdisjoint(ahead):
                        raise AssertionError(f"launches wait for one another: {sorted(begun - done.keys())}")
                    waiting += ahead
                else:
                    done[waiting.pop()] = None
        return list(done)


def _is_small(kernel: Kernel, plan: Plan) -> bool:
    """Whether a kernel is over sooner than the next one is launched, and can be written as a member."""
    if kernel.extern is not None:
        return False
    nest = nest_of(kernel, plan.axes)
    first = _first(nest)
    if nest.partials or first is None:
        return False
    # How many partial sums there are is not known before the kernel that makes them is written.
    unsized = sum(
        2 * SMS * math.prod(plan.axes.shape(value.dims)[1:]) * value.dtype.itemsize
        for value in kernel.values
        if value.memory is not None and value.strides and not value.memory.shape
    )
    return traffic(nest) + unsized <= SMALL and not (unsized and first.form == "row")


def _memories(kernel: Kernel) -> set[Memory]:
    read = {value.memory for value in kernel.values if value.memory is not None}
    return read | {memory for _, memory, _ in kernel.stores}


def _is_member(schedule: Schedule) -> bool:
    """Whether a formulation goes with others: blocks, tiles and loops, and short rows of which a program takes a few and no more."""
    if schedule.form == "row":
        bound = schedule.programs or schedule.chunks > 1 or schedule.weights != "reload"
        return not bound and schedule.block * schedule.tile <= SHORT_ROWS
    return schedule.form in ("flat", "tiles", "loop")


def _first(nest: Nest) -> Schedule | None:
    """The formulation of a nest that goes with others; None where none does."""
    return next(filter(_is_member, candidates(nest)), None)


def _member_schedule(nest: Nest, schedule: Schedule) -> Schedule:
    """How a member is written where the launch has a schedule."""
    first = _first(nest)
    assert first is not None, "what cannot be a member is not joined"
    first = replace(first, warps=schedule.warps, maxnreg=None)
    if first.form == "flat":
        return replace(first, block=min(schedule.block, max(power_of_two(nest.col_count), 128)))
    if first.form == "loop" and first.tile > 1:  # a sum along an outer dimension
        return replace(first, block=min(power_of_two(nest.col_count), schedule.depth), tile=schedule.tile)
    return first


def write_siblings(
    nest: Siblings, schedule: Schedule, name: str, notes: Mapping[str, str], overlap: bool = False
) -> Source:
    """One kernel that calls a function per member; members that differ in names alone share theirs."""
    written = [
        Writer(member, _member_schedule(member, schedule), f"{member.kernel.nodes[-1]}_part", notes).write(part=True)
        for member in nest.members
    ]
    programs = sum(math.prod(source.grid) for source in written)
    moved = sum(traffic(member) for member in nest.members)
    overlap = overlap and schedule.early and may_overlap(moved, programs)
    shared: dict[str, list[Source]] = {}
    for source in written:
        shared.setdefault(_shape(source.text), []).append(source)
    lines: list[str] = []
    nodes: dict[int, tuple[str, ...]] = {}
    functions: dict[str, str] = {}
    for alike in shared.values():
        functions.update({source.name: alike[0].name for source in alike})
        for line, found in zip(alike[0].text.splitlines(), _nodes_of_lines(alike), strict=True):
            lines.append(line)
            if found:
                nodes[len(lines)] = found
        lines += ["", ""]
    memories = list(dict.fromkeys(memory for source in written for memory in source.args))
    arguments = ", ".join(f"{memory.name}_ptr" for memory in memories)
    lines += ["@triton.jit", f"def {name}({arguments}):"]
    lines.append(f'    """{len(written)} kernels that need nothing of one another; {schedule.text()}."""')
    lines += OVERLAP * overlap
    lines.append("    program = tl.program_id(0)")
    _deal(written, nest.members, functions, 0, 1, lines, nodes)
    return Source(name, "\n".join(lines) + "\n", memories, [], (programs,), schedule, nodes, overlap)


def _deal(
    sources: Sequence[Source],
    members: Sequence[Nest],
    functions: Mapping[str, str],
    start: int,
    indent: int,
    lines: list[str],
    nodes: dict[int, tuple[str, ...]],
    *,
    word: str = "if",
) -> None:
    """Call the member that a program belongs to, found by halving; ``word`` begins the choice."""
    space = "    " * indent
    if len(sources) == 1:
        if word == "elif":
            lines.append(f"{space}else:")
            space += "    "
        number = f"program - {start}" if start else "program"
        arguments = ", ".join([number, *(f"{memory.name}_ptr" for memory in sources[0].args)])
        lines.append(f"{space}{functions[sources[0].name]}({arguments})")
        nodes[len(lines)] = tuple(members[0].kernel.nodes)
        return
    half = len(sources) // 2
    middle = start + sum(math.prod(source.grid) for source in sources[:half])
    lines.append(f"{space}{word} program < {middle}:")
    _deal(sources[:half], members[:half], functions, start, indent + 1, lines, nodes)
    _deal(sources[half:], members[half:], functions, middle, indent, lines, nodes, word="elif")


def _nodes_of_lines(alike: Sequence[Source]) -> list[tuple[str, ...]]:
    """Per line of the first of several sources its nodes, and those of the same line in the others, whose comments may differ."""
    found: dict[int, dict[str, None]] = {}
    for source in alike:
        code = [at for at, line in enumerate(source.text.splitlines(), 1) if not line.lstrip().startswith("#")]
        for position, at in enumerate(code):
            found.setdefault(position, {}).update(dict.fromkeys(source.lines_to_nodes.get(at, ())))
    out, position = [], 0
    for line in alike[0].text.splitlines():
        comment = line.lstrip().startswith("#")
        out.append(() if comment else tuple(found[position]))
        position += not comment
    return out


def _shape(text: str) -> str:
    """A function's text without its own names: equal where two functions do the same with other arguments."""
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    own = {argument.arg for argument in function.args.args}
    own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    places: dict[str, str] = {}

    class Renamed(ast.NodeTransformer):
        def visit_arg(self, node: ast.arg) -> ast.arg:
            return ast.arg(places.setdefault(node.arg, f"own {len(places)}"))

        def visit_Name(self, node: ast.Name) -> ast.Name:
            name = places.setdefault(node.id, f"own {len(places)}") if node.id in own else node.id
            return ast.Name(name, node.ctx)

    function.name, function.body = "", function.body[1:]  # the docstring
    return ast.dump(Renamed().visit(function))
