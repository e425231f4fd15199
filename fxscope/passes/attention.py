"""The fused attention of CPUs taken apart with both of its outputs right."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def with_logsumexp(torchs: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A decomposition of ``aten._scaled_dot_product_flash_attention_for_cpu`` that a backward may follow.

    The second output of the op is the logarithm of the sums of the exponentials, one number for each row of scores; the op's
    backward, which has no decomposition, reads it. PyTorch's decomposition returns the attention matrix in its place, so a forward
    that was taken apart gives gradients that are wrong by factors. In inference nobody reads the second output, and it is dropped.

    Args:
        torchs: PyTorch's decomposition, for the first output.
    """
    import torch

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        output, _ = torchs(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
        # As the kernel does: the statistics of half-precision rows are float32.
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * factor
        if is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
            scores = scores.masked_fill(~allowed, float("-inf"))
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                scores = scores.masked_fill(~attn_mask, float("-inf"))
            else:
                scores = scores + attn_mask
        return output, scores.logsumexp(-1)

    return attention
