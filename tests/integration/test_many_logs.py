"""Many logs on a Dask cluster whose worker dies."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from fxscope.errors import FxscopeError, UsageError
from fxscope.recording import many
from fxscope.recording.many import summarize_all


@pytest.fixture
def folder(shared: Path) -> Path:
    return shared / "traces" / "tlparse" / "multi_rank_logs"


def _facts(summaries: list) -> list[tuple]:  # type: ignore[type-arg]
    return [(s.rank, len(s.compiles), s.recompiles, s.caches) for s in summaries]


@pytest.mark.shared
@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_says_the_same(folder: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    logs = tmp_path / "logs"
    logs.mkdir()
    for copy in range(4):
        for log in folder.glob("*rank_*"):
            (logs / log.name.replace("rank_", f"rank_{copy}")).symlink_to(log)
    expected = _facts(summarize_all(logs))
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    ) as cluster:
        victim = next(iter(cluster.workers.values())).pid
        killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
        killer.start()
        summaries = summarize_all(logs, scheduler=cluster.scheduler_address)
        killer.join()
    assert _facts(summaries) == expected
    assert len(summaries) == 16


def _die(path: str) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_reader_that_is_killed_is_told_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(4):
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}.log").write_text("")
    monkeypatch.setattr(many, "summarize_log", _die)
    monkeypatch.setattr(many, "_is_alone", lambda: True)  # by fork, so that the children die as told
    with pytest.raises(FxscopeError, match="was killed, perhaps for want of memory: use fewer than 2 workers"):
        summarize_all(tmp_path, workers=2)


def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "dedicated_log_torch_trace_rank_0.log").write_text(
        'V1129 11:59:38.304000 440 x.py:1] {"str": ["a", 0]}\n'
    )
    with pytest.raises(UsageError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        summarize_all(tmp_path, scheduler="tcp://127.0.0.1:9")
