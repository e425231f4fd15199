"""The compile timeline as boxes: which phase ran when, nested as it was nested."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxscope.recording.recording import Recording

MOST_THREADS = 24  # of a thousand ranks, those that compiled longest
MOST_BOXES = 1500  # of one page; what is too short to be seen goes first


class Box(msgspec.Struct, kw_only=True):
    """One phase.

    Attributes:
        lane: Row of the drawing, counted over all processes and depths.
        left: Start, as a share of the whole span, 0 to 1; ``width`` likewise.
        seconds: Its length.
    """

    lane: int
    left: float
    width: float
    name: str
    seconds: float
    compile_id: str


class Lane(msgspec.Struct, kw_only=True):
    """One row: a heading, or a depth of nesting in one thread of one process."""

    number: int
    label: str


class Timeline(msgspec.Struct, kw_only=True):
    """All boxes and their rows.

    Attributes:
        seconds: The whole span.
        left_out: How many boxes were too short to draw.
        threads_left_out: How many threads are not drawn, because there are too many.
    """

    lanes: list[Lane]
    boxes: list[Box]
    seconds: float
    left_out: int
    threads_left_out: int


def make_timeline(recording: Recording) -> Timeline | None:
    """The phases that the log has times for; None where it has none."""
    start, end, number = float("inf"), float("-inf"), 0

    def whole() -> Iterator[dict[str, Any]]:
        nonlocal start, end, number
        for event in recording.timeline():
            if event.get("ph") == "X" and event.get("dur", 0) > 0:
                start, end, number = min(start, event["ts"]), max(end, event["ts"] + event["dur"]), number + 1
                yield event

    kept = heapq.nlargest(MOST_BOXES, whole(), key=lambda event: event["dur"])
    if not kept:
        return None
    span = end - start
    lanes: list[Lane] = []
    boxes: list[Box] = []
    threads: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for event in kept:
        threads.setdefault((event.get("pid"), event.get("tid")), []).append(event)
    ranks = recording.session.ranks
    drawn = heapq.nlargest(MOST_THREADS, threads, key=lambda thread: sum(event["dur"] for event in threads[thread]))
    for process, thread in sorted(drawn, key=_thread_order):
        members = threads[process, thread]
        if len(threads) > 1:
            who = f"rank {process}" if process in ranks else f"process {process}"
            lanes.append(Lane(number=len(lanes), label=f"{who}, thread {thread}" if thread else who))
        base = len(lanes)
        for event, depth in _nested(members):
            while len(lanes) <= base + depth:
                lanes.append(Lane(number=len(lanes), label=""))
            args = event.get("args")
            boxes.append(
                Box(
                    lane=base + depth,
                    left=(event["ts"] - start) / span if span else 0.0,
                    width=event["dur"] / span if span else 1.0,
                    name=str(event.get("name")),
                    seconds=event["dur"] / 1e6,
                    compile_id=str(args.get("compile_id") or "") if isinstance(args, dict) else "",
                )
            )
    return Timeline(
        lanes=lanes,
        boxes=boxes,
        seconds=span / 1e6,
        left_out=number - len(kept),
        threads_left_out=len(threads) - len(drawn),
    )


def _thread_order(thread: tuple[Any, Any]) -> tuple[float, str, str]:
    """By number, where a process has one: a log may say anything."""
    process = thread[0]
    return (process if isinstance(process, (int, float)) else float("inf"), str(process), str(thread[1]))


def _nested(events: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Events with their depth: how many others are open when they begin."""
    found = []
    open_until: list[float] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        found.append((event, len(open_until)))
        open_until.append(event["ts"] + event["dur"])
    return found
