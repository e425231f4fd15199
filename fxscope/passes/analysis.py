"""What a graph does: kinds of ops, shapes, bytes and floating-point operations, and faults of fake kernels."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.passes.fx_records import source_site, target_text
from fxscope.passes.module import value
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.order import is_compute

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

CATEGORIES = (
    "matmul", "convolution", "attention", "pointwise", "reduction", "normalization", "indexing", "view", "copy", "random",
    "communication", "control-flow", "custom", "other",
)  # fmt: skip


class Row(msgspec.Struct, kw_only=True):
    """One node.

    Attributes:
        bytes_read: Of its tensor inputs, each once.
        bytes_written: Of its outputs; 0 for a view.
        flops: A multiply-add is 2; one per output element of a pointwise op, one per input element of a reduction.
    """

    name: str
    target: str
    category: str
    dtype: str | None
    shape: list[int | str] | None
    bytes_read: int
    bytes_written: int
    flops: int
    source: str | None


class Analysis(msgspec.Struct, kw_only=True):
    """A graph, counted.

    Attributes:
        counts: Nodes of each category.
        problems: Ops without a fake kernel, and fake kernels that disagree with the real one; one line each.
    """

    rows: list[Row]
    counts: dict[str, int]
    targets: dict[str, int]
    bytes: int
    flops: int
    problems: list[str]


def analyse(gm: GraphModule, inputs: Sequence[Any] | None = None) -> Analysis:
    """Count what a graph does, and set its shapes.

    Args:
        gm: Any graph.
        inputs: For shapes where the nodes have none; real tensors also let custom ops' fake kernels be compared with the
            real ones.
    """
    from fxscope.passes.fakes import fake_mismatches, propagate_named

    problems: list[str] = []
    if inputs is not None:
        problems += propagate_named(gm, inputs)
        problems += fake_mismatches(gm, inputs)
    rows = []
    counts: dict[str, int] = {}
    targets: dict[str, int] = {}
    for node in gm.graph.nodes:
        if not is_compute(node):
            continue
        known = value(node)
        category = categorise(node)
        text = target_text(node)
        counts[category] = counts.get(category, 0) + 1
        targets[text] = targets.get(text, 0) + 1
        read, wrote = node_bytes(node)
        rows.append(
            Row(
                name=node.name,
                target=text,
                category=category,
                dtype=str(known.dtype)[6:] if hasattr(known, "dtype") else None,
                shape=[s if isinstance(s, int) else str(s) for s in known.shape] if hasattr(known, "shape") else None,
                bytes_read=read,
                bytes_written=wrote,
                flops=node_flops(node),
                source=source_site(node),
            )
        )
    return Analysis(
        rows=rows,
        counts=dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        targets=dict(sorted(targets.items(), key=lambda pair: (-pair[1], pair[0]))),
        bytes=sum(row.bytes_read + row.bytes_written for row in rows),
        flops=sum(row.flops for row in rows),
        problems=problems,
    )


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
    """One of CATEGORIES."""
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


def table(analysis: Analysis, limit: int | None = None) -> str:
    """The rows as text columns, heaviest traffic first where a limit cuts them."""
    rows = analysis.rows
    if limit is not None and len(rows) > limit:
        rows = sorted(rows, key=lambda row: -(row.bytes_read + row.bytes_written))[:limit]
    lines = [f"{'node':<28} {'kind':<14} {'dtype':<9} {'shape':<22} {'read':>12} {'written':>12} {'flops':>14}"]
    for row in rows:
        shape = "x".join(map(str, row.shape)) if row.shape is not None else ""
        lines.append(
            f"{row.name[:28]:<28} {row.category:<14} {row.dtype or '':<9} {shape[:22]:<22} "
            f"{row.bytes_read:>12,} {row.bytes_written:>12,} {row.flops:>14,}"
        )
    return "\n".join(lines)
