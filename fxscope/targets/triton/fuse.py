"""From an island to kernels: which nodes share a loop nest."""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxscope.errors import UsageError
from fxscope.targets.triton.builder import EXPRESSIONS, POINTWISE, Builder, Ref
from fxscope.targets.triton.ir import Axes, Incompatible, Kernel, Memory, Value
from fxscope.targets.triton.rules import RULES

Key = tuple[Node, int]  # a node's result, 0 where it has one
EXTERN = {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"}
# Views that only regroup axes; any other view of a value that a kernel computes is read back from memory.
REGROUPING = {
    "aten.view", "aten.reshape", "aten._unsafe_view", "aten._reshape_alias", "aten.permute", "aten.transpose", "aten.t", "aten.numpy_T",
    "aten.unsqueeze", "aten.squeeze", "aten.expand", "aten.alias", "aten.detach", "aten.lift_fresh", "prims.broadcast_in_dim",
}  # fmt: skip
VIEWS = REGROUPING | {
    "aten.slice", "aten.select", "aten.split", "aten.split_with_sizes", "aten.unbind", "aten.as_strided",
    "aten.diagonal",
}  # fmt: skip
MAX_POINTERS = 40
MAX_ROW = 32768  # columns that one program holds while it adds up partial sums
MIN_OUTER = 512  # rows from which a sum over the outer dimensions is taken in partial sums


def packet(node: Node) -> str:
    """``aten.add`` of a node that calls ``torch.ops.aten.add.Tensor``."""
    target: Any = node.target
    if target is operator.getitem:
        return "getitem"
    name = str(getattr(target, "overloadpacket", target))
    return name.replace("torch.ops.", "")


def arguments(node: Node) -> list[Any]:
    """Positional arguments with the schema's defaults filled in, keyword-only ones after them."""
    target: Any = node.target
    args = list(node.args)
    for position, argument in enumerate(target._schema.arguments):
        if position < len(args):
            continue
        default = argument.default_value if argument.has_default_value() else None
        args.append(node.kwargs.get(argument.name, default))
    return args


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
        self.names: set[str] = set()
        self._plan()

    # -- reading the graph

    def _plan(self) -> None:
        for node in self.island.graph.nodes:
            if node.op == "placeholder":
                value = node.meta["val"]
                memory = None
                if isinstance(value, torch.Tensor):
                    memory = Memory(
                        self._name(node.name), value.dtype, tuple(value.shape), tuple(value.stride()), node.name
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

    def _name(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def buffer(self, key: Key) -> Memory:
        """Where a kernel's result lies in memory; makes that kernel store it."""
        if key not in self.memory:
            node, index = key
            value = node.meta["val"]
            value = value[index] if isinstance(value, (tuple, list)) else value
            kernel = self.kernels[self.home[key]]
            name = self._name(node.name if index == 0 else f"{node.name}_{index}")
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
        kernel = Kernel(len(self.kernels), nodes=[node.name])
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
        outer = name == "aten.sum" and _sums_outer(node)
        partials = [outer, not outer] if name == "aten.sum" else [False]
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
        memory = Memory(self._name(value.name + "_parts"), value.dtype, (), ())
        kernel.stores.append((value, memory, self.refs[key].dims))
        return memory, axis

    def _finish(self, key: Key) -> None:
        """Adds up partial sums that nothing else does anything to, several of one kernel together."""
        home = self.home[key]
        shape = self.axes.shape(self.refs[key].dims)
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
            for one, other in zip(old.values[0].dims[1:], build.values[0].dims[1:], strict=True):
                self.axes.unify(one, other)
        old.values += build.values
        self.refs[key], self.home[key] = total, old.index


def _used(values: list[Value], results: tuple[Ref | None, ...]) -> list[Value]:
    """Values that some result is computed from."""
    needed = {ref.value for ref in results if ref is not None}
    for value in reversed(values):
        if value in needed:
            needed.update(value.args)
    return [value for value in values if value in needed]


def _sums_outer(node: Node) -> bool:
    """Whether a sum runs over many outer dimensions and keeps inner ones: rows of memory are added to one another."""
    source: Any = node.args[0]
    value = source.meta["val"]
    dims = node.args[1] if len(node.args) > 1 else None
    if not dims or value.dim() < 2:
        return False
    gone = {d % value.dim() for d in dims}
    kept = [d for d in range(value.dim()) if d not in gone and value.shape[d] > 1]
    inner = [d for d in range(value.dim()) if value.shape[d] > 1]
    if not kept or not inner or inner[-1] in gone or value.stride(kept[-1]) != 1:
        return False
    return math.prod(value.shape[d] for d in gone) >= MIN_OUTER and min(gone) < min(kept)


def dense(value: torch.Tensor) -> tuple[int, ...]:
    """Strides for a new tensor: the value's own where they leave no holes, else contiguous ones."""
    strides = tuple(value.stride())
    sized = sorted((stride, size) for stride, size in zip(strides, value.shape, strict=True) if size != 1)
    expected = 1
    for stride, size in sized:
        if stride != expected:
            return tuple(torch.empty(value.shape, device="meta").stride())
        expected *= size
    return strides


class Loader:
    """Resolves a node's arguments: values of the kernels it is to join, else loads."""

    def __init__(self, plan: Plan, build: Builder, merged: list[Value], inside: set[int], share: bool) -> None:
        self.plan, self.build, self.merged, self.inside, self.share = plan, build, merged, inside, share
        self.needs: set[int] = set()
        self.follows = False  # whether an argument is a value of `inside`

    def resolve(self, arg: Any) -> Any:
        """An argument of the node: a Ref, a number, or whatever else it is."""
        if isinstance(arg, (list, tuple)):
            return type(arg)(self.resolve(item) for item in arg)
        if not isinstance(arg, Node):
            return arg
        if not isinstance(arg.meta.get("val"), torch.Tensor):
            return arg.meta["val"]
        key, views = self.plan.root(arg)
        if self.plan.home.get(key) in self.inside:
            self.follows = True
            ref = self.plan.refs[key]
            ref = Ref(ref.value, ref.dims, self.build)
            for view in views:
                ref = regroup(self.build, ref, view)
            return ref
        if self.plan._is_partial(key):
            ref = self.total(key)
            for view in views:
                ref = regroup(self.build, ref, view)
            return ref
        if key in self.plan.home:
            self.needs.add(self.plan.home[key])
        if key not in self.plan.memory and key in self.plan.refs:
            value = self.plan.refs[key].value
            if value.op == "const":
                return self.build.const(_number(value), value.dtype, tuple(arg.meta["val"].shape))
        return self.load(self.plan.buffer(key), arg, key)

    def load(self, memory: Memory, node: Node, key: Key) -> Ref:
        """A load of a tensor as a node sees it."""
        seen = node.meta["val"]
        base = key[0].meta["val"]
        base = base[key[1]] if isinstance(base, (tuple, list)) else base
        offset = int(seen.storage_offset() - base.storage_offset())
        shape, strides = tuple(seen.shape), tuple(seen.stride())
        if memory.source is None and tuple(memory.strides) != tuple(base.stride()) and node is not key[0]:
            raise Incompatible("a view of something that was stored in another order")
        if node is key[0] or (packet(node) == "getitem" and seen is base):
            strides = memory.strides
        if self.share:
            for value in (*self.merged, *self.build.values):
                if value.memory is memory and value.offset == offset and self.plan.axes.shape(value.dims) == shape:
                    own = self.plan.axes.strides(value.strides)
                    wanted = [s for s, size in zip(strides, shape, strict=True) if size != 1]
                    if [own.get(axes[-1], 0) for axes in self.plan.axes.dims(value.dims) if axes] == wanted:
                        return Ref(value, value.dims, self.build)
        dims = self.plan.axes.fresh(shape)
        by_axis = {axes[0]: stride for axes, stride in zip(dims, strides, strict=True) if axes and stride}
        ref = self.build.add("load", memory.dtype, dims, memory=memory, strides=by_axis, offset=offset)
        ref.value.name = node.name
        return ref

    def total(self, key: Key) -> Ref:
        """The sum of another kernel's partial sums."""
        memory, axis = self.plan.partial_memory(key)
        self.plan.axes.sizes.setdefault(axis, 2)
        self.needs.add(self.plan.home[key])
        shape = self.plan.axes.shape(self.plan.refs[key].dims)
        inner = self.plan.axes.fresh(shape)
        strides, step = {}, 1
        for axes, size in zip(reversed(inner), reversed(shape), strict=True):
            for a in axes:
                strides[a] = step
            step *= size
        strides[axis] = step
        parts = self.build.add("load", memory.dtype, ((axis,), *inner), memory=memory, strides=strides, name="parts")
        parts.value.name = memory.name
        total = self.build.reduce("sum", parts, [0], keepdim=False, name="total")
        seen = key[0].meta["val"]
        return self.build.cast(total, (seen[key[1]] if isinstance(seen, (tuple, list)) else seen).dtype)


def _number(value: Value) -> Any:
    text = value.expr.strip("()")
    if "float(" in value.expr:
        return float(value.expr.split('"')[1])
    return (
        {"True": True, "False": False}.get(text)
        if text in ("True", "False")
        else float(text)
        if "." in text or "e" in text
        else int(text)
    )


def regroup(build: Builder, ref: Ref, view: Node) -> Ref:
    """A view of a value that a kernel computes, without moving anything.

    Raises:
        Incompatible: The view picks elements, or cuts the dimensions in a way that does not nest.
    """
    name = packet(view)
    seen = view.meta["val"]
    if name not in REGROUPING:
        raise Incompatible(name)
    if name in ("aten.alias", "aten.detach", "aten.lift_fresh"):
        return ref
    shape = tuple(seen.shape)
    if name == "aten.expand":
        return build.expand(ref, shape)
    if name == "aten.unsqueeze" or name == "aten.squeeze":
        sized = iter([axes for axes in ref.dims if axes])
        return Ref(ref.value, tuple(() if size == 1 else next(sized) for size in shape), build)
    if name == "prims.broadcast_in_dim":
        places: Any = view.args[2]
        dims: list[tuple[int, ...]] = list(build.axes.fresh(shape))
        for place, axes in zip(places, ref.dims, strict=True):
            dims[place] = axes or dims[place]
        return Ref(ref.value, tuple(dims), build)
    if name in ("aten.permute", "aten.transpose", "aten.t", "aten.numpy_T"):
        order = list(range(len(ref.dims)))
        if name == "aten.permute":
            order = [d % len(order) for d in view.args[1]]
        elif name == "aten.transpose":
            i, j = (int(d) % len(order) for d in view.args[1:3])
            order[i], order[j] = j, i
        else:
            order.reverse()
        return Ref(ref.value, tuple(ref.dims[d] for d in order), build)
    return build.reshape(ref, shape)


def bind(node: Node, name: str, function: Any, args: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a rule: by the schema's names where the rule uses them, else by position."""
    target: Any = node.target
    by_name = dict(zip((a.name for a in target._schema.arguments), args, strict=True))
    parameters = list(inspect.signature(function).parameters.values())[1:]
    keywords: dict[str, Any] = {"packet": name, "val": node.meta["val"]}
    if any(p.name == "start" for p in parameters):
        keywords.update(zip(("start", "step"), _range(node), strict=True))
    given: list[Any] = []
    for position, parameter in enumerate(parameters):
        if parameter.kind == parameter.VAR_POSITIONAL:
            given += args[position:]
        elif parameter.kind == parameter.POSITIONAL_OR_KEYWORD:
            if parameter.name in by_name:
                given.append(by_name[parameter.name])
            elif parameter.name in ("dim", "keepdim", "dtype", "other") and parameter.default is not parameter.empty:
                given.append(parameter.default)
            elif position < len(args):
                given.append(args[position])
            else:
                given.append(parameter.default)
    names = {p.name for p in parameters}
    return given, {key: value for key, value in keywords.items() if key in names}


def apply(node: Node, name: str, build: Builder, loader: Loader) -> tuple[Ref | None, ...]:
    """Add the values of one FX node; its results in order."""
    args = [loader.resolve(arg) for arg in arguments(node)]
    val = node.meta["val"]
    function = RULES.get(name)
    if function is None:
        count = sum(1 for a in args if isinstance(a, (Ref, int, float)) and not isinstance(a, bool))
        operands = args[: max(count, 1)]
        expected = POINTWISE_ARITY[name]
        out: Any = build.op(name, *operands[:expected])
    else:
        args, keywords = bind(node, name, function, args)
        out = function(build, *args, **keywords)
    results = out if isinstance(out, tuple) else (out,)
    meta = val if isinstance(val, (tuple, list)) else (val,)
    finished: list[Ref | None] = []
    for position, (ref, seen) in enumerate(zip(results, meta, strict=False)):
        if ref is None or seen is None:
            finished.append(None)
            continue
        if not ref.value.partial:
            ref = build.cast(ref, seen.dtype, name="" if position == 0 else f"{position}")
        if ref.value not in build.values or ref.value.op == "load":
            ref = build.map("{0}", ref, name=f"copy{position or ''}")
        if build.axes.shape(ref.dims) != tuple(seen.shape):
            if len(ref.dims) == len(tuple(seen.shape)):
                ref = build.expand(ref, tuple(seen.shape))
            else:
                raise UsageError(
                    f"{node.name} = {name}: shape {build.axes.shape(ref.dims)}, expected {tuple(seen.shape)}"
                )
        if set(build.axes.all(ref.dims)) != set(build.axes.all(ref.value.dims)) and not ref.value.partial:
            # The same number along an axis that the value does not know: the kernel has to run over that axis too.
            wide = build.map("{0}", ref, name=f"wide{position or ''}")
            wide.value.dims = ref.dims
            ref = Ref(wide.value, ref.dims, build)
        if (
            position == 0
            and not ref.value.partial
            and ref.value.op in ("map", "reduce")
            and ref.value.node == node.name
        ):
            ref.value.name = node.name
        finished.append(ref)
    return tuple(finished)


POINTWISE_ARITY = {
    name: 1 + max(i for i in range(4) if "{" + str(i) + "}" in EXPRESSIONS[promote][name])
    for name, promote in POINTWISE.items()
}


def _range(node: Node) -> tuple[int, int]:
    args: list[Any] = list(node.args)
    overload = str(node.target)
    if "iota" in overload:
        return int(node.kwargs.get("start", 0)), int(node.kwargs.get("step", 1))
    start = 0 if overload.endswith("arange.default") else args[0]
    step = args[2] if overload.endswith("start_step") and len(args) > 2 else 1
    return start, step


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
