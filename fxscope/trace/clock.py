"""From the local time of day that a log prints, without year or zone, to Unix seconds."""

from __future__ import annotations

import calendar
import time

_DAY = 86400.0


def naive_seconds(when: bytes, year: int) -> float:
    """Seconds of ``b"1129 11:59:38.304000"`` in one year, as if it were UTC; 0.0 for a date that does not exist."""
    try:
        date, clock = when.decode("ascii").split(" ", 1)
        hours, minutes, seconds = clock.split(":")
        day = calendar.timegm((year, int(date[:2]), int(date[2:]), int(hours), int(minutes), 0))
        return day + float(seconds)
    except (ValueError, OverflowError):
        return 0.0


class Clock:
    """Turns printed times of one process into Unix seconds, once it has seen one moment in both notations.

    Without an anchor it takes the year of ``fallback`` (the file's age) and UTC.
    """

    def __init__(self, fallback: float = 0.0) -> None:
        self.anchored = False
        self._year = time.gmtime(fallback).tm_year
        self._offset = 0.0

    def anchor(self, when: bytes, unix: float) -> None:
        """Learn year and zone: ``when`` was printed at about ``unix``."""
        year = time.gmtime(unix).tm_year
        lag, self._year = min((abs(unix - naive_seconds(when, y)), y) for y in (year - 1, year, year + 1))
        difference = unix - naive_seconds(when, self._year)
        # Zones lie on quarters of an hour; what is left is the delay between the event and its line.
        self._offset = round(difference / 900) * 900.0 if lag < 2 * _DAY else difference
        self.anchored = True

    def unix(self, when: bytes) -> float:
        """Unix seconds of a printed time; 0.0 for a date that does not exist."""
        naive = naive_seconds(when, self._year)
        return naive + self._offset if naive else 0.0
