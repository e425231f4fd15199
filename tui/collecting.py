"""Garbage collection that does not hold up the screen.

A collection keeps the interpreter's lock and looks at every object of its generation: a tenth of a second for the records of a
graph of 50,000 nodes, again and again while it is read. Records hold no cycles; reference counts alone free them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

MANY = 50_000  # new objects after which those that are there are no longer looked at
# Young objects are collected often, older ones while they are few, all of them practically never.
THRESHOLDS = (10_000, 5, 100_000)

_lock = Lock()
_readers = 0


@contextmanager
def reading() -> Iterator[None]:
    """No collection while a worker makes records; if they are many, none of what is there now is looked at again."""
    global _readers
    with _lock:
        _readers += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if gc.get_count()[0] > MANY:
                gc.freeze()
            if not _readers:
                gc.enable()
