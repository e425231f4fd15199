"""A factor and a summand per output channel, moved into a convolution's weight and bias as graph expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.passes.module import Emitter, value

if TYPE_CHECKING:
    from torch.fx import Node

    from fxscope.passes.convolution import Convolution


def compute_dtype(*tensors: Any) -> Any:
    """fp32, or what of the tensors is wider: folding in half precision loses what the fold should keep."""
    import torch

    dtype = torch.float32
    for tensor in tensors:
        if tensor is not None:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def cast(emit: Emitter, node: Node, dtype: Any) -> Node:
    """The node in another dtype; itself where it has that dtype already."""
    import torch

    known = value(node)
    if known is not None and known.dtype == dtype:
        return node
    return emit.call(torch.ops.aten._to_copy.default, node, dtype=dtype)


def fold(emit: Emitter, conv: Convolution, scale: Node | None, shift: Node | None, dtype: Any) -> Node:
    """The convolution with ``W' = W * scale`` along its output channels and ``b' = b * scale + shift``.

    Args:
        emit: Where new nodes go.
        conv: What is rebuilt.
        scale: ``(channels,)`` in ``dtype``; None for 1.
        shift: ``(channels,)`` in ``dtype``; None for 0.
        dtype: What it is computed in; the results are cast once, to the weight's dtype.
    """
    import torch

    aten = torch.ops.aten
    was = conv.weight_value.dtype
    weight = conv.weight(emit)
    bias = None if conv.bias is None else cast(emit, conv.bias(emit), dtype)
    if scale is not None:
        weight = cast(emit, weight, dtype)
        weight = cast(emit, emit.call(aten.mul.Tensor, weight, _along_axis(emit, conv, scale)), was)
        bias = None if bias is None else emit.call(aten.mul.Tensor, bias, scale)
    if shift is not None:
        bias = shift if bias is None else emit.call(aten.add.Tensor, bias, shift)
    if bias is None:  # a layer needs some bias to be rebuilt with: b' = 0 * scale
        assert scale is not None
        bias = emit.call(aten.mul.Tensor, scale, 0.0)
    return conv.rebuild(emit, weight, cast(emit, bias, was))


def _along_axis(emit: Emitter, conv: Convolution, scale: Node) -> Node:
    """``scale`` in a shape that broadcasts against the weight along its output channels."""
    import torch

    aten = torch.ops.aten
    rank = conv.weight_value.dim()
    if conv.kind == "transposed" and conv.groups > 1:
        # The weight is (g * Cin/g, Cout/g, k...): rows of group i take the i-th part of the scale.
        rows, per_group = int(conv.weight_value.shape[0]), int(conv.weight_value.shape[1])
        groups = conv.groups
        parts = emit.call(aten.view.default, scale, [groups, 1, per_group])
        parts = emit.call(aten.expand.default, parts, [groups, rows // groups, per_group])
        parts = emit.call(aten.clone.default, parts, memory_format=torch.contiguous_format)
        return emit.call(aten.view.default, parts, [rows, per_group] + [1] * (rank - 2))
    shape = [1] * rank
    shape[conv.axis] = -1
    return emit.call(aten.view.default, scale, shape)
