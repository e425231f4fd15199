"""The folder that keeps sources and choices from one process to the next. Where it cannot be written, that costs time alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from pathlib import Path


def cache_dir() -> Path:
    """Where sources and tuning results are kept: $FXSCOPE_CACHE_DIR, else ~/.cache/fxscope/triton."""
    root = os.environ.get("FXSCOPE_CACHE_DIR")
    if root:
        return Path(root) / "triton"
    try:
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home, as in containers
        own = Path(tempfile.gettempdir()) / f"cache-of-user-{os.getuid()}"
    return own / "fxscope" / "triton"


def keep(path: Path, text: str) -> None:
    """Write a file whole or not at all; a warning says where and why nothing can be kept."""
    part = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(".tmp", dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(part).replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # it may not even be there
            Path(part).unlink()
        warnings.warn(
            f"triton: {cache_dir()} cannot be written ({error.strerror or error}): every process chooses its kernels anew; "
            "FXSCOPE_CACHE_DIR names another folder",
            stacklevel=2,
        )
