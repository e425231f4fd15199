"""Which lines of a stack are the user's own program, and which belong to Python, torch or an installed package."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxscope.source import SourceLine

# Installed packages, the standard library, torch itself in a checkout (pytorch/torch/...), and fxscope in one.
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/lib/python\.zip/|/pytorch/torch/|/Python\d+/lib/|/\.pyenv/versions/[^/]+/lib/"
    r"|/fxscope/(?:capture|cli|diagnosis|graph|launch|passes|recording|report|targets|trace)/",
    re.IGNORECASE,
)
# Typed at a prompt, in a notebook, or given to python -c; also what dataclasses generate, which is nobody's.
_TYPED = re.compile(r"^<(?:string|stdin|ipython-input-.*|python-input-.*)>$")
_TORCH = re.compile(r"/(?:site|dist)-packages/torch/|/pytorch/torch/")


@lru_cache(maxsize=8192)
def is_user_file(path: str) -> bool:
    """Whether a path as logged is a file of the user's own program.

    Paths of other machines count as well, so nothing is looked up on this one.
    """
    if path.startswith("<"):
        return bool(_TYPED.match(path))
    return bool(path) and not _FOREIGN.search(path.replace("\\", "/"))


@lru_cache(maxsize=8192)
def is_torch_file(path: str) -> bool:
    """Whether a path as logged lies in torch."""
    return bool(_TORCH.search(path.replace("\\", "/")))


def deepest_user_line(stack: Iterable[SourceLine]) -> SourceLine | None:
    """The innermost line of the user's own program on a stack (outermost first); None where it has none."""
    found = None
    for line in stack:
        if is_user_file(line.file) and not is_generated(line.file, line.function):
            found = line
    return found


def is_generated(path: str, function: str) -> bool:
    """Whether a function was written by a library at run time: ``__init__`` of a dataclass and the like."""
    return path == "<string>" and function.startswith("__")
