"""pytest plugin: the marker ``fxscope`` and the fixture of the same name. Imports nothing heavy: every pytest run loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "fxscope(max_graph_breaks=None, max_recompiles=None, max_compile_seconds=None): "
        "fail when the test's torch.compile activity exceeds a budget",
    )
