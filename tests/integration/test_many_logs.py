"""Many logs: on a Dask cluster whose worker dies, and on remote storage."""

from __future__ import annotations

import gzip
import http.server
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fxscope.diagnosis.ranks import compare_ranks
from fxscope.errors import UnreadableError, UsageError
from fxscope.recording.many import summarize_all
from fxscope.recording.recording import open_recording


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


@pytest.fixture
def memory(folder: Path) -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for log in folder.iterdir():
        data = log.read_bytes()
        name, data = (log.name + ".gz", gzip.compress(data)) if log.name.endswith("rank_0.log") else (log.name, data)
        system.pipe(f"/run/{name}", data)
    yield "memory://run"
    system.rm("/run", recursive=True)


@pytest.mark.shared
def test_remote_folders_read_like_local_ones(folder: Path, memory: str) -> None:
    assert _facts(summarize_all(memory)) == _facts(summarize_all(folder))
    assert {f.ids[0] for f in compare_ranks(summarize_all(memory))} == {"rank-divergence", "rank-cache"}
    recording = open_recording(memory)
    assert recording.session.ranks == [0, 1, 2, 3]
    assert recording.totals.recompiles == 20


def test_a_remote_path_that_is_not_there() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UnreadableError, match="memory://nowhere"):
        open_recording("memory://nowhere")


@pytest.mark.shared
def test_a_log_behind_http(folder: Path) -> None:
    pytest.importorskip("aiohttp")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/dedicated_log_torch_trace_rank_3.log"
        assert open_recording(url).totals.recompiles == 6
        server.shutdown()
