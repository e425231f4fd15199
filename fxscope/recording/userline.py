"""Which lines of a stack are the user's own program, and which belong to Python, torch or an installed package."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxscope.source import SourceLine

# Installed packages, the standard library, and torch itself in a checkout (pytorch/torch/...).
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/lib/python\.zip/|/pytorch/torch/|/Python\d+/lib/|/\.pyenv/versions/[^/]+/lib/",
    re.IGNORECASE,
)
_TORCH = re.compile(r"/(?:site|dist)-packages/torch/|/pytorch/torch/")


@lru_cache(maxsize=8192)
def is_user_file(path: str) -> bool:
    """Whether a path as logged is a file of the user's own program.

    Paths of other machines count as well, so nothing is looked up on this one; ``<string>`` and the like are nobody's.
    """
    return bool(path) and not path.startswith("<") and not _FOREIGN.search(path.replace("\\", "/"))


@lru_cache(maxsize=8192)
def is_torch_file(path: str) -> bool:
    """Whether a path as logged lies in torch."""
    return bool(_TORCH.search(path.replace("\\", "/")))


def deepest_user_line(stack: Iterable[SourceLine]) -> SourceLine | None:
    """The innermost line of the user's own program on a stack (outermost first); None where it has none."""
    found = None
    for line in stack:
        if is_user_file(line.file):
            found = line
    return found
