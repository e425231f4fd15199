"""Batch norm in evaluation, folded into the convolution before it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError
from fxscope.passes.affine import fold_decomposed_norms
from fxscope.passes.application import Context
from fxscope.passes.convolution import Convolution, Refusal, read_convolution, refuse_module
from fxscope.passes.module import Emitter, attribute, value
from fxscope.passes.order import erase_dead, written
from fxscope.passes.scaling import cast, compute_dtype, fold

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
TORCH = ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps", "cudnn_enabled")
NO_TRAINING = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")

Make = Callable[[Emitter], "Node"]


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A batch norm in evaluation.

    Attributes:
        result: The node whose value is the normalised tensor (a getitem where the op has several outputs).
        mean, var, gamma, beta: Make their nodes; gamma and beta are None without affine parameters.
        tensors: Values (fake or real) of those four.
        var_name: Of the attribute that holds the variance, where it is one.
    """

    node: Node
    result: Node
    input: Node
    mean: Make
    var: Make
    gamma: Make | None
    beta: Make | None
    eps: float
    tensors: tuple[Any, ...]
    var_name: str | None = None


def fold_conv_bn(gm: GraphModule, context: Context) -> GraphModule:
    """Fold each batch norm in evaluation into the convolution (or linear layer) that feeds it.

    With s = gamma * rsqrt(var + eps), batch norm of a convolution is a convolution: W' = W * s along the output channels and
    b' = (b - mean) * s + beta. W' and b' are written into the graph as expressions over the parameters, so they stay true
    when those change and gradients still flow; the pass ``freeze`` evaluates them once. They are computed in fp32 or wider
    and cast once. Works call by call: shared modules and tied weights are left as they are for their other users. Every
    batch norm gets one record: folded, or the reason why not. Graphs of modules, of torch functions and of ATen ops are
    read, the last also where batch norm was already taken apart. A convolution whose output is used elsewhere too is left;
    ``conv-bn-fold:duplicate`` computes it twice, folded and as it was. Forward hooks of a convolution stay, with a warning: they
    see the folded output.
    """
    duplicate = duplicates(context.options.get("argument"))
    changing: set[str] | None = None
    for node in list(gm.graph.nodes):
        norm = read_norm(node)
        if norm is None:
            continue
        if isinstance(norm, Refusal):
            context.skip([node], norm.reason, norm.text)
            continue
        conv = read_convolution(norm.input)
        refused = _refuse(norm, conv, duplicate)
        if refused is None and isinstance(conv, Convolution) and conv.hooked:
            if changing is None and context.inputs is not None:
                changing = _changing_hooks(gm, context.inputs)
            refused = _refuse_hooks(conv.hooked, changing, copied=len(norm.input.users) > 1)
        if refused is not None:
            pair = [norm.input, node] if conv is not None else [node]
            context.skip(pair, refused.reason, refused.text)
            continue
        assert isinstance(conv, Convolution)
        dtype = compute_dtype(conv.weight_value, *norm.tensors)
        text = (
            f"{conv.kind}: weight axis {conv.axis}, groups {conv.groups}, computed in {str(dtype)[6:]}{_warning(norm)}"
        )
        if conv.hooked:
            text += f"; warning: the forward hooks of {conv.hooked} now see the folded output"
        if context.apply([conv.node, node], text):
            before = norm.result.name
            context.compare(before, _fold(norm, conv, dtype).name)
    fold_decomposed_norms(gm, context, duplicate=duplicate)
    if context.applied:
        erase_dead(gm.graph)
        gm.recompile()
    return gm


def duplicates(argument: str | None) -> bool:
    """Whether the pass's argument asks it to copy shared convolutions.

    Raises:
        UsageError: It is another one.
    """
    if argument not in (None, "", "duplicate"):
        raise UsageError(f"conv-bn-fold takes no '{argument}'; conv-bn-fold or conv-bn-fold:duplicate")
    return argument == "duplicate"


def _changing_hooks(gm: GraphModule, inputs: Sequence[Any]) -> set[str]:
    from fxscope.passes.hooks import changing_hooks

    return changing_hooks(gm, inputs)


