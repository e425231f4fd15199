"""Runs at the start of every Python process under ``fxscope run``: arms the recorder, then makes itself unseen.

It imports nothing but what the interpreter has already loaded, takes its folder off ``sys.path`` again (the environment
keeps it for child processes), and then runs the user's own ``sitecustomize``, exceptions included.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys


def _arm() -> None:
    """Load fxscope.capture.attach from this very installation, whatever the program's own ``sys.path`` holds."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if "fxscope" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "fxscope", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fxscope"] = module
        spec.loader.exec_module(module)
    from fxscope.capture.attach import attach_from_environment

    attach_from_environment()


def _chain(own: str) -> None:
    """Run the ``sitecustomize`` that would have run without us."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None or spec.origin == os.path.join(own, "sitecustomize.py"):
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_own = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _own]
sys.path_importer_cache.pop(_own, None)
try:
    _arm()
except Exception as error:  # noqa: BLE001 - the program must start, whatever is wrong with us
    print(f"fxscope: not recording: {type(error).__name__}: {error}", file=sys.stderr)
_chain(_own)
