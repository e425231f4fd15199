"""Leaving torch's tracing modes: a backend is called under fake tensors, but its own memories are real."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def real_tensors() -> AbstractContextManager[object]:
    """No dispatch mode (fake tensors, functionalisation, proxies) inside this context."""
    try:
        from torch.utils._python_dispatch import _disable_current_modes
    except ImportError:  # a torch without it: the caller must not compile under a mode then
        return nullcontext()
    manager: AbstractContextManager[object] = _disable_current_modes()
    return manager
