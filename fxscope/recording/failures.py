"""What an exception's text says: the phase that raised it, and the user's line that stands only in it."""

from __future__ import annotations

from typing import Any, Literal

from fxscope.recording.metrics import integer
from fxscope.recording.tracebacks import read_stack, section
from fxscope.recording.userline import deepest_user_line
from fxscope.source import SourceLine

Phase = Literal["dynamo", "backend", "backward", "fullgraph", "constraint"]

# Exceptions by which Dynamo gives a frame up; the program goes on without it.
SOFT = frozenset({"Unsupported", "UserError", "SkipFrame", "ShortenTraceback"})
_PHASES: dict[str, Phase] = {
    "BackendCompilerFailed": "backend",
    "InductorError": "backend",
    "LoweringException": "backend",
    "CppCompileError": "backend",
    "ConstraintViolationError": "constraint",
    "FailOnRecompileLimitHit": "fullgraph",
    "FailOnCacheLimitHit": "fullgraph",
    "Unsupported": "fullgraph",
}
_LIMITS = (
    "recompile limit exceeded",
    "cache_size_limit reached",
    "cache size limit exceeded",
    "recompile_limit reached",
    "hard failure due to fail_on_recompile_limit_hit",
    "hard failure due to fail_on_cache_limit_hit",
)
_LIMIT_TYPES = frozenset(
    {"CacheLimitExceeded", "RecompileLimitExceeded", "FailOnRecompileLimitHit", "FailOnCacheLimitHit"}
)


def phase_of(fail_type: str) -> Phase:
    """The phase in which an exception of this class is raised."""
    return _PHASES.get(fail_type.rsplit(".", 1)[-1], "dynamo")


def limit_of(fail_type: str, reason: str) -> str | None:
    """Name of the limit that a failed attempt ran into; None where it failed for another reason."""
    text = reason.lower()
    if fail_type not in _LIMIT_TYPES and not any(words in text for words in _LIMITS):
        return None
    return "accumulated_recompile_limit" if "accumulated" in text else "recompile_limit"


def user_stack_of(text: str) -> tuple[SourceLine, ...]:
    """The user's stack in an error text (``from user code:``, ``User stack:``); empty where it has none."""
    for mark in ("\nfrom user code:", "\nUser stack:", "User code traceback:", "\nUser Stack Trace:"):
        stack = read_stack(section(text, mark, "\n\n", "\nTraceback (most recent"))
        if stack:
            return stack
    return ()


def place_of(stack: tuple[SourceLine, ...]) -> SourceLine | None:
    """The line that an error is about: the deepest of the user's own, else the deepest."""
    return deepest_user_line(stack) or (stack[-1] if stack else None)


def as_stack(value: Any) -> tuple[SourceLine, ...]:
    """A stack of ``fxscope.failure``: a list of objects with file, line, function, code."""
    return tuple(
        SourceLine(
            file=str(item.get("file") or ""),
            line=integer(item.get("line"), 0) or 0,
            function=str(item.get("function") or ""),
            code=str(item.get("code") or ""),
        )
        for item in (value if isinstance(value, list) else [])
        if isinstance(item, dict)
    )
