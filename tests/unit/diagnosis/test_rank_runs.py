"""A cluster's folder: many ranks in few words, logs that are missing or cut off, several runs, hosts and versions that differ."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fxscope.cli.ranks import command
from fxscope.diagnosis.rank_runs import rank_notes, split_runs
from fxscope.diagnosis.rank_time import Busy
from fxscope.diagnosis.ranks import compare_ranks
from fxscope.recording.rank_summary import RankCompile, RankSummary
from fxscope.recording.spans import gaps, spans
from fxscope.report.ranks import note_lines, rank_rows, rank_table


def _compile(id_: str, started: float, seconds: float = 1.0) -> RankCompile:
    return RankCompile(
        id=id_, function="step", file="/u/train.py", line=7, status="ok", started=started, seconds=seconds
    )


def _rank(number: int, *compiles: RankCompile, **more: object) -> RankSummary:
    summary = RankSummary(log=f"x_rank_{number}.log", rank=number, process=number, compiles=list(compiles))
    if compiles:
        summary.started = min(c.started for c in compiles)
        summary.ended = max(c.started + c.seconds for c in compiles)
    return msgspec.structs.replace(summary, **more)


def _cluster(ranks: int, begin: float = 10.0, **more: object) -> list[RankSummary]:
    return [
        _rank(n, _compile("0/0", begin + n / 1e3, 3.0), host=f"node{n // 8:03d}", torch="2.11.0", **more)
        for n in range(ranks)
    ]


@given(st.sets(st.integers(0, 200), min_size=1))
def test_spans_say_every_number(numbers: set[int]) -> None:
    said: set[int] = set()
    for part in spans(numbers, most=1000).split(", "):
        first, _, last = part.partition("-")
        said |= set(range(int(first), int(last or first) + 1))
    assert said == numbers


def test_spans_are_short() -> None:
    assert spans(range(1000)) == "0-999"
    assert spans([0, 1, 5, 7, 8, 9]) == "0, 1, 5, 7-9"
    assert spans(range(0, 100, 2), most=3) == "0, 2, 4 and 47 more"


@given(st.sets(st.integers(0, 200), min_size=1))
def test_gaps_are_every_number_that_is_missing(numbers: set[int]) -> None:
    assert {n for first, last in gaps(numbers) for n in range(first, last + 1)} == set(range(max(numbers))) - numbers


def test_a_rank_of_a_million_takes_no_memory() -> None:
    """A file may be called anything: what is missing is told by its ends."""
    tracemalloc.start()
    notes = rank_notes([_rank(0), _rank(1_000_000)])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert notes == ["nothing was logged by ranks 1-999999"]
    assert most < 1 << 20


def test_ranks_that_are_all_alike_are_no_others() -> None:
    assert rank_table(rank_rows(_cluster(12)))[1].startswith("ranks 0-11 ")
    with_gaps = [rank for rank in _cluster(60) if (rank.rank or 0) % 2]
    assert "other" not in rank_table(rank_rows(with_gaps))[1]


def test_names_with_blanks() -> None:
    ranks = _cluster(2)
    ranks[1].break_sites = {"my train.py:3 print at line:4 x": 2}
    (finding,) = compare_ranks(ranks, "/logs/my run")
    assert (finding.file, finding.line) == ("my train.py", 3)
    assert finding.cause.startswith("print at line:4 x: ")
    assert finding.verify == "fxscope ranks '/logs/my run'"


def test_one_rank_of_a_thousand_is_named_with_its_machine_and_the_rest_counted() -> None:
    ranks = _cluster(1000)
    ranks[417].compiles.append(_compile("0/1", 20.0, 4.0))
    for rank in ranks:
        rank.compiles.append(_compile("1/0", 30.0))
        rank.ended = 31.0
    (finding,) = compare_ranks(ranks, "/logs/run7")
    assert finding.title == "rank 417 on node052 compiles 0/1 and the other 999 ranks do not"
    assert [e.text for e in finding.evidence] == [
        "rank 417 on node052: 3 compile ids, 0/1 among them",
        "ranks 0-416, 418-999: 2 compile ids, none of 0/1",
    ]
    assert finding.cost == pytest.approx(4.0)
    assert finding.verify == "fxscope ranks /logs/run7"
    lines = rank_table(rank_rows(ranks))
    assert [line.split("  ")[0] for line in lines[1:]] == ["999 other ranks", "rank 417"]
    assert all(len(line) < 100 for line in lines)
    assert len(rank_table(rank_rows(ranks), everything=True)) == 1001


def test_ranks_that_all_go_their_own_way_are_a_few_findings() -> None:
    ranks = _cluster(100)
    for rank in ranks:
        rank.compiles.append(_compile(f"0/{1 + (rank.rank or 0)}", 20.0, 0.1 + (rank.rank or 0) / 10))
    findings = compare_ranks(ranks)
    assert len(findings) == 9
    assert findings[0].title.startswith("rank 99 on node012 compiles 0/100 ")
    assert sum("more sets of compiles" in finding.title for finding in findings) == 1


def test_ranks_that_never_compile_together_are_a_few_findings() -> None:
    ranks = [_rank(n, *(_compile(f"{k}/0", 10.0 + 4 * k + n % 3) for k in range(40))) for n in range(30)]
    findings = compare_ranks(ranks)
    assert len(findings) == 9
    assert {finding.ids[0] for finding in findings} == {"rank-stagger"}
    texts = [e.text for e in next(f for f in findings if f.file).evidence]
    assert len(texts) == 9
    assert texts[4] == "22 ranks began between these"
    assert [f.title for f in findings if "more" in f.title] == [
        "32 more compiles that the ranks made in different steps"
    ]


def test_what_a_log_that_is_cut_off_lacks_is_nobodys_fault() -> None:
    order = [("0/0", "all_reduce"), ("0/0", "wait_tensor"), ("1/0", "all_gather"), ("1/0", "wait_tensor")]
    ranks = [_rank(n, _compile("0/0", 1.0), _compile("1/0", 3.0), collectives=order) for n in range(3)]
    cut = _rank(3, _compile("0/0", 1.0), collectives=order[:1], missing_waits={"0/0": 1}, cut=True)
    unread = _rank(4, cut=True)
    assert compare_ranks([*ranks, cut, unread]) == []
    assert {f.ids[0] for f in compare_ranks([*ranks, msgspec.structs.replace(cut, cut=False)])} == {
        "rank-divergence",
        "rank-collectives",
        "missing-wait",
    }
    other = msgspec.structs.replace(cut, collectives=[("0/0", "all_to_all")])  # that it has, and nobody else
    assert [f.ids for f in compare_ranks([*ranks, other])] == [["rank-collectives"]]


def test_what_a_rank_that_was_killed_lacks_is_not_held_against_it() -> None:
    """Its log is whole, for the kernel killed it between two events; our recorder has told no end."""
    done = [_rank(n, _compile("0/0", 1.0), _compile("0/1", 3.0), closed=True, last=9.0) for n in range(3)]
    dead = _rank(3, _compile("0/0", 1.0), closed=False, last=2.0)
    assert compare_ranks([*done, dead]) == []
    assert rank_notes([*done, dead]) == ["rank 3: killed, or still running: the recording has no end"]
    # Where none came to its end, the rank that lacks a compile may be what all others waited for.
    hung = [msgspec.structs.replace(summary, closed=False) for summary in done]
    (finding,) = compare_ranks([*hung, dead])
    assert finding.cause.startswith("Ranks took different paths, or rank 3 had been killed by then (nothing more is in")
    (finding,) = compare_ranks([*hung, msgspec.structs.replace(dead, last=8.0)])  # it lived on and did not compile
    assert finding.cause.startswith("Ranks took different paths. While")
    assert "killed" not in "".join(rank_notes([msgspec.structs.replace(s, closed=None) for s in (*done, dead)]))


def test_two_runs_in_one_folder_are_compared_each_by_itself() -> None:
    first, second = _cluster(4), _cluster(4, begin=5000.0)
    second[2].compiles.append(_compile("0/1", 5002.0))
    assert compare_ranks(first) == []
    (finding,) = compare_ranks([*first, *second])
    assert finding.title == "rank 2 compiles 0/1 and ranks 0, 1, 3 do not (run 2 of 2)"
    runs = split_runs([*second, *first])
    assert [min(s.started for s in run) for run in runs] == [10.0, 5000.0]
    assert [row.run for row in rank_rows([*first, *second])] == [1] * 4 + [2] * 4
    assert rank_table(rank_rows([*first, *second]))[1].startswith("run 1: rank 0 ")
    assert rank_notes([*first, *second])[0].startswith("2 runs, one after the other")


def test_two_machines_that_number_from_0_are_told() -> None:
    """LOCAL_RANK taken for RANK: by the machine's name, or by the folder where no recorder of ours told it."""
    job = [
        _rank(n, _compile("0/0", 1.0), host=host, log=f"{host}/rank_{n}.log")
        for host in ("node-a", "node-b")
        for n in (0, 1)
    ]
    (note,) = rank_notes(job)
    assert note.startswith(
        "ranks 0, 1: the same number in node-a, node-b, and one process of each number is compared; "
    )
    assert rank_notes([msgspec.structs.replace(summary, host=None) for summary in job]) == [note]
    workers = [msgspec.structs.replace(summary, host="node-a", log=f"all/{summary.log[-5]}.log") for summary in job]
    assert rank_notes(workers) == []


