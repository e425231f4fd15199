"""Every error that a user can see: one line that says what, where, and how to mend it, with its exit code."""

from __future__ import annotations


class FxscopeError(Exception):
    """Base of the errors that end a command with one line instead of a traceback.

    Attributes:
        exit_code: What the command exits with (DESIGN: 1 check failed, 2 usage, 3 unreadable, 4 missing).
    """

    exit_code = 1


class CheckFailed(FxscopeError):
    """A check or comparison failed."""

    exit_code = 1


class UsageError(FxscopeError):
    """The command was called wrongly: an unknown graph id, stage, pass or option value."""

    exit_code = 2


class UnreadableError(FxscopeError):
    """The input is missing, is no recording, or cannot be read."""

    exit_code = 3


class MissingError(FxscopeError):
    """Something needed is absent (a GPU, graphviz, an optional package); the message names what installs it."""

    exit_code = 4


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type where it has none (``assert x`` alone).

    Torch's ``backend='inductor' raised:`` says on the next line what, which is taken with it.
    """
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].endswith(" raised:"):
        return f"{lines[0]} {lines[1].rstrip(' :')}"
    return next(iter(lines), type(error).__name__)


def described(error: BaseException) -> str:
    """One line for an error that somebody's code raised: ``ValueError: shapes differ``.

    An error of ours stands without its type: its message is written to be read alone.
    """
    line = first_line(error)
    named = isinstance(error, FxscopeError) or line == type(error).__name__
    return line if named else f"{type(error).__name__}: {line}"