def _refuse_hooks(path: str, changing: set[str] | None, *, copied: bool) -> Refusal | None:
    """Why the forward hooks of a convolution forbid the fold; None where they only look on."""
    if changing is None:
        return Refusal(
            "hook", f"{path} has forward hooks; without probe inputs nobody knows whether they change its output"
        )
    if path in changing:
        return Refusal("hook", f"a forward hook of {path} changes its output before batch norm sees it")
    return Refusal("hook", f"{path} has forward hooks, which a copy of it would call twice") if copied else None


def _fold(norm: Norm, conv: Convolution, dtype: Any) -> Node:
    import torch

    aten = torch.ops.aten
    emit = Emitter(norm.node)
    scale = emit.call(aten.rsqrt.default, emit.call(aten.add.Tensor, cast(emit, norm.var(emit), dtype), norm.eps))
    if norm.gamma is not None:
        scale = emit.call(aten.mul.Tensor, cast(emit, norm.gamma(emit), dtype), scale)
    shift = emit.call(aten.mul.Tensor, cast(emit, norm.mean(emit), dtype), scale)
    if norm.beta is not None:
        shift = emit.call(aten.sub.Tensor, cast(emit, norm.beta(emit), dtype), shift)
    else:
        shift = emit.call(aten.neg.default, shift)
    folded = fold(emit, conv, scale, shift, dtype)
    for key in ("val", "example_value", "tensor_meta"):
        if key in norm.result.meta:
            folded.meta[key] = norm.result.meta[key]
    if conv.hooked:
        from fxscope.passes.hooks import keep_hooks

        folded = keep_hooks(emit, conv.hooked, conv.node.all_input_nodes[0], folded)
    norm.result.replace_all_uses_with(folded)
    if norm.result is not norm.node:
        norm.node.graph.erase_node(norm.result)
    for item in [user for user in norm.node.users if not user.users]:
        norm.node.graph.erase_node(item)
    norm.node.graph.erase_node(norm.node)
    if not conv.node.users:
        conv.node.graph.erase_node(conv.node)
    return folded


def _refuse(norm: Norm, conv: Convolution | Refusal | None, duplicate: bool) -> Refusal | None:
    source = norm.input
    if conv is None:
        what = source.target if isinstance(source.target, str) else getattr(source.target, "__name__", source.target)
        return Refusal("no-conv", f"its input is {source.name} ({what}), no convolution or linear layer")
    if isinstance(conv, Refusal):
        return conv
    others = [user.name for user in source.users if user is not norm.node]
    if others and not duplicate:
        return Refusal("users", f"{source.name} is also used by {', '.join(others)}; conv-bn-fold:duplicate copies it")
    if norm.result is not norm.node and any(user.users for user in norm.node.users if user is not norm.result):
        return Refusal("stats-used")
    out = value(source)
    if out is None or any(item is None for item in norm.tensors[:2]):
        return Refusal("no-meta")
    if conv.kind == "linear" and out.dim() != 2:
        return Refusal(
            "linear-rank",
            f"{source.name} has {out.dim()} dimensions: batch norm's channels are axis 1, the linear layer's the last",
        )
    if conv.kind != "linear" and out.dim() != conv.weight_value.dim():
        return Refusal("unbatched", f"{source.name} has {out.dim()} dimensions, no batch dimension among them")
    if norm.tensors[0].shape[0] != conv.channels:
        return Refusal("channels", f"{norm.tensors[0].shape[0]} statistics for {conv.channels} channels")
    after = value(norm.result)
    if after is not None and after.dtype != out.dtype:
        return Refusal("dtype", f"{out.dtype} in, {after.dtype} out")
    node = source.next
    while node is not norm.node:
        if written(node):
            return Refusal("mutation", f"{node.name} writes in place between {source.name} and {norm.node.name}")
        node = node.next
    return None


