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
