"""Logs on HDFS (its REST interface) and on Google Cloud Storage (its JSON API): folders, ranges, and refusals in one line."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import lzma
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from fxscope.errors import MissingError, UnreadableError
from fxscope.recording.many import summarize_all
from fxscope.recording.recording import open_recording
from fxscope.trace import bytesource, remote

LOG = Path(__file__).resolve().parents[1] / "data" / "traces" / "reset.log.xz"
NAME = "dedicated_log_torch_trace_rank_{}_x.log"


class Store(http.server.BaseHTTPRequestHandler):
    """Objects by path, and the byte ranges that were asked for."""

    objects: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[tuple[int, int]]] = []

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def json(self, status: int, value: Any) -> None:
        self.answer(status, json.dumps(value).encode(), Content_Type="application/json")

    def log_message(self, *_: object) -> None:
        """Quiet."""


class WebHdfs(Store):
    """``/webhdfs/v1``: the name node knows the files and sends readers to a data node."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path.startswith("/data"):
            first, length = int(query["offset"]), int(query["length"])
            self.asked.append((first, first + length))
            return self.answer(200, self.objects[parts.path.removeprefix("/data")][first : first + length])
        path = unquote(parts.path.removeprefix("/webhdfs/v1")).rstrip("/")
        inside = [name for name in self.objects if name.startswith(path + "/")]
        if path.startswith("/secret"):
            return self._refuse(403, "AccessControlException", "Permission denied: user=dr.who, access=READ_EXECUTE")
        if path not in self.objects and not inside:
            return self._refuse(404, "FileNotFoundException", f"File does not exist: {path}")
        if query["op"] == "OPEN":
            where = f"http://{self.headers['Host']}/data{path}?offset={query['offset']}&length={query['length']}"
            return self.answer(307, b"", Location=where)
        if query["op"] == "GETFILESTATUS":
            return self.json(200, {"FileStatus": self._status(path, "")})
        return self.json(200, {"FileStatuses": {"FileStatus": [self._status(n, n.rsplit("/", 1)[1]) for n in inside]}})

    def _refuse(self, status: int, kind: str, message: str) -> None:
        self.json(status, {"RemoteException": {"exception": kind, "message": message}})

    def _status(self, path: str, suffix: str) -> dict[str, Any]:
        file = path in self.objects
        return {
            "pathSuffix": suffix,
            "type": "FILE" if file else "DIRECTORY",
            "length": len(self.objects[path]) if file else 0,
        }