def test_attempts_and_logs_of_two_recorders_are_no_two_machines() -> None:
    attempts = [_rank(0, _compile("0/0", 50.0 * n), log=f"attempt_{n}/rank_0.log", process=n) for n in (1, 2)]
    assert len(split_runs(attempts)) == 1
    assert not any("the same number" in note for note in rank_notes(attempts))
    beside = [
        _rank(0, _compile("0/0", 1.0 + n), log=f"{n}/rank_0.log", host=host) for n, host in ((0, "node-a"), (1, None))
    ]
    assert not any("the same number" in note for note in rank_notes(beside))
    bare = [_rank(0, _compile("0/0", 1.0 + n / 9), log=log) for n, log in ((0, "rank_0.log"), (1, "b/rank_0.log"))]
    assert any("the same number in ., b, and" in note for note in rank_notes(bare))


def test_a_worker_that_one_rank_starts_late_is_no_run() -> None:
    ranks = _cluster(4)
    late = _rank(0, _compile("0/0", 60.0), process=77)
    assert len(split_runs([*ranks, late])) == 1
    early = _rank(0, _compile("9/0", 1.0), process=78)
    assert len(split_runs([early, *ranks])) == 1
    assert compare_ranks([*ranks, late, early]) == []


def test_logs_that_are_not_there_and_versions_that_differ_are_told() -> None:
    ranks = [rank for rank in _cluster(24) if rank.rank not in (3, 8, 9)]
    for rank in ranks[-8:]:
        rank.torch = "2.12.0"
    ranks[0] = msgspec.structs.replace(ranks[0], cut=True, notes=["x_rank_0.log: the last event is cut off or damaged"])
    assert note_lines(ranks) == [
        "nothing was logged by ranks 3, 8, 9",
        "rank 0: unreadable or cut off, so nothing is made of what is not in there",
        "rank 0: the last event is cut off or damaged",
    ]
    (finding,) = compare_ranks(ranks)
    assert finding.ids == ["rank-torch"]
    assert finding.title == "ranks run different versions of torch: ranks 0-2, 4-7, 10-15 | ranks 16-23"


