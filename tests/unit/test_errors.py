"""What is left of an error where it has one line."""

from __future__ import annotations

from fxscope.errors import UsageError, described, first_line


def test_an_error_in_one_line() -> None:
    assert described(ValueError("  shapes differ:\n[2] and [3]")) == "ValueError: shapes differ:"
    assert described(UsageError("no graph 9/9; there is 0/0")) == "no graph 9/9; there is 0/0"
    assert first_line(ValueError("shapes differ")) == "shapes differ"
    failed = RuntimeError("backend='inductor' raised:\nAssertionError: \n\nSet TORCHDYNAMO_VERBOSE=1")
    assert described(failed) == "RuntimeError: backend='inductor' raised: AssertionError"


def test_an_error_without_a_message_is_named() -> None:
    for error in (AssertionError(), RuntimeError(""), KeyError(), ValueError(" \n ")):
        assert described(error) == first_line(error) == type(error).__name__