def _warning(norm: Norm) -> str:
    import torch

    var = norm.tensors[1]
    if norm.var_name is not None:
        var = attribute(norm.node.graph.owning_module, norm.var_name)
    if isinstance(var, torch._subclasses.FakeTensor):
        return ""
    zero = int((var + norm.eps <= 0).sum())
    return (
        f"; warning: var + eps is 0 in {zero} channels, the result is inf or NaN with and without the fold"
        if zero
        else ""
    )


def read_norm(node: Node) -> Norm | Refusal | None:
    """The batch norm that a node is; None where it is none, a Refusal where it must stay."""
    if node.op == "call_module":
        return _read_module(node)
    found = _functions().get(node.target) if node.op == "call_function" else None
    if found is None:
        return None
    names, several = found
    bound: dict[str, Any] = {"training": False, "eps": 1e-5, **dict(zip(names, node.args, strict=False)), **node.kwargs}
    if bound["training"]:
        return Refusal("training")
    mean, var = bound.get("running_mean"), bound.get("running_var")
    if mean is None or var is None:
        return Refusal("no-stats")
    result = node
    if several:
        first = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
        if len(first) != 1:
            return Refusal("stats-used", "its first output is not used once")
        result = first[0]
    gamma, beta = bound.get("weight"), bound.get("bias")
    return Norm(
        node=node,
        result=result,
        input=bound["input"],
        mean=lambda emit: mean,
        var=lambda emit: var,
        gamma=None if gamma is None else lambda emit: gamma,
        beta=None if beta is None else lambda emit: beta,
        eps=float(bound["eps"]),
        tensors=tuple(None if item is None else value(item) for item in (mean, var, gamma, beta)),
        var_name=str(var.target) if var.op == "get_attr" else None,
    )


def _read_module(node: Node) -> Norm | Refusal | None:
    from torch.nn.modules.batchnorm import _BatchNorm

    module = attribute(node.graph.owning_module, str(node.target))
    if not isinstance(module, _BatchNorm):
        return None
    refused = refuse_module(module, node, ("forward",))
    if refused:
        return refused
    if module.running_mean is None or module.running_var is None:
        return Refusal("no-stats", f"{node.target} has track_running_stats=False")
    if module.training:
        return Refusal("training", f"{node.target} is in training mode")

    def make(name: str) -> Make | None:
        if getattr(module, name) is None:
            return None
        return lambda emit: emit.attribute(f"{node.target}.{name}")

    mean, var = make("running_mean"), make("running_var")
    assert mean is not None
    assert var is not None
    return Norm(
        node=node,
        result=node,
        input=node.args[0] if node.args else node.kwargs["input"],
        mean=mean,
        var=var,
        gamma=make("weight"),
        beta=make("bias"),
        eps=module.eps,
        tensors=(module.running_mean, module.running_var, module.weight, module.bias),
    )


@cache
def _functions() -> dict[Any, tuple[tuple[str, ...], bool]]:
    """Argument names, and whether there are several outputs."""
    import torch

    aten = torch.ops.aten
    found: dict[Any, tuple[tuple[str, ...], bool]] = {
        torch.nn.functional.batch_norm: (NORM, False),
        torch.batch_norm: (TORCH, False),
        aten.batch_norm.default: (TORCH, False),
        aten._native_batch_norm_legit_no_training.default: (NO_TRAINING, True),
    }
    for name, overload in (
        ("native_batch_norm", "default"),
        ("_native_batch_norm_legit", "default"),
        ("_native_batch_norm_legit_functional", "default"),
        ("cudnn_batch_norm", "default"),
        ("_batch_norm_no_update", "default"),
    ):
        target = getattr(getattr(aten, name, None), overload, None)  # newer overloads may be missing in older torch
        if target is not None:
            names = tuple("input" if a.name == "self" else a.name for a in target._schema.arguments)
            names = tuple(
                {"epsilon": "eps", "exponential_average_factor": "momentum"}.get(name, name) for name in names
            )
            found[target] = (names, True)
    # Without running statistics the batch's own are used: always training.
    statless = getattr(aten._native_batch_norm_legit, "no_stats", None)
    if statless is not None:
        found[statless] = (("input", "weight", "bias", "training", "momentum", "eps"), True)
    return found
