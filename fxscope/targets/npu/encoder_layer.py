"""``nn.TransformerEncoderLayer``'s fused inference op, taken apart: without gradients torch calls one op for the whole layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SOURCE, PADDING = 0, 1  # kinds of mask, of nn.MultiheadAttention.merge_masks; 2 is both, expanded to every head


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The core table and what this module adds."""
    import torch

    from fxscope.passes.aten import decomposition_table

    return {**decomposition_table("core"), torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer}


def encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    up_weight: Tensor,
    up_bias: Tensor,
    down_weight: Tensor,
    down_bias: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Attention and feed-forward with their residuals, normalised before or after; x is [batch, length, width]."""
    from torch.nn import functional

    def attended(y: Tensor) -> Tensor:
        batch, length, _ = y.shape
        parts = functional.linear(y, qkv_weight, qkv_bias).chunk(3, 2)
        q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
        scores = (q / math.sqrt(width // heads)) @ k.transpose(2, 3)
        if mask is not None:
            scores = scores.masked_fill(_of_scores(mask, mask_type, scores), float("-inf"))
        mixed = (scores.softmax(3) @ v).transpose(1, 2).reshape(batch, length, width)
        return functional.linear(mixed, proj_weight, proj_bias)

    def fed(y: Tensor) -> Tensor:
        hidden = functional.linear(y, up_weight, up_bias)
        return functional.linear(
            functional.gelu(hidden) if use_gelu else functional.relu(hidden), down_weight, down_bias
        )

    def first(y: Tensor) -> Tensor:
        return functional.layer_norm(y, (width,), norm_weight_1, norm_bias_1, eps)

    def second(y: Tensor) -> Tensor:
        return functional.layer_norm(y, (width,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = x + attended(first(x))
        return x + fed(second(x))
    x = first(x + attended(x))
    return second(x + fed(x))


def _of_scores(mask: Tensor, kind: int | None, scores: Tensor) -> Tensor:
    """The mask, true where attention must not go, so that it broadcasts to [batch, heads, length, length].

    A float mask holds 0 and -inf; the fused op takes it as truth values, too.
    """
    import torch

    if mask.dtype != torch.bool:
        mask = mask != 0
    if kind == PADDING:
        return mask[:, None, None, :]
    return mask[None, None] if kind == SOURCE else mask.view(scores.shape)
