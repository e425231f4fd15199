"""One FX node as values: its arguments resolved, its views regrouped, its rule applied."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from fxscope.errors import UsageError
from fxscope.targets.triton.builder import EXPRESSIONS, POINTWISE, Builder, Ref
from fxscope.targets.triton.ir import Incompatible, Memory, Value
from fxscope.targets.triton.nodes import REGROUPING, Key, arguments, packet
from fxscope.targets.triton.rowwise import RULES

if TYPE_CHECKING:
    from fxscope.targets.triton.fuse import Plan


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
    if text in ("True", "False"):
        return text == "True"
    return float(text) if "." in text or "e" in text else int(text)


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
        if not order:
            return ref  # of a scalar PyTorch takes 0 and -1 for dimensions
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
            ref = build.widen(ref, f"wide{position or ''}")
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