class Gcs(Store):
    """``/storage/v1/b/BUCKET/o``: objects of the bucket ``runs``; another bucket is private, all others do not exist."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        _, _, rest = parts.path.partition("/b/")
        bucket, _, rest = rest.partition("/")
        if bucket == "private":
            return self._refuse(403, "anonymous caller does not have storage.objects.list access")
        if bucket != "runs":
            return self._refuse(404, "The specified bucket does not exist.")
        kind, _, name = rest.partition("/")
        name = unquote(name)
        if kind == "o" and name:
            if name not in self.objects:
                return self._refuse(404, f"No such object: runs/{name}")
            if query.get("alt") == "media":
                return self._media(name)
            return self.json(200, self._item(name))
        if kind == "o":
            items = [self._item(n) for n in self.objects if n.startswith(query.get("prefix", ""))]
            return self.json(200, {"kind": "storage#objects", "items": items})
        return self.json(200, {"kind": "storage#bucket", "name": bucket, "id": bucket})

    def _media(self, name: str) -> None:
        data = self.objects[name]
        wanted = self.headers.get("Range")
        if not wanted:
            self.asked.append((0, len(data)))
            return self.answer(200, data)
        first, last = wanted.removeprefix("bytes=").split("-")
        stop = min(int(last or len(data) - 1), len(data) - 1) + 1
        self.asked.append((int(first), stop))
        return self.answer(206, data[int(first) : stop], Content_Range=f"bytes {first}-{stop - 1}/{len(data)}")

    def _refuse(self, status: int, message: str) -> None:
        self.json(status, {"error": {"code": status, "message": message}})

    def _item(self, name: str) -> dict[str, Any]:
        data = self.objects[name]
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": "runs",
            "size": str(len(data)),
            "contentType": "text/plain",
            "generation": "1",
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
            "updated": "2026-11-29T11:59:38.304Z",
            "timeCreated": "2026-11-29T11:59:38.304Z",
        }


def _serve(handler: type[Store], folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    raw = lzma.decompress(LOG.read_bytes())
    monkeypatch.setattr(bytesource, "_LOOK_AGAIN", 0.0)
    monkeypatch.setattr(remote, "_BLOCK", 1 << 16)
    monkeypatch.setattr(bytesource, "_CHUNK", 1 << 16)
    monkeypatch.setattr(Store, "asked", [])
    objects = {f"{folder}/{NAME.format(rank)}": raw for rank in (0, 1)}
    monkeypatch.setattr(Store, "objects", {**objects, f"{folder}/notes.txt": b"none of ours"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("requests")
    yield from _serve(WebHdfs, "/logs/7", monkeypatch)


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    gcsfs = pytest.importorskip("gcsfs", reason="gcsfs brings 80 MB of Google's clients: not among the test packages")
    for host in _serve(Gcs, "7", monkeypatch):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        gcsfs.GCSFileSystem.clear_instance_cache()
        yield "gs://runs"
        gcsfs.GCSFileSystem.clear_instance_cache()


def _read_and_follow(folder: str, key: str) -> None:
    """Both ranks are found; the log is read in pieces; of what is appended only that is fetched."""
    whole = open_recording(LOG).totals
    assert [(s.rank, s.events) for s in summarize_all(folder)] == [(0, whole.events), (1, whole.events)]
    assert max(stop - start for start, stop in Store.asked) < len(Store.objects[key]) // 2
    raw = Store.objects[key]
    half = raw.index(b"\nV", len(raw) // 2) + 1
    Store.objects[key] = raw[:half]
    recording = open_recording(f"{folder}/{NAME.format(0)}")
    before = recording.totals.events
    Store.objects[key] = raw
    Store.asked.clear()
    assert recording.refresh()
    assert before < recording.totals.events == whole.events
    assert min(start for start, _ in Store.asked) >= half - 256


def test_a_run_on_hdfs_by_its_rest_interface(hdfs: str) -> None:
    _read_and_follow(f"webhdfs://{hdfs}/logs/7", f"/logs/7/{NAME.format(0)}")


def test_what_hdfs_refuses_is_one_line(hdfs: str) -> None:
    with pytest.raises(UnreadableError, match=r"^webhdfs://\S+/logs/8: no such file or folder$"):
        open_recording(f"webhdfs://{hdfs}/logs/8")
    with pytest.raises(UnreadableError, match=r"/secret/run: no permission, check your credentials: .*user=dr.who"):
        open_recording(f"webhdfs://{hdfs}/secret/run")
    with pytest.raises(UnreadableError, match=r"^cannot read webhdfs://127.0.0.1:9/run: .*refused") as caught:
        open_recording("webhdfs://127.0.0.1:9/run")
    assert len(str(caught.value)) < 400


def test_hdfs_without_java_names_the_way_that_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")

    def fail(url: str) -> None:
        raise OSError("Unable to load libjvm " + "dlopen(/usr/lib/jvm/libjvm.so) failed " * 100)

    monkeypatch.setattr(fsspec.core, "url_to_fs", fail)
    with pytest.raises(MissingError, match=r"needs Java .* read it as webhdfs://HOST:PORT/PATH$"):
        open_recording("hdfs://name/run7")


def test_a_run_on_google_cloud_storage(gcs: str) -> None:
    _read_and_follow(f"{gcs}/7", f"7/{NAME.format(0)}")


def test_what_google_refuses_is_one_line(gcs: str) -> None:
    with pytest.raises(UnreadableError, match=r"^gs://runs/8: no such file or folder$"):
        open_recording(f"{gcs}/8")
    with pytest.raises(UnreadableError, match=r"^gs://elsewhere/7: no such file or folder$"):
        open_recording("gs://elsewhere/7")
    with pytest.raises(
        UnreadableError, match=r"^(gs://private/7: no permission|cannot read gs://private/7)[^\n]*access"
    ):
        open_recording("gs://private/7")
