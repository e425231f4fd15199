"""Comparing ranks: on hand-made summaries with a known truth, and on real logs of two and four ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from fxscope.cli.ranks import command
from fxscope.diagnosis.findings import kinds
from fxscope.diagnosis.rank_time import Busy, comparable, union_seconds
from fxscope.diagnosis.ranks import compare_ranks
from fxscope.recording.many import summarize_all
from fxscope.recording.rank_summary import RankCompile, RankSummary
from fxscope.report.ranks import rank_row, rank_table


def _compile(id_: str, started: float, seconds: float, **more: str) -> RankCompile:
    return RankCompile(
        id=id_, function="step", file="/u/train.py", line=7, status="ok", started=started, seconds=seconds, **more
    )


def _rank(number: int, *compiles: RankCompile, **more: object) -> RankSummary:
    ends = [c.started + c.seconds for c in compiles] or [0.0]
    starts = [c.started for c in compiles] or [0.0]
    return RankSummary(
        log=f"rank_{number}.log",
        rank=number,
        process=number,
        compiles=list(compiles),
        started=min(starts),
        ended=max(ends),
        **more,
    )


def _ids(ranks: list[RankSummary]) -> set[str]:
    return {id_ for finding in compare_ranks(ranks) for id_ in finding.ids}


def test_equal_ranks_have_no_finding() -> None:
    ranks = [
        _rank(
            n,
            _compile("0/0", 10.0 + n * 0.1, 3.0),
            caches=["0/0 fx_graph miss"],
            collectives=[("0/0", "all_reduce"), ("0/0", "wait_tensor")],
        )
        for n in range(4)
    ]
    assert compare_ranks(ranks) == []


def test_one_rank_is_nothing_to_compare() -> None:
    assert compare_ranks([_rank(0, _compile("0/0", 1.0, 1.0))]) == []


def test_a_compile_on_one_rank_only_says_how_long_the_other_waited() -> None:
    both = _compile("0/0", 0.0, 2.0)
    alone = _compile("0/1", 5.0, 4.0, reason="size mismatch at index 1. expected 64, actual 96")
    late = _compile("1/0", 20.0, 0.1)
    (finding,) = compare_ranks([_rank(0, both, late), _rank(1, both, alone, late)])
    assert finding.ids == ["rank-divergence"]
    assert finding.severity == "high"
    assert finding.title == "rank 1 compiles 0/1 and rank 0 does not"
    assert finding.cost == pytest.approx(4.0)
    assert "expected 64, actual 96" in finding.cause


def test_waiting_leaves_out_what_a_rank_compiled_itself() -> None:
    rank = _rank(0, _compile("0/0", 1.0, 2.0), _compile("1/0", 2.5, 1.0))
    assert Busy(rank.compiles).waited(0.0, 5.0) == pytest.approx(2.5)  # busy from 1.0 to 3.5
    assert Busy(rank.compiles).waited(1.0, 3.0) == 0.0
    assert union_seconds(rank.compiles) == pytest.approx(2.5)


def test_the_same_compile_at_different_steps() -> None:
    first, last = _compile("0/0", 0.0, 1.0), _compile("9/0", 60.0, 0.1)
    (finding,) = compare_ranks(
        [_rank(0, first, _compile("0/1", 30.0, 12.0), last), _rank(1, first, _compile("0/1", 17.9, 12.0), last)]
    )
    assert finding.ids == ["rank-stagger"]
    assert finding.cost == pytest.approx(12.0)
    assert finding.title == "rank 1 compiled 0/1 12.1 s before rank 0"


def test_no_wait_is_claimed_between_clocks_that_do_not_compare() -> None:
    ranks = [_rank(0, _compile("0/0", 0.0, 1.0)), _rank(1, _compile("0/0", 9e6, 1.0), _compile("0/1", 9e6 + 2, 30.0))]
    assert not comparable(ranks)
    (finding,) = compare_ranks(ranks)
    assert (finding.ids, finding.cost, finding.gain) == (["rank-divergence"], 0.0, "")


def test_what_differs_is_named_with_its_place() -> None:
    c = _compile("0/0", 0.0, 1.0)
    order = [("0/0", "all_reduce"), ("0/0", "wait_tensor"), ("0/0", "all_gather"), ("0/0", "wait_tensor")]
    swapped = [order[2], order[3], order[0], order[1]]
    findings = {f.ids[0]: f for f in compare_ranks([_rank(0, c, collectives=order), _rank(1, c, collectives=swapped)])}
    assert set(findings) == {"rank-collectives"}
    assert "differs first at 1: all_gather" in findings["rank-collectives"].evidence[1].text
    assert _ids([_rank(0, c, execution=["0/0", "1/0"]), _rank(1, c, execution=["1/0", "0/0"])]) == {
        "rank-execution-order"
    }
    assert _ids([_rank(0, c, tensors={"0/0": "aa"}), _rank(1, c, tensors={"0/0": "bb"})]) == {"rank-tensor-meta"}
    assert _ids([_rank(0, c, tensors={"0/0": "aa"}), _rank(1, c)]) == set()  # not asked for on rank 1
    assert _ids([_rank(0, c, caches=["0/0 fx_graph hit"]), _rank(1, c, caches=["0/0 fx_graph miss"])]) == {"rank-cache"}
    assert _ids([_rank(0, c, missing_waits={"0/0": 1}), _rank(1, c)]) == {"missing-wait"}
    assert _ids([_rank(0, c, runtimes={"0/0": 2e6}), _rank(1, c, runtimes={"0/0": 1e6})]) == {"rank-imbalance"}
    assert _ids([_rank(0, c, runtimes={"0/0": 1.05e6}), _rank(1, c, runtimes={"0/0": 1e6})]) == set()
    assert _ids([_rank(0, c, break_sites={"train.py:31 print": 2}), _rank(1, c)]) == {"rank-breaks", "rank-divergence"}


def test_workers_of_a_rank_are_not_compared_with_ranks() -> None:
    both = [_compile("0/0", 10.0, 3.0), _compile("1/0", 14.0, 1.0)]
    worker = _rank(0, _compile("0/0", 1.0, 0.5))
    worker.process = 77
    assert compare_ranks([_rank(0, *both), worker, _rank(1, *both)]) == []
    assert compare_ranks([worker, _rank(0, *both), _rank(1, *both)]) == []
    assert compare_ranks([worker, _rank(0, *both)]) == []  # one rank, two processes
    assert rank_table([rank_row(s) for s in (worker, _rank(0, *both))])[1].startswith("rank 0, process 77  ")


def test_every_id_is_documented() -> None:
    used = {
        "rank-divergence",
        "rank-breaks",
        "rank-stagger",
        "rank-collectives",
        "rank-execution-order",
        "rank-tensor-meta",
    }
    used |= {"rank-cache", "missing-wait", "rank-imbalance"}
    assert used <= kinds().keys()


@pytest.mark.shared
@pytest.mark.parametrize(("name", "entry", "seconds"), [("ranks_ddp", "4/1", 12.0), ("ranks_fsdp2", "1/1", 5.1)])
def test_two_nccl_ranks_that_met_a_new_length_in_different_steps(
    shared: Path, name: str, entry: str, seconds: float
) -> None:
    findings = compare_ranks(summarize_all(shared / "traces" / "h200" / name))
    stagger = [f for f in findings if "rank-stagger" in f.ids]
    assert len(findings) == len(stagger) == 1
    assert stagger[0].title.startswith(f"rank 1 compiled {entry} ")
    assert stagger[0].cost == pytest.approx(seconds, abs=0.1)
    assert "expected 64, actual 96" in stagger[0].cause
    assert stagger[0].file.endswith("h200_ranks.py")


@pytest.mark.shared
def test_what_tlparse_says_of_its_own_logs(shared: Path) -> None:
    def found(name: str) -> dict[str, str]:
        return {f.ids[0]: f.title for f in compare_ranks(summarize_all(shared / "traces" / "tlparse" / name))}

    logs = found("multi_rank_logs")  # tlparse: diverging compile ids; cache patterns 1 | 3 | 0, 2
    assert set(logs) == {"rank-divergence", "rank-cache"}
    assert logs["rank-cache"].endswith("ranks 0, 2 | rank 1 | rank 3")
    schedule = found("multi_rank_schedule")  # tlparse: diverging collectives, groups 0, 2 | 1
    assert schedule == {"rank-collectives": "collective operations differ between ranks: ranks 0, 2 | rank 1"}
    assert found("multi_rank_messy_input") == {}


@pytest.mark.shared
def test_the_command(shared: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    place = str(shared / "traces" / "tlparse" / "multi_rank_schedule")
    table = tmp_path / "runs.parquet"
    done = CliRunner().invoke(command, [place, "--json", "--parquet", str(table)])
    assert done.exit_code == 0, done.output
    document = msgspec.json.decode(done.stdout)
    assert document["schema"] == "fxscope.ranks/1"
    assert [rank["rank"] for rank in document["ranks"]] == [
        0,
        1,
        2,
    ]  # the file name wins over rank 1's field, which says 0
    assert pyarrow.read_table(table).num_rows == sum(len(rank["compiles"]) for rank in document["ranks"])
    text = CliRunner().invoke(command, [place])
    assert "ranks 0, 2 | rank 1" in text.output


@pytest.mark.shared
def test_a_process_pool_says_the_same(shared: Path) -> None:
    place = shared / "traces" / "tlparse" / "multi_rank_logs"
    assert summarize_all(place, workers=2) == summarize_all(place)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    from fxscope.errors import UnreadableError, UsageError

    with pytest.raises(UnreadableError, match="no trace log"):
        summarize_all(tmp_path)
    log = tmp_path / "dedicated_log_torch_trace_rank_0.log"
    log.write_bytes(b"\x00\xff" * 100)
    with pytest.raises(UsageError, match="workers must be 1 or more"):
        summarize_all(tmp_path, workers=0)
    for named in (log, tmp_path):
        with pytest.raises(UnreadableError) as error:
            summarize_all(named)
        assert str(error.value) == f"{log}: unreadable: holds no trace events"
    (tmp_path / "dedicated_log_torch_trace_rank_1.log").write_bytes(b"")
    assert [bool(summary.notes) for summary in summarize_all(tmp_path)] == [True, True]
