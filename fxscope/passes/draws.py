"""Random numbers that are the same whoever draws them, so that a graph and its decomposition can be compared."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from fxscope.passes.analysis import categorise
from fxscope.passes.order import has_effect, is_compute

if TYPE_CHECKING:
    from torch.fx import GraphModule

UNIFORM = 1 - 2**-10  # a draw from [0, 1) that every dropout keeps
NORMAL = 0.5


def draws(gm: GraphModule) -> bool:
    """Whether a graph may draw random numbers (attention and modules may, inside)."""
    return any(
        is_compute(node)
        and (node.op == "call_module" or categorise(node) in ("random", "attention") or has_effect(node))
        for node in gm.graph.nodes
    )


def fixed_draws(gm: GraphModule) -> AbstractContextManager[Any]:
    """Fixed draws around a run of a graph that may draw; nothing around one that does not.

    ``native_dropout`` draws otherwise than its decomposition into ``rand`` does, so seeding cannot make them equal. Here dropout
    keeps (and scales) everything, uniform draws are UNIFORM, normal ones NORMAL. Kernels that draw inside, such as fused
    attention with dropout on a GPU, are not reached.
    """
    if not draws(gm):
        return nullcontext()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Fixed(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return _call(func, args, kwargs or {})

    return Fixed()


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    import torch

    if torch.Tag.nondeterministic_seeded not in func.tags:
        return func(*args, **kwargs)
    name = func._schema.name.removeprefix("aten::")
    if name == "native_dropout":
        tensor, share, training = (*args, *([None] * 3))[:3]
        if training is False or not share:
            return func(*args, **kwargs)
        kept = tensor / (1 - share) if share < 1 else torch.zeros_like(tensor)
        return kept, torch.ones_like(tensor, dtype=torch.bool)
    result = func(*args, **kwargs)
    if name in ("bernoulli", "bernoulli_"):
        return result.fill_(1)
    if name in ("rand", "rand_like", "uniform", "uniform_"):
        return result.fill_(UNIFORM)
    if name in ("randn", "randn_like", "normal", "normal_"):
        return result.fill_(NORMAL)
    return result
