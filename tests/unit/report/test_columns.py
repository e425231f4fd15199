"""Compiles in columns, phases as boxes, ranks as a table: what is printed, to the letter."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from fxscope.recording.records import Compile
from fxscope.report.columns import print_compiles, same_on_ranks
from fxscope.report.ranks import RankRow, rank_table
from fxscope.report.timeline import MOST_BOXES, Timeline, make_timeline


def compile_(key: str, **facts: Any) -> Compile:
    facts = {"id": key.split(":")[-1], "function": "forward", "file": "/home/me/net.py", "line": 12, **facts}
    return Compile(key=key, **facts)


def printed(rows: list[Compile], width: int) -> list[str]:
    out = io.StringIO()
    print_compiles(rows, Console(file=out, width=width, markup=False, highlight=False, emoji=False))
    return out.getvalue().splitlines()


ROWS = [
    compile_("0/0", nodes=41, guards=7, seconds=1.25, calls=100),
    compile_("0/1", status="failed", seconds=0.0),
    compile_("12/3", function="a_function_with_a_name_that_is_far_too_long", nodes=3, guards=1234),
]


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert printed(ROWS, 70) == [
        "  id    status  function                   nodes  guards   time  calls",
        "  0/0   ok      forward net.py:12             41       7  1.2 s    100",
        "  0/1   failed  forward net.py:12              -       -    0 s      -",
        "  12/3  ok      a_function_with_a_name_th      3    1234      -      -",
        "                at_is_far_too_long",
        "                net.py:12",
    ]


def test_calls_that_nobody_counted_have_no_column() -> None:
    assert printed([compile_("0/0", nodes=1)], 60) == [
        "  id   status  function                  nodes  guards  time",
        "  0/0  ok      forward net.py:12             1       -     -",
    ]


def test_a_narrow_terminal_gets_sentences() -> None:
    assert printed(ROWS[:1], 60)[1:] == [
        "  0/0  ok      forward              41       7  1.2 s    100",
        "               net.py:12",
    ]
    assert printed(ROWS[:1], 59) == [
        "  0/0  ok      forward net.py:12  41 nodes, 7 guards, 1.2",
        "s, 100 calls",
    ]


def test_what_ranks_have_alike_is_told_once_by_the_slowest() -> None:
    rows = [compile_(f"r{rank}:0/0", rank=rank, seconds=[1.0, 3.0, 2.0][rank], nodes=5) for rank in range(3)]
    other = compile_("r1:0/1", rank=1, nodes=6, seconds=None)
    told = same_on_ranks([*rows, other, compile_("0/0", nodes=5)])
    assert [(name, row.key) for name, row in told] == [("0/0 ×3", "r1:0/0"), ("r1:0/1", "r1:0/1"), ("0/0", "0/0")]


def timeline(*events: tuple[Any, ...], ranks: tuple[int, ...] = ()) -> Timeline | None:
    """Events as (process, thread, name, start, length) in microseconds."""
    log = [
        {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": {"compile_id": "0/0"}}
        for pid, tid, name, ts, dur in events
    ]
    recording: Any = SimpleNamespace(timeline=lambda: iter(log), session=SimpleNamespace(ranks=ranks))
    return make_timeline(recording)


def test_phases_are_nested_as_they_were() -> None:
    found = timeline(
        (1, 0, "whole", 1e6, 4e6), (1, 0, "first", 1e6, 1e6), (1, 0, "second", 2e6, 2e6), (1, 0, "inner", 3e6, 1e6)
    )
    assert found is not None
    boxes = {box.name: (box.lane, box.left, box.width, box.seconds, box.compile_id) for box in found.boxes}
    assert boxes == {
        "whole": (0, 0.0, 1.0, 4.0, "0/0"),
        "first": (1, 0.0, 0.25, 1.0, "0/0"),  # it ends where the second begins: beside it, not around it
        "second": (1, 0.25, 0.5, 2.0, "0/0"),
        "inner": (2, 0.5, 0.25, 1.0, "0/0"),
    }
    assert (found.seconds, found.left_out, found.threads_left_out) == (4.0, 0, 0)
    assert [lane.label for lane in found.lanes] == ["", "", ""]


def test_each_thread_of_each_process_has_lanes_under_its_name() -> None:
    found = timeline((10, 0, "b", 0, 5), (2, 7, "a", 0, 10), (2, 0, "c", 5, 5), ("x", 0, "d", 0, 1), ranks=(2,))
    assert found is not None
    assert [(lane.number, lane.label) for lane in found.lanes if lane.label] == [
        (0, "rank 2"), (2, "rank 2, thread 7"), (4, "process 10"), (6, "process x"),
    ]  # fmt: skip
    assert {box.name: box.lane for box in found.boxes} == {"c": 1, "a": 3, "b": 5, "d": 7}


def test_what_took_no_time_is_not_drawn_and_what_is_left_out_is_counted() -> None:
    assert timeline((1, 0, "nothing", 0, 0)) is None
    found = timeline(*((1, 0, f"p{n}", n * 10, 1 + n % 5) for n in range(MOST_BOXES + 7)))
    assert found is not None
    assert (len(found.boxes), found.left_out) == (MOST_BOXES, 7)
    assert min(box.seconds for box in found.boxes) == 1e-6
    assert sum(box.seconds < 1.5e-6 for box in found.boxes) == (MOST_BOXES + 7 + 4) // 5 - 7  # the shortest went


def rank(number: int | None, **facts: Any) -> RankRow:
    usual = {"process": 77, "compiles": 2, "seconds": 1.0, "recompiles": 0, "graph_breaks": 0, "failures": 0}
    return RankRow(rank=number, collectives=3, **{**usual, **facts})


def test_few_ranks_have_a_line_each_and_many_share_one() -> None:
    few = rank_table([rank(number, seconds=number + 0.26) for number in range(8)])
    assert few[:2] == [
        "        compiles  seconds  recompiles  breaks  failures  collectives",
        "rank 0         2      0.3           0       0         0            3",
    ]
    assert len(few) == 9
    many = [rank(number, seconds=float(number)) for number in range(8)]
    many += [rank(8, recompiles=1), rank(None), rank(None, process=None), rank(9), rank(9, process=78)]
    assert [line.split("  ")[0].strip() for line in rank_table(many)[1:]] == [
        "ranks 0-7, 9, 10 processes", "2 processes of no rank", "rank 8",
    ]  # fmt: skip
    assert " 0.0-7.0 " in rank_table(many)[1]
    assert len(rank_table(many, everything=True)) == 14


def test_a_rank_that_two_processes_had_names_them() -> None:
    names = [line.split("  ")[0] for line in rank_table([rank(0), rank(0, process=78), rank(1), rank(None)])[1:]]
    assert [name.strip() for name in names] == ["rank 0, process 77", "rank 0, process 78", "rank 1", "process 77"]
    assert rank_table([rank(None, process=None)])[1].startswith("no rank ")
    assert rank_table([rank(0), rank(0, run=2)])[2].startswith("run 2: rank 0 ")
