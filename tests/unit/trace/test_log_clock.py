"""Printed local times without a year, as Unix seconds."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxscope.trace.clock import Clock, naive_seconds


def printed(unix: float, zone: float) -> bytes:
    """How torch prints a moment in a zone that many seconds east."""
    local = time.gmtime(unix + zone)
    return time.strftime("%m%d %H:%M:%S", local).encode() + f"{unix % 1:.6f}"[1:].encode()


@given(
    st.integers(1_600_000_000, 2_000_000_000),
    st.integers(-48, 56).map(lambda quarters: quarters * 900),
    st.floats(0, 3600),
)
def test_zone_and_year_are_learnt(moment: int, zone: int, later: float) -> None:
    clock = Clock()
    clock.anchor(printed(moment, zone), moment + 0.25)
    if time.gmtime(moment + zone).tm_year == time.gmtime(moment + zone + later).tm_year:
        assert clock.unix(printed(moment + int(later), zone)) == pytest.approx(moment + int(later), abs=1e-3)


def test_new_year_between_printed_and_unix() -> None:
    clock = Clock()
    clock.anchor(b"1231 23:30:00.0", 1767225600 + 1800)  # 2026-01-01 00:30 UTC, one hour west
    assert clock.unix(b"1231 23:31:00.0") == 1767225600 + 1860


def test_dates_that_do_not_exist() -> None:
    for when in (b"", b"1299 11", b"abcd 11:22:33", b"0230 25:61:00.0.0"):
        assert naive_seconds(when, 2026) == 0.0
        assert Clock().unix(when) == 0.0
