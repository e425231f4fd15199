"""Running a rebuilt graph without leaving a trace: grad mode, autocast, functorch levels and random state are put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch


@contextlib.contextmanager
def restored(seed: int | None = 0) -> Iterator[None]:
    """Run a block under a seed, and put the state of torch back afterwards, however the block ends.

    A graph may switch grad mode off, enter autocast or open a vmap level and fail before it comes back.

    Args:
        seed: Seeds all generators inside, so that dropout repeats; None leaves them (their state is put back all the same).
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    grad = torch.is_grad_enabled()
    autocast = {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds}
    cache = torch.is_autocast_cache_enabled()
    nesting = _autocast_nesting()
    level = _functorch_level()
    with torch.random.fork_rng(devices):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            while _functorch_level() > level:
                _pop_functorch()
            torch.set_grad_enabled(grad)
            for kind, (enabled, dtype) in autocast.items():
                torch.set_autocast_enabled(kind, enabled)
                torch.set_autocast_dtype(kind, dtype)
            torch.set_autocast_cache_enabled(cache)
            while _autocast_nesting() > nesting:
                torch.autocast_decrement_nesting()
            while _autocast_nesting() < nesting:
                torch.autocast_increment_nesting()
            if not nesting:
                torch.clear_autocast_cache()


def ambient(module: torch.fx.GraphModule) -> contextlib.AbstractContextManager[Any]:
    """The autocast that a rebuilt graph was recorded under; nothing where there was none."""
    around = module.meta.get("fxscope.autocast")
    if around is None:
        return contextlib.nullcontext()
    kind, dtype = around
    return torch.autocast(kind, dtype=getattr(torch, dtype))


def _autocast_nesting() -> int:
    """Depth of autocast blocks; torch lets one only change it, so read it by changing it and back."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _functorch_level() -> int:
    level = torch._C._functorch.maybe_current_level()
    return 0 if level is None else int(level)


def _pop_functorch() -> None:
    functorch = torch._C._functorch
    kind = functorch.peek_interpreter_stack().key()
    kinds = functorch.TransformType
    if kind == kinds.Vmap:
        functorch._vmap_decrement_nesting()
    elif kind == kinds.Grad:
        functorch._grad_decrement_nesting()
    elif kind == kinds.Jvp:
        functorch._jvp_decrement_nesting()
    else:
        functorch._func_decrement_nesting()


def run(module: torch.fx.GraphModule, inputs: Sequence[Any], *, seed: int | None = 0) -> tuple[Any, ...]:
    """Outputs of one run, always as a tuple, in the order of the graph's output.

    Inputs are cloned, so a graph that changes its inputs in place can be run again on the same ones.

    Args:
        module: From ``rebuild``.
        inputs: From ``make_inputs``, or your own, in the order of the placeholders.
        seed: As for ``restored``.
    """
    with restored(seed), ambient(module):
        output = module(*(_copy(value) for value in inputs))
    if isinstance(output, tuple):
        return output
    return tuple(output) if isinstance(output, list) else (output,)


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.requires_grad:
        return value.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    overlapping = any(step == 0 and size > 1 for size, step in zip(value.shape, value.stride(), strict=True))
    return value.clone() if overlapping or value.is_conj() else copy.copy_(value)
