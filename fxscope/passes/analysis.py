"""What a node does: its kind of op, the bytes it moves and its floating-point operations."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fxscope.passes.fx_records import target_text
from fxscope.passes.module import value
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.order import is_compute

if TYPE_CHECKING:
    from torch.fx import Node


def value_bytes(item: Any) -> int:
    """Bytes of a tensor (or of all in a tuple); 0 for numbers, and for symbolic sizes that have no hint."""
    import torch

    if isinstance(item, tuple | list):
        return sum(map(value_bytes, item))
    return numel(item) * item.element_size() if isinstance(item, torch.Tensor) else 0


def numel(tensor: Any) -> int:
    """Elements of a tensor; symbolic sizes count by their hint, 0 where there is none."""
    count = 1
    for size in tensor.shape:
        hint = size if isinstance(size, int) else size.node.hint
        count *= int(hint) if hint is not None else 0
    return count


def node_bytes(node: Node) -> tuple[int, int]:
    """Bytes that a node reads and writes when it runs alone; a view moves nothing."""
    if node.target is operator.getitem or (is_no_op(node) and "clone" not in str(node.target)):
        return 0, 0
    owned = 0
    if node.op == "call_module" and node.graph.owning_module is not None:
        child = node.graph.owning_module.get_submodule(str(node.target))
        owned = sum(value_bytes(item) for item in (*child.parameters(), *child.buffers()))
    return owned + sum(value_bytes(value(used)) for used in node.all_input_nodes), value_bytes(value(node))


def node_flops(node: Node) -> int:
    """Floating-point operations of one node, 0 where its shapes are not known.

    Matrix products, convolutions and attention by PyTorch's own formulas (torch.utils.flop_counter), run on fake tensors so
    that composite ops count too; pointwise ops one per output element, reductions one per input element.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode, flop_registry

    if not is_compute(node):
        return 0
    known = [value(used) for used in node.all_input_nodes]
    out = value(node)
    if any(item is None for item in known) or out is None or is_no_op(node):
        return 0
    category = categorise(node)
    if category in ("pointwise", "random"):
        return numel(out) if isinstance(out, torch.Tensor) else 0
    if category in ("reduction", "normalization"):
        return sum(numel(item) for item in known[:1] if isinstance(item, torch.Tensor))
    if category not in ("matmul", "convolution", "attention"):
        return 0
    if category == "attention" and "backward" not in target_text(node):
        return _attention_flops(known)
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), value)
    formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=out))
    mode = next((item.fake_mode for item in known if hasattr(item, "fake_mode")), None)
    if mode is None or (node.op == "call_module" and node.graph.owning_module is None):
        return 0
    call = node.target
    if node.op == "call_module":
        call = node.graph.owning_module.get_submodule(str(node.target))
    elif node.op == "call_method":
        call = getattr(torch.Tensor, str(node.target))
    counter = FlopCounterMode(display=False)
    allow, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with mode, counter, torch.no_grad():
            call(*args, **kwargs)
    finally:
        mode.allow_non_fake_inputs = allow
    return int(counter.get_total_flops())


def _attention_flops(known: Sequence[Any]) -> int:
    """Queries by keys, and weights by values: 2 B H Sq Sk (E + Ev), as torch.utils.flop_counter counts (no causal discount).

    Its own table has no fused CPU kernel.
    """
    tensors = [item for item in known if hasattr(item, "shape") and len(item.shape) >= 3]
    if not tensors:
        return 0
    query, key, val = (tensors * 3)[:3] if len(tensors) == 1 else (*tensors, tensors[-1])[:3]
    rows = numel(query) // int(query.shape[-1])
    return 2 * rows * int(key.shape[-2]) * (int(query.shape[-1]) + int(val.shape[-1]))


def categorise(node: Node) -> str:
    """Kind of op: convolution, pointwise, view...; "custom" for a user's own, "other" where nothing fits."""
    import torch

    target = node.target
    if node.op == "call_module":
        module = node.graph.owning_module
        child = module.get_submodule(str(target)) if module is not None else None
        name = type(child).__name__.lower()
    elif isinstance(target, torch._ops.HigherOrderOperator):
        return "control-flow"
    elif isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        if namespace.startswith(("c10d", "_c10d")):
            return "communication"
        if namespace not in ("aten", "prims", "inductor", "quantized", "quantized_decomposed"):
            return "custom"
    else:
        name = str(target if isinstance(target, str) else getattr(target, "__name__", target)).lower()
    name = name.strip("_")
    if target is operator.getitem or (is_no_op(node) and name != "clone"):
        return "view"
    if name in ("mm", "mv", "dot", "addmv", "baddbmm"):
        return "matmul"
    for category, parts in _names():
        if any(part in name for part in parts):
            return category
    if isinstance(target, torch._ops.OpOverload):
        if torch.Tag.pointwise in target.tags:
            return "pointwise"
        if torch.Tag.nondeterministic_seeded in target.tags:
            return "random"
        if target._schema.name.startswith("prims::") and name in _pointwise():
            return "pointwise"
    return "pointwise" if name in _pointwise() else "other"


@cache
def _names() -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("attention", ("attention",)),
        ("convolution", ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose", "convtranspose")),
        ("normalization", ("batch_norm", "batchnorm", "layer_norm", "layernorm", "group_norm", "instance_norm", "rms_norm")),
        ("indexing", ("embedding", "index", "gather", "scatter", "take")),
        ("matmul", ("matmul", "addmm", "bmm", "linear", "einsum")),
        ("random", ("dropout", "rand", "bernoulli", "multinomial", "normal")),
        ("communication", ("all_reduce", "all_gather", "reduce_scatter")),
        ("reduction", ("softmax", "sum", "mean", "amax", "amin", "argmax", "argmin", "var_mean", "logsumexp", "pool",
                       "cross_entropy", "prod", "norm", "cumsum")),
        ("copy", ("clone", "contiguous", "copy", "cat", "stack", "constant_pad", "convert", "full", "arange", "empty", "zeros",
                  "ones")),
    )  # fmt: skip


@cache
def _pointwise() -> frozenset[str]:
    import torch

    names = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            overload = getattr(packet, packet.overloads()[0])
            if torch.Tag.pointwise in overload.tags:
                names.add(name.strip("_"))
    return frozenset(names | {"iadd", "imul", "isub", "itruediv", "truediv"})
