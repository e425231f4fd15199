"""Logs on remote storage: memory, HTTP with and without ranges, S3 (moto's server); drivers that are absent are one line."""

from __future__ import annotations

import gzip
import http.server
import lzma
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from fxscope.cli.ranks import command as ranks
from fxscope.diagnosis.ranks import compare_ranks
from fxscope.errors import MissingError, UnreadableError
from fxscope.recording.many import summarize_all
from fxscope.recording.recording import open_recording
from fxscope.trace import bytesource

LOG = Path(__file__).resolve().parents[1] / "data" / "traces" / "reset.log.xz"
NAME = "dedicated_log_torch_trace_rank_0_x.log"


@pytest.fixture
def folder(shared: Path) -> Path:
    return shared / "traces" / "tlparse" / "multi_rank_logs"


def _facts(summaries: list) -> list[tuple]:  # type: ignore[type-arg]
    return [(s.rank, len(s.compiles), s.recompiles, s.caches) for s in summaries]


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


class Ranges(http.server.BaseHTTPRequestHandler):
    """One log that grows, served by range; notes which ranges were asked for."""

    data = b""
    asked: list[tuple[int, int]] = []  # noqa: RUF012 - one server, one list
    ranges = True

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.data)))
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        if wanted and self.ranges:
            first, last = wanted.removeprefix("bytes=").split("-")
            start, stop = int(first), min(int(last or len(self.data) - 1), len(self.data) - 1)
            self.asked.append((start, stop))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop}/{len(self.data)}")
            body = self.data[start : stop + 1]
        else:
            self.asked.append((0, len(self.data)))
            self.send_response(200)
            body = self.data
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(bytesource, "_LOOK_AGAIN", 0.0)
    monkeypatch.setattr(Ranges, "asked", [])
    monkeypatch.setattr(Ranges, "ranges", True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{NAME}"
        server.shutdown()


def test_of_a_remote_log_that_grew_only_what_is_new_is_fetched(served: str) -> None:
    raw = lzma.decompress(LOG.read_bytes())
    half = raw.index(b"\nV", len(raw) // 2) + 1
    Ranges.data = raw[:half]
    recording = open_recording(served)
    before = recording.totals.events
    assert not recording.refresh()
    Ranges.data = raw
    Ranges.asked.clear()
    assert recording.refresh()
    assert Ranges.asked
    assert min(start for start, _ in Ranges.asked) >= half - 256
    expected = open_recording(LOG).totals
    assert before < recording.totals.events == expected.events
    assert recording.totals.compiles == expected.compiles
    Ranges.data = raw[: half // 2]
    with pytest.raises(UnreadableError, match="was replaced while it was read"):
        recording.refresh()


def test_a_server_without_ranges_is_read_whole_and_followed_not_at_all(served: str) -> None:
    raw = lzma.decompress(LOG.read_bytes())
    Ranges.data, Ranges.ranges = raw, False
    recording = open_recording(served)
    events = recording.totals.events
    assert events == open_recording(LOG).totals.events
    Ranges.data = raw + raw
    assert not recording.refresh()
    assert recording.totals.events == events


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    """An S3 server of moto's, to which botocore is pointed by its environment."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.delenv("AWS_PROFILE", raising=False)
        yield
    server.stop()


@pytest.mark.shared
@pytest.mark.slow
def test_a_run_on_s3(s3: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain and compressed logs of four ranks in a bucket: the same summaries and findings, in one process and in two."""
    import s3fs

    monkeypatch.setattr(bytesource, "_LOOK_AGAIN", 0.0)
    store = s3fs.S3FileSystem()
    store.call_s3("create_bucket", Bucket="runs")
    for log in folder.iterdir():
        data = log.read_bytes()
        store.pipe(
            f"runs/7/{log.name}.gz" if log.name.endswith("_0.log") else f"runs/7/{log.name}",
            gzip.compress(data) if log.name.endswith("_0.log") else data,
        )
    assert _facts(summarize_all("s3://runs/7")) == _facts(summarize_all(folder))
    done = CliRunner().invoke(ranks, ["s3://runs/7/", "--workers", "2"])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())  # wrapped for the terminal
    assert "cache hits and misses differ between ranks: ranks 0, 2 | rank 1 | rank 3" in text
    raw = lzma.decompress(LOG.read_bytes())
    half = raw.index(b"\nV", len(raw) // 2) + 1
    store.pipe(f"runs/live/{NAME}", raw[:half])
    recording = open_recording("s3://runs/live")
    store.pipe(f"runs/live/{NAME}", raw)
    assert recording.refresh()
    assert recording.totals.events == open_recording(LOG).totals.events
    with pytest.raises(UnreadableError, match="s3://runs/8: no such file or folder"):
        open_recording("s3://runs/8")
    with pytest.raises(UnreadableError, match="s3://elsewhere"):
        open_recording("s3://elsewhere/run")


@pytest.mark.parametrize(
    ("url", "module", "driver"),
    [
        ("gs://bucket/run7", "gcsfs", "gcsfs"),
        ("s3://bucket/run7", "s3fs", "s3fs"),
        ("hdfs://host/run7", "fsspec.implementations.arrow", "pyarrow"),
        ("abfs://box/run7", "adlfs", "adlfs"),
    ],
)
def test_an_absent_driver_is_named_with_what_installs_it(
    url: str, module: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, url.split(":")[0], raising=False)
    with pytest.raises(MissingError, match=rf"{url} needs a driver: pip install {driver}$") as caught:
        open_recording(url)
    assert caught.value.exit_code == 4


def test_an_unknown_protocol_is_one_line() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UnreadableError, match=r"cannot read nonsense://x: .*nonsense"):
        open_recording("nonsense://x")


@pytest.mark.shared
def test_a_log_behind_http(folder: Path) -> None:
    pytest.importorskip("aiohttp")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/dedicated_log_torch_trace_rank_3.log"
        assert open_recording(url).totals.recompiles == 6
        server.shutdown()
