"""Private names of PyTorch, looked up where they are used: a version without one lacks one feature, and says so in a line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fxscope.errors import MissingError


def private(path: str, feature: str) -> Any:
    """What a dotted path names: a module, or something in one.

    Args:
        path: ``torch._functorch.partitioners.default_partition``.
        feature: What needs it, for the message.

    Raises:
        MissingError: This version of torch does not have it.
    """
    parts = path.split(".")
    found: Any = import_module(parts[0])
    for at, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part, None) or import_module(".".join(parts[:at]))
        except ImportError:
            raise MissingError(
                f"{feature} needs {path}, which torch {found_version()} does not have; other features work; "
                "fxscope is tested with torch 2.11 to 2.15"
            ) from None
    return found


def found_version() -> str:
    """The version of the torch that is installed."""
    return str(import_module("torch").__version__)
