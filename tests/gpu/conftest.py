"""What needs a CUDA device is skipped, with the reason, where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder carries the marker ``gpu``."""
    own = [item for item in items if HERE in item.path.parents]
    if not own:
        return
    import torch

    reason = "no CUDA device" if not torch.cuda.is_available() else ""
    for item in own:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
