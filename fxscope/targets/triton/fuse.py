"""From an island to kernels: which nodes share a loop nest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxscope.errors import UsageError
from fxscope.targets.triton.builder import Builder, Ref
from fxscope.targets.triton.ir import Axes, Dims, Incompatible, Kernel, Memory, Value
from fxscope.targets.triton.lower import Loader, apply
from fxscope.targets.triton.nodes import EXTERN, VIEWS, Key, adds_neighbours, dense, packet, sums_outer
from fxscope.targets.triton.titles import free_name

MAX_POINTERS = 40
# What the Python that starts kernels uses.
HOST = ("call", "device", "empty", "fits", "shifted_copies", "torch", "inf", "nan")
MAX_VALUES = 256  # of a kernel: more please no compiler, and the writer recurs as deep as they hang on one another
MAX_ROW = 32768  # columns that one program holds while it adds up partial sums


class Plan:
    """The kernels of an island, in the order in which they run.

    Attributes:
        inputs: Memory of each placeholder that is a tensor, None for a number.
        outputs: Per output of the island: its memory (or input) and the FX node whose ``meta["val"]`` says how it is seen.
    """

    def __init__(self, island: GraphModule) -> None:
        self.island = island
        self.axes = Axes()
        self.kernels: dict[int, Kernel] = {}
        self.inputs: list[Memory | None] = []
        self.outputs: list[tuple[Memory | None, Any]] = []
        self.refs: dict[Key, Ref] = {}
        self.home: dict[Key, int] = {}
        self.memory: dict[Key, Memory] = {}
        self.partials: dict[int, int] = {}  # kernel -> the axis of its partial sums
        self.finishing: dict[tuple[int, tuple[int, ...]], int] = {}
        self.names = set(HOST)
        self._plan()

    # -- reading the graph

    def _plan(self) -> None:
        for node in self.island.graph.nodes:
            if node.op == "placeholder":
                value = node.meta["val"]
                memory = None
                if isinstance(value, torch.Tensor):
                    memory = Memory(
                        free_name(self, node.name), value.dtype, tuple(value.shape), tuple(value.stride()), node.name
                    )
                    self.memory[(node, 0)] = memory
                self.inputs.append(memory)
            elif node.op == "call_function":
                name = packet(node)
                if name in EXTERN:
                    self._extern(node, name)
                elif name not in VIEWS and name != "getitem":
                    self._fuse(node, name)
            elif node.op == "output":
                for out in node.args[0]:
                    self.outputs.append(self._output(out))
            elif node.op == "get_attr":
                raise UsageError(f"island holds the attribute {node.target}: lift it to an input")
        self.kernels = {index: self.kernels[index] for index in self._order()}

    def root(self, node: Node) -> tuple[Key, list[Node]]:
        """The result that a chain of views looks at, and the views, innermost first."""
        views: list[Node] = []
        while True:
            if node.op != "call_function":
                return (node, 0), views
            name = packet(node)
            if name == "getitem":
                producer: Any = node.args[0]
                if packet(producer) not in VIEWS:
                    return (producer, int(node.args[1])), views
                views.insert(0, node)
                node = producer.args[0]
            elif name in VIEWS:
                views.insert(0, node)
                node = node.args[0]
            else:
                return (node, 0), views

    def buffer(self, key: Key) -> Memory:
        """Where a kernel's result lies in memory; makes that kernel store it."""
        if key not in self.memory:
            node, index = key
            value = node.meta["val"]
            value = value[index] if isinstance(value, (tuple, list)) else value
            kernel = self.kernels[self.home[key]]
            name = free_name(self, node.name if index == 0 else f"{node.name}_{index}")
            memory = Memory(name, value.dtype, tuple(value.shape), dense(value))
            self.memory[key] = memory
            if kernel.extern is None:
                ref = self.refs[key]
                kernel.stores.append((ref.value, memory, ref.dims))
        return self.memory[key]

    def _output(self, out: Any) -> tuple[Memory | None, Any]:
        if not isinstance(out, Node):
            return None, out
        key, views = self.root(out)
        if key[0].op != "placeholder" and self._is_partial(key):
            self._finish(key)
        if key[0].op == "placeholder" and key not in self.memory:
            return None, out  # a number
        return self.buffer(key), out if views else None

    # -- kernels

    def _extern(self, node: Node, name: str) -> None:
        kernel = Kernel(max(self.kernels, default=-1) + 1, nodes=[node.name])
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, Node) and isinstance(arg.meta["val"], torch.Tensor):
                key, views = self.root(arg)
                if key[0].op != "placeholder":
                    if self._is_partial(key):
                        self._finish(key)
                    kernel.needs.add(self.home[key])
                args.append((self.buffer(key), arg if views else None))
            else:
                args.append(arg)
        kernel.extern = (node.target, tuple(args), dict(node.kwargs))
        self.kernels[kernel.index] = kernel
        self.home[(node, 0)] = kernel.index
        self.buffer((node, 0))

    def _fuse(self, node: Node, name: str) -> None:
        keys = {self.root(arg)[0] for arg in node.all_input_nodes}
        homes = {self.home[key] for key in keys if key in self.home}
        homes = {h for h in homes if self.kernels[h].extern is None}
        beside = {
            k.index for k in self.kernels.values() if k.extern is None and self._reads(k) & self._memories(keys)
        } - homes
        tries = [
            homes | beside,
            homes,
            *({h} for h in sorted(homes, reverse=True)),
            *({h} for h in sorted(beside, reverse=True)),
        ]
        outer = name == "aten.sum" and sums_outer(node)
        # Programs keep sums over the rows that they run down; a sum along the rows is a row's own.
        partials = [outer, not outer] if name == "aten.sum" and not adds_neighbours(node) else [False]
        for inside in [*(t for t in tries if t), set()]:
            for partial, share in itertools.product(partials, (True, False)):
                try:
                    self._attempt(node, name, inside, share, partial)
                    return
                except Incompatible:
                    continue
        raise UsageError(f"{node.name} = {name} cannot be one Triton kernel; `supports` should have refused it")

    def _memories(self, keys: set[Key]) -> set[Memory]:
        return {self.memory[key] for key in keys if key in self.memory}

    def _reads(self, kernel: Kernel) -> set[Memory]:
        return {value.memory for value in kernel.values if value.memory is not None}

    def _attempt(self, node: Node, name: str, inside: set[int], share: bool, partial: bool) -> None:
        old = self.axes
        self.axes = old.copy()
        build = Builder(self.axes)
        try:
            merged = [value for index in sorted(inside) for value in self.kernels[index].values]
            loader = Loader(self, build, merged, inside, share)
            build.node, build.partial = node.name, partial
            results = apply(node, name, build, loader)
            values = [*merged, *_used(build.values, results)]
            if inside and len(values) > MAX_VALUES:
                raise Incompatible("too long")
            check(values, self.axes)
            if len(self._reads(Kernel(0, values))) + len(build.values) // 8 > MAX_POINTERS and inside:
                raise Incompatible("too many arguments")
            if inside and self._would_cycle(inside, loader.needs):
                raise Incompatible("a kernel between them needs one and feeds the other")
            if not loader.follows and inside and not _same_space(values, merged, self.axes):
                raise Incompatible("reads the same input over another space")
        except Incompatible:
            self.axes = old
            raise
        target = min(inside) if inside else max(self.kernels, default=-1) + 1
        kernel = Kernel(target, values)
        for index in sorted(inside):
            part = self.kernels.pop(index)
            kernel.stores += part.stores
            kernel.needs |= part.needs
            kernel.nodes += part.nodes
            self.partials.update({target: self.partials.pop(index)} if index in self.partials else {})
        kernel.needs = {target if need in inside else need for need in kernel.needs | loader.needs} - {target}
        for other in self.kernels.values():
            other.needs = {target if need in inside else need for need in other.needs}
        kernel.nodes.append(node.name)
        self.kernels[target] = kernel
        for key, home in self.home.items():
            if home in inside:
                self.home[key] = target
        for index, ref in enumerate(results):
            if ref is not None:
                self.refs[(node, index)] = ref
                self.home[(node, index)] = target

    def _would_cycle(self, inside: set[int], needs: set[int]) -> bool:
        """Whether one of ``inside`` needs another, through memory or through kernels between them."""
        if any(self.kernels[index].needs & inside for index in inside):
            return True
        waiting = [n for index in inside for n in self.kernels[index].needs] + list(needs)
        seen: set[int] = set()
        while waiting:
            index = waiting.pop()
            if index in seen or index in inside:
                continue
            seen.add(index)
            if self.kernels[index].needs & inside:
                return True
            waiting += self.kernels[index].needs
        return False

    def _order(self) -> list[int]:
        order: list[int] = []

        def visit(index: int) -> None:
            if index not in order:
                for need in sorted(self.kernels[index].needs):
                    visit(need)
                order.append(index)

        for index in sorted(self.kernels):
            visit(index)
        return order

    # -- partial sums

    def _is_partial(self, key: Key) -> bool:
        return key in self.refs and self.refs[key].value.partial

    def partial_memory(self, key: Key) -> tuple[Memory, int]:
        """Where a kernel leaves the partial sums of a result, and the axis that counts them."""
        kernel = self.kernels[self.home[key]]
        if kernel.index not in self.partials:
            self.partials[kernel.index] = self.axes.new(2)  # the schedule says how many there are
        axis = self.partials[kernel.index]
        value = self.refs[key].value
        for stored, memory, _ in kernel.stores:
            if stored is value:
                return memory, axis
        memory = Memory(free_name(self, value.name + "_parts"), value.dtype, (), ())
        kernel.stores.append((value, memory, self.refs[key].dims))
        return memory, axis

    def _finish(self, key: Key) -> None:
        """Adds up partial sums that nothing else does anything to, several of one kernel together."""
        home = self.home[key]
        shape = tuple(size for size in self.axes.shape(self.refs[key].dims) if size != 1)
        index = self.finishing.get((home, shape))
        old = self.kernels[index] if index is not None else None
        build = Builder(self.axes)
        build.node = key[0].name
        total = Loader(self, build, [], set(), share=False).total(key)
        if old is None:
            old = Kernel(max(self.kernels) + 1, needs={home}, nodes=[key[0].name])
            self.kernels[old.index] = old
            self.finishing[(home, shape)] = old.index
        else:
            for one, other in zip(_sized(old.values[0].dims[1:]), _sized(build.values[0].dims[1:]), strict=True):
                self.axes.unify(one, other)
        old.values += build.values
        self.refs[key], self.home[key] = total, old.index


