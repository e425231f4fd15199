"""A line of somebody's source code, as a log names it."""

from __future__ import annotations

import msgspec


def base_name(path: str) -> str:
    """The last part of a path as logged, whichever system wrote it."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]


_CONTEXT = frozenset({"site-packages", "dist-packages"})


def short_path(path: str) -> str:
    """A path for people: its last part, with the package it lies in where it is an installed one."""
    parts = path.replace("\\", "/").split("/")
    for place in range(len(parts) - 1, -1, -1):
        if parts[place] in _CONTEXT:
            inner = parts[place + 1 :]
            return "/".join(inner) if len(inner) <= 2 else f"{inner[0]}/…/{inner[-1]}"
    return parts[-1]


def package_of(path: str) -> str:
    """The installed package that a file lies in; its own name where it lies in none."""
    return short_path(path).partition("/")[0]


class SourceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a logged stack.

    Attributes:
        file: Path as logged; it need not exist on this machine.
        line: Line number, 1-based; 0 where unknown.
        function: Name of the enclosing function, "" where unknown.
        code: Text of the line as the log carries it, "" where it does not.
    """

    file: str
    line: int
    function: str = ""
    code: str = ""

    @property
    def site(self) -> str:
        """``basename:line``, the short form that reports print."""
        return f"{base_name(self.file)}:{self.line}"
