"""Convolutions and linear layers as passes read them: functional, module and ATen forms under one description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from fxscope.passes.module import Emitter, attribute, value

if TYPE_CHECKING:
    from torch.fx import Node

CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
LINEAR = ("input", "weight", "bias")
CONVOLUTION = (
    "input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups"
)  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """Why a node cannot take part: a reason id and the sentence."""

    reason: str
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A layer that multiplies by a weight along an output-channel axis.

    Attributes:
        kind: ``conv``, ``transposed`` or ``linear``.
        axis: Of the weight: its output channels (for a transposed convolution, those of one group).
        weight: Makes the node of the weight (a module's becomes a get_attr).
        bias: The same, None without a bias.
        rebuild: The same layer with another weight and bias.
        hooked: Path of the module where it has forward hooks, which see its output.
    """

    node: Node
    kind: str
    axis: int
    groups: int
    weight: Callable[[Emitter], Node]
    bias: Callable[[Emitter], Node] | None
    weight_value: Any
    rebuild: Callable[[Emitter, Node, Node], Node]
    hooked: str | None = None

    @property
    def channels(self) -> int:
        """Output channels."""
        size = int(self.weight_value.shape[self.axis])
        return size * self.groups if self.kind == "transposed" else size


def read_convolution(node: Any) -> Convolution | Refusal | None:
    """What kind of convolution a node is; None where it is none, a Refusal where it is one that must be left alone."""
    if getattr(node, "op", None) == "call_module":
        return _read_module(node)
    if getattr(node, "op", None) != "call_function":
        return None
    found = _functions().get(node.target)
    if found is None:
        return None
    kind, names = found
    bound = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    weight = bound.get("weight")
    shape = value(weight) if weight is not None else None
    if shape is None:
        return Refusal("no-meta", f"the shape of {node.name}'s weight is not known")
    if kind == "addmm":
        return _read_addmm(node, bound, shape)
    bias = bound.get("bias")
    if kind == "convolution":
        kind = "transposed" if bound["transposed"] else "conv"
    groups = int(bound.get("groups", 1))

    def rebuild(emit: Emitter, new_weight: Node, new_bias: Node) -> Node:
        arguments = {**bound, "weight": new_weight, "bias": new_bias}
        last = max(names.index(name) for name in arguments if name in names)
        positional = names[: last + 1]
        if any(name not in arguments for name in positional):
            positional = names[:3]
        rest = {name: item for name, item in arguments.items() if name not in positional}
        return emit.call(node.target, *(arguments[name] for name in positional), **rest)

    return Convolution(
        node=node,
        kind=kind,
        axis=1 if kind == "transposed" else 0,
        groups=groups,
        weight=lambda emit: weight,
        bias=None if bias is None else lambda emit: bias,
        weight_value=shape,
        rebuild=rebuild,
    )


def _read_addmm(node: Node, bound: dict[str, Any], shape: Any) -> Convolution | Refusal:
    import torch

    if bound.get("alpha", 1) != 1 or bound.get("beta", 1) != 1:
        return Refusal("alpha", f"addmm with alpha={bound.get('alpha', 1)}, beta={bound.get('beta', 1)}")
    bias = bound.get("bias")
    known = value(bias) if bias is not None else None
    if bias is not None and (known is None or known.dim() != 1):
        return Refusal("channels", f"{node.name} adds a matrix, not a bias")
    return Convolution(
        node=node,
        kind="linear",
        axis=1,
        groups=1,
        weight=lambda emit: bound["weight"],
        bias=None if bias is None else lambda emit: bias,
        weight_value=shape,
        rebuild=lambda emit, w, b: emit.call(torch.ops.aten.addmm.default, b, bound["input"], w),
    )


