"""Targets by name: the entry points ``fxscope.targets`` and the reference executors that come with fxscope."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, cast

from fxscope.errors import MissingError, UsageError
from fxscope.targets.target import Target

GROUP = "fxscope.targets"
# Named like entry points, so that a fresh checkout finds them before it is installed again.
BUILT_IN = (
    EntryPoint("eager", "fxscope.targets.reference:eager", GROUP),
    EntryPoint("inductor", "fxscope.targets.reference:inductor", GROUP),
)


@cache
def _entries() -> dict[str, EntryPoint]:
    found = {entry.name: entry for entry in BUILT_IN}
    found.update({entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.value)})
    return found


def names() -> list[str]:
    """Names of all targets, installed ones after the reference executors."""
    return list(_entries())


def target(name: str) -> Target:
    """The target of that name, made now.

    Raises:
        UsageError: No such target; the message names the nearest ones.
        MissingError: Its package cannot be imported.
    """
    entry = _entries().get(name)
    if entry is None:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(names())}"
        raise UsageError(f"no target '{name}'; {hint}")
    try:
        made: Any = entry.load()
    except (ImportError, AttributeError) as error:
        raise MissingError(f"target '{name}' ({entry.value}) cannot be loaded: {error}") from error
    if isinstance(made, ModuleType):
        # `package:target` names a function until `package.target`, a module, is imported and takes its place.
        own = [item for item in vars(made).values() if isinstance(item, type) and item.__module__ == made.__name__]
        made = next((item for item in own if hasattr(item, "supports")), made)
    if not hasattr(made, "supports") or isinstance(made, type):  # a function or class that makes one
        made = made()
    return cast("Target", made)