def _sized(dims: Dims) -> list[tuple[int, ...]]:
    """The dimensions of more than one element."""
    return [axes for axes in dims if axes]


def _used(values: list[Value], results: tuple[Ref | None, ...]) -> list[Value]:
    """Values that some result is computed from."""
    needed = {ref.value for ref in results if ref is not None}
    for value in reversed(values):
        if value in needed:
            needed.update(value.args)
    return [value for value in values if value in needed]


def spaces(values: list[Value], axes: Axes) -> Iterator[frozenset[int]]:
    """The set of axes of every value."""
    for value in values:
        yield frozenset(axes.all(value.dims))


def _same_space(values: list[Value], merged: list[Value], axes: Axes) -> bool:
    def full(of: list[Value]) -> frozenset[int]:
        return frozenset().union(*spaces(of, axes))

    return full(values) == full(merged) == full([v for v in values if v not in merged])


def check(values: list[Value], axes: Axes) -> None:
    """Whether values can share one loop nest.

    Raises:
        Incompatible: They cannot, and why.
    """
    full: frozenset[int] = frozenset().union(*spaces(values, axes))
    for value in values:
        flat = axes.all(value.dims)
        if len(set(flat)) != len(flat):
            raise Incompatible("one axis twice in a value")
    reductions = [value for value in values if value.op == "reduce"]
    if not reductions:
        return
    consumed = {arg for value in values for arg in value.args}
    row_sets = {frozenset(axes.flat(value.reduced)) for value in reductions if not value.partial}
    part_sets = {frozenset(axes.flat(value.reduced)) for value in reductions if value.partial}
    if len(row_sets) > 1 or len(part_sets) > 1:
        raise Incompatible("reductions over different dimensions")
    if row_sets and part_sets and next(iter(row_sets)) | next(iter(part_sets)) != full:
        raise Incompatible("reductions that leave a dimension")
    if row_sets and part_sets and next(iter(row_sets)) & next(iter(part_sets)):
        raise Incompatible("reductions that overlap")
    if row_sets and part_sets and math.prod(axes.sizes[a] for a in next(iter(row_sets))) > MAX_ROW:
        raise Incompatible("rows too wide for one program")
    for value in reductions:
        if frozenset(axes.all(value.args[0].dims)) != full:
            raise Incompatible("a reduction of less than the kernel's space")
        if value.partial and value in consumed:
            raise Incompatible("partial sums are finished by another kernel")
    if math.prod(axes.sizes[a] for a in full) == 0:
        raise Incompatible("nothing to reduce")
