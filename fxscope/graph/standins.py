"""What runs in place of an operator that the device lacks, or whose kernel trusts its arguments too much.

Attention kernels that exist only for CUDA are written with operators that every device has; results equal those of the CUDA
kernels up to rounding. Where attention drops values out, the mask depends on a seed tensor that forward hands to backward, as
on CUDA, though its bits differ from CUDA's Philox generator. The backward of a max pooling writes through indices without
looking at them (made-up ones corrupt memory), so it gets clamped ones; right indices stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_MODULUS = 2**31 - 1


def _mask(seed: Tensor, shape: torch.Size, keep: float) -> Tensor:
    """A pseudo-random 0/1 mask that depends only on ``seed`` (one integer) and the position; traceable, without ``item``."""
    position = torch.arange(math.prod(shape), device=seed.device).reshape(shape)
    # Two rounds of a linear congruential step (Park and Miller's multipliers) mix seed and position.
    bits = ((position + seed % 65521 * 7919 + 1) * 48271) % _MODULUS
    bits = ((bits ^ (bits >> 13)) * 16807) % _MODULUS
    bits = ((bits ^ (bits >> 11)) * 48271) % _MODULUS
    return bits < int(keep * _MODULUS)


def _scores(query: Tensor, key: Tensor, bias: Tensor | None, causal: bool, scale: float | None) -> tuple[Tensor, float]:
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = query.float() @ key.float().transpose(-2, -1) * factor
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    return scores, factor


def _heads(tensor: Tensor, query: Tensor) -> Tensor:
    """Repeat key and value heads for grouped-query attention."""
    groups = query.size(-3) // tensor.size(-3)
    return tensor if groups == 1 else tensor.repeat_interleave(groups, -3)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Output in the layout of the CUDA kernels (head and length swapped in memory), log-sum-exp, seed."""
    scores, _ = _scores(query, _heads(key, query), bias, causal, scale)
    weights = torch.softmax(scores, -1)
    seed = torch.randint(0, _MODULUS, (), device=query.device)
    if dropout:
        weights = weights * _mask(seed, weights.shape, 1 - dropout) / (1 - dropout)
    output = (weights @ _heads(value, query).float()).to(query.dtype)
    return output.transpose(1, 2).contiguous().transpose(1, 2), torch.logsumexp(scores, -1), seed


def _attend_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and bias: with P = softmax(S), dS = P * (dP - sum(dP * P))."""
    keys, values = _heads(key, query).float(), _heads(value, query).float()
    scores, factor = _scores(query, keys, bias, causal, scale)
    weights = torch.softmax(scores, -1)
    dropped = weights
    outer = gradient.float() @ values.transpose(-2, -1)
    if dropout:
        mask = _mask(seed, weights.shape, 1 - dropout) / (1 - dropout)
        dropped, outer = weights * mask, outer * mask
    inner = weights * (outer - (outer * weights).sum(-1, keepdim=True))
    d_query = inner @ keys * factor
    d_key = inner.transpose(-2, -1) @ query.float() * factor
    d_value = dropped.transpose(-2, -1) @ gradient.float()

    def fold(grad: Tensor, like: Tensor) -> Tensor:
        groups = grad.size(-3) // like.size(-3)
        if groups > 1:
            grad = grad.unflatten(-3, (like.size(-3), groups)).sum(-3)
        return grad.to(like.dtype).transpose(1, 2).contiguous().transpose(1, 2)

    d_bias = inner if bias is None else inner.sum_to_size(bias.shape).to(bias.dtype)
    return fold(d_query, query), fold(d_key, key), fold(d_value, value), d_bias


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    output, total, seed = _attend(query, key, value, attn_bias, dropout_p, is_causal, scale)
    # The CUDA kernel pads the length to a multiple of 32 (torch/_meta_registrations.py).
    padding = -query.size(2) % 32
    total = torch.nn.functional.pad(total, (0, padding)) if compute_log_sumexp else total[..., :0]
    return output, total, seed, torch.zeros_like(seed)


def _efficient_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    grads = _attend_backward(grad_out_, query, key, value, attn_bias, philox_seed, dropout_p, is_causal, scale)
    wanted = [*grad_input_mask[:3], grad_input_mask[3] and attn_bias is not None]
    return tuple(grad if want else None for grad, want in zip(grads, wanted, strict=True))


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    output, total, seed = _attend(query, key, value, None, dropout_p, is_causal, scale)
    unused = torch.zeros_like(seed)
    return output, total, None, None, query.size(2), key.size(2), seed, unused, query.new_empty(0)


def _flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    seed = philox_seed.flatten()[0]  # two numbers on newer CUDA kernels
    return _attend_backward(grad_out, query, key, value, None, seed, dropout_p, is_causal, scale)[:3]


def _cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    output, total, seed = _attend(query, key, value, attn_bias, dropout_p, is_causal, scale)
    offset = torch.zeros_like(seed)
    return output, total[..., None], None, None, query.size(2), key.size(2), seed, offset, query.new_empty(0)


def _cudnn_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    return _attend_backward(grad_out, query, key, value, attn_bias, philox_seed, dropout_p, is_causal, scale)[:3]


def _guarded(name: str, dimensions: int) -> Callable[..., Tensor]:
    """The backward of a max pooling, its indices (the last argument) kept within the last ``dimensions`` of its input."""
    operator = getattr(torch.ops.aten, name).default

    def guarded(grad_output: Tensor, input: Tensor, *rest: Any, **kwargs: Any) -> Tensor:  # noqa: A002 - torch's own name
        last = math.prod(input.shape[-dimensions:]) - 1
        if "indices" in kwargs:
            kwargs["indices"] = kwargs["indices"].clamp(0, last)
        else:
            rest = (*rest[:-1], rest[-1].clamp(0, last))
        result: Tensor = operator(grad_output, input, *rest, **kwargs)
        return result

    guarded.__name__ = guarded.__qualname__ = name
    return guarded


# Overload -> what runs in its place on every device.
GUARDS: dict[str, Callable[..., Any]] = {
    target: _guarded(target.split(".")[3], dimensions)
    for target, dimensions in {
        "torch.ops.aten.max_pool2d_with_indices_backward.default": 2,
        "torch.ops.aten.max_pool3d_with_indices_backward.default": 3,
        "torch.ops.aten.adaptive_max_pool2d_backward.default": 2,
        "torch.ops.aten.adaptive_max_pool3d_backward.default": 3,
        "torch.ops.aten.fractional_max_pool2d_backward.default": 2,
        "torch.ops.aten.fractional_max_pool3d_backward.default": 3,
    }.items()
}
# Overload -> what runs in its place on a device other than CUDA.
STAND_INS: dict[str, Callable[..., Any]] = {
    "torch.ops.aten._scaled_dot_product_efficient_attention.default": _efficient,
    "torch.ops.aten._scaled_dot_product_efficient_attention_backward.default": _efficient_backward,
    "torch.ops.aten._scaled_dot_product_flash_attention.default": _flash,
    "torch.ops.aten._scaled_dot_product_flash_attention_backward.default": _flash_backward,
    "torch.ops.aten._scaled_dot_product_cudnn_attention.default": _cudnn,
    "torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default": _cudnn_backward,
}