def test_logs_that_all_say_rank_0_are_told_how_to_become_ranks() -> None:
    logs = [msgspec.structs.replace(_rank(0, _compile("0/0", n)), log=f"{n}.log", process=n) for n in range(4)]
    assert compare_ranks(logs) == []
    assert rank_notes(logs)[-1].startswith("all 4 logs say rank 0: where they are ranks, name them dedicated_log_")


def test_waiting_is_what_is_left_of_an_interval() -> None:
    spells = [_compile("0/0", 1.0, 2.0), _compile("0/1", 2.0, 0.5), _compile("1/0", 6.0, 1.0)]
    busy = Busy(reversed(spells))
    for start, end in ((0.0, 10.0), (2.5, 6.5), (3.0, 6.0), (7.0, 9.0), (1.5, 2.0)):
        inside = sum(
            1
            for step in range(1000)
            if any(c.started <= start + (end - start) * step / 1000 < c.started + c.seconds for c in spells)
        )
        assert busy.waited(start, end) == pytest.approx((end - start) * (1 - inside / 1000), abs=0.02)


@pytest.mark.shared
def test_a_folder_with_odd_logs(shared: Path, tmp_path: Path) -> None:
    """Twelve ranks of real logs: one cut off, one empty, one missing; named once each, and no finding made of them."""
    (log,) = (shared / "traces" / "tlparse" / "multi_rank_schedule").glob("*rank_0_*.log")
    raw = log.read_bytes()
    for rank in range(12):
        data = raw[: len(raw) * 2 // 3] if rank == 3 else b"" if rank == 6 else raw
        if rank != 9:
            (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(data)
    done = CliRunner().invoke(command, [str(tmp_path)], env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split("  ")[0] for line in lines[1:4]] == ["9 other ranks", "rank 3", "rank 6"]
    assert lines[4:-1] == [
        "nothing was logged by rank 9",
        "ranks 3, 6: unreadable or cut off, so nothing is made of what is not in there",
        "rank 3: the last event is cut off or damaged",
        "rank 6: unreadable: holds no trace events",
        "",
    ]
    assert lines[-1] == "The ranks agree."