def _read_module(node: Node) -> Convolution | Refusal | None:
    import torch
    from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

    root = node.graph.owning_module
    module = attribute(root, str(node.target))
    if not isinstance(module, _ConvNd | torch.nn.Linear):
        return None
    refused = refuse_module(module, node, ("forward", "_conv_forward"), forward_hooks=True)
    if refused:
        return refused
    source = node.args[0] if node.args else node.kwargs["input"]
    path = str(node.target)
    bias = None if module.bias is None else (lambda emit: emit.attribute(f"{path}.bias"))
    transposed = isinstance(module, _ConvTransposeNd)
    if transposed and (len(node.args) > 1 or node.kwargs.get("output_size") is not None):
        return Refusal("output-size")
    if isinstance(module, torch.nn.Linear):
        kind, groups = "linear", 1
    else:
        kind, groups = ("transposed" if transposed else "conv"), module.groups

    def rebuild(emit: Emitter, weight: Node, new_bias: Node) -> Node:
        if kind == "linear":
            return emit.call(torch.nn.functional.linear, source, weight, new_bias)
        rank = module.weight.dim() - 2
        if kind == "transposed":
            function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
            rest = (module.stride, module.padding, module.output_padding, module.groups, module.dilation)
            return emit.call(function, source, weight, new_bias, *rest)
        given, padding = source, module.padding
        if module.padding_mode != "zeros":
            given = emit.call(
                torch.nn.functional.pad, source, tuple(module._reversed_padding_repeated_twice), module.padding_mode
            )
            padding = (0,) * rank
        function = getattr(torch.nn.functional, f"conv{rank}d")
        return emit.call(function, given, weight, new_bias, module.stride, padding, module.dilation, module.groups)

    return Convolution(
        node=node,
        kind=kind,
        axis=1 if transposed else 0,
        groups=groups,
        weight=lambda emit: emit.attribute(f"{path}.weight"),
        bias=bias,
        weight_value=module.weight,
        rebuild=rebuild,
        hooked=path if module._forward_hooks else None,
    )


def refuse_module(module: Any, node: Node, methods: tuple[str, ...], *, forward_hooks: bool = False) -> Refusal | None:
    """Why a module's call is not what its class says: overridden methods, parametrisations, hooks.

    Args:
        module: The module.
        node: Its call.
        methods: That must be PyTorch's own.
        forward_hooks: Let those pass: the caller keeps them.
    """
    for method in methods:
        function = getattr(type(module), method, None)
        if function is not None and not function.__module__.startswith("torch.nn.modules."):
            return Refusal("subclass", f"{type(module).__name__} ({node.target}) overrides {method}")
    if getattr(module, "parametrizations", None) or any(
        type(hook).__name__ in ("WeightNorm", "SpectralNorm") for hook in module._forward_pre_hooks.values()
    ):
        return Refusal("parametrized", f"{node.target} has a parametrised weight")
    after = module._forward_hooks and not forward_hooks
    if after or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return Refusal("hook", f"{node.target} has hooks; they would see the folded output")
    return None


@cache
def _functions() -> dict[Any, tuple[str, tuple[str, ...]]]:
    import torch

    aten = torch.ops.aten
    found: dict[Any, tuple[str, tuple[str, ...]]] = {}
    for rank in (1, 2, 3):
        packet = getattr(aten, f"conv{rank}d")
        for target in (getattr(torch, f"conv{rank}d"), packet, packet.default, packet.padding):
            found[target] = ("conv", CONV)
        packet = getattr(aten, f"conv_transpose{rank}d")
        overload = getattr(packet, packet.overloads()[0])
        for target in (getattr(torch, f"conv_transpose{rank}d"), packet, overload):
            found[target] = ("transposed", TRANSPOSED)
    for target in (torch.convolution, aten.convolution, aten.convolution.default):
        found[target] = ("convolution", CONVOLUTION)
    for target in (torch.nn.functional.linear, aten.linear, aten.linear.default):
        found[target] = ("linear", LINEAR)
    found[aten.addmm.default] = ("addmm", ("bias", "input", "weight"))
    found[aten.mm.default] = ("addmm", ("input", "weight"))
    return found
