"""Sampled times by device events, with events that pass when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fxscope.capture.launches import Entry
from fxscope.capture.timing import Samples, Timing


class Event:
    """As torch.cuda.Event: ``at`` is None until the device has passed it."""

    def __init__(self, at: float | None, broken: bool = False) -> None:
        self.at, self.broken, self.queries = at, broken, 0

    def query(self) -> bool:
        self.queries += 1
        if self.broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return self.at is not None

    def elapsed_time(self, end: Event) -> float:
        assert self.at is not None
        assert end.at is not None
        return end.at - self.at


def test_events_are_read_when_they_have_passed_and_by_collect_alone() -> None:
    samples, late = Samples(), Event(None)
    samples.add_events(Event(1.0), Event(3.0))
    samples.add_events(Event(4.0), late)
    assert samples.summary() is None
    assert late.queries == 0
    samples.collect()
    found = samples.summary()
    assert found is not None
    assert (found["samples"], found["mean"], found["clock"]) == (1, 2e-3, "device")
    late.at = 10.0
    samples.collect()
    samples.collect()
    found = samples.summary()
    assert found is not None
    assert (found["samples"], found["max"], late.queries) == (2, 6e-3, 2)


def test_a_device_that_failed_costs_the_samples_and_raises_nothing() -> None:
    samples = Samples()
    samples.add_events(Event(1.0), Event(None, broken=True))
    samples.collect()
    samples.collect()
    assert samples.summary() is None


def test_a_failure_loses_what_was_taken_and_nothing_of_another_thread() -> None:
    samples = Samples()

    class Failing(Event):
        def query(self) -> bool:
            samples.add_events(Event(5.0), Event(7.0))  # another thread, while this one asks the device
            return super().query()

    samples.add_events(Event(1.0), Failing(None, broken=True))
    samples.collect()
    samples.collect()
    summary = samples.summary()
    assert summary is not None
    assert (summary["samples"], summary["total"]) == (1, 2.0 / 1e3)


class Interrupting(float):
    """A time that does something while it is added to the sum."""

    meanwhile: Callable[[], None]

    def __radd__(self, other: float) -> float:
        self.meanwhile()
        return other + float(self)


def test_two_threads_add_and_nothing_is_lost() -> None:
    samples, seconds = Samples(), Interrupting(1.0)
    other = threading.Thread(target=samples.add, args=(2.0,))

    def meanwhile() -> None:
        other.start()
        other.join(0.2)  # it waits for the first to be added

    seconds.meanwhile = meanwhile
    samples.add(seconds)
    other.join(60)
    found = samples.summary()
    assert found is not None
    assert (found["samples"], found["total"], found["min"], found["max"]) == (2, 3.0, 1.0, 2.0)


def test_a_child_that_was_forked_while_a_thread_added_begins_at_zero() -> None:
    entry, seconds = Entry("0/0", 0, 0), Interrupting(1.0)
    timing = entry.timing = Timing()
    timing.backward.add(5.0)
    other = threading.Thread(target=timing.forward.add, args=(2.0,), daemon=True)
    found = {}

    def meanwhile() -> None:
        entry.forget()
        other.start()
        other.join(60)
        found.update(timing.summary())

    seconds.meanwhile = meanwhile
    timing.forward.add(seconds)
    assert {name: row["total"] for name, row in found.items()} == {"forward": 2.0}
