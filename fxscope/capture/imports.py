"""Run a function right after a module has been imported, without importing it ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Hook = Callable[[ModuleType], None]


class PostImportFinder:
    """A ``sys.meta_path`` entry that finds nothing itself: it lets the others find, and hooks the loader.

    Only the loader instance's ``exec_module`` is replaced, and only until it has run, so that ``__loader__`` and
    ``__spec__`` of the module are those it would have had.
    """

    def __init__(self) -> None:
        self.hooks: dict[str, list[Hook]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that somebody waits for, with its loader hooked; None for all others."""
        if name not in self.hooks:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                self._hook(spec)
                return spec
        return None

    def _hook(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self.fire(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]

    def fire(self, module: ModuleType) -> None:
        """Run and forget the hooks of one module, and those that they themselves add for it."""
        while hooks := self.hooks.pop(module.__name__, None):
            for hook in hooks:
                _run(hook, module)


def _run(hook: Hook, module: ModuleType) -> None:
    """Run a hook; one that fails costs one line, never the program's import."""
    try:
        hook(module)
    except Exception as error:  # noqa: BLE001 - whatever this torch lacks, the program must get its module
        from fxscope.capture.tracelog import warn

        warn(f"hooking {module.__name__} failed ({type(error).__name__}: {error}); the program goes on")


_finder = PostImportFinder()


def after_import(name: str, hook: Hook) -> None:
    """Call ``hook(module)`` once ``name`` has been imported; at once where it already has been."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _run(hook, module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.hooks.setdefault(name, []).append(hook)
