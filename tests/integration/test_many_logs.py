"""Many logs on a Dask cluster whose worker dies."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from fxscope.errors import UsageError
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
    many = tmp_path / "logs"
    many.mkdir()
    for copy in range(4):
        for log in folder.glob("*rank_*"):
            (many / log.name.replace("rank_", f"rank_{copy}")).symlink_to(log)
    expected = _facts(summarize_all(many))
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
        summaries = summarize_all(many, scheduler=cluster.scheduler_address)
        killer.join()
    assert _facts(summaries) == expected
    assert len(summaries) == 16


def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "dedicated_log_torch_trace_rank_0.log").write_text(
        'V1129 11:59:38.304000 440 x.py:1] {"str": ["a", 0]}\n'
    )
    with pytest.raises(UsageError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        summarize_all(tmp_path, scheduler="tcp://127.0.0.1:9")
