"""A bug bundle is whole, runs, and tells nothing of its user."""

from __future__ import annotations

import errno
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fxscope.errors import UsageError
from fxscope.recording.recording import open_recording
from fxscope.report.bundle import bundle
from fxscope.report.scrub_rules import TOPICS


@pytest.mark.shared
@pytest.mark.parametrize(("log", "graph"), [("models/T5", None), ("tlparse/cache_hit_miss.log", "0/0")])
def test_a_bundle_runs_and_reads(shared: Path, tmp_path: Path, log: str, graph: str | None) -> None:
    path = shared / "traces" / log
    recording = open_recording(path)
    if graph is None:
        graph = next(c.id for c in recording.compiles if "dynamo" in c.stages and (c.nodes or 0) > 5)
    names = bundle(path, graph, "dynamo", tmp_path / "bug.zip", frozenset(TOPICS))
    assert {"issue.md", "graph.txt", "repro.py"} <= set(names)
    with zipfile.ZipFile(tmp_path / "bug.zip") as file:
        file.extractall(tmp_path)
    again = open_recording(tmp_path / "log")
    assert again.session.notes == []
    assert again.find(graph).nodes == recording.find(graph).nodes
    everything = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".zip")
    assert recording.find(graph).stack
    for line in recording.find(graph).stack:
        if line.file.startswith(("/home/", "/data/users/")):
            assert line.file.encode() not in everything
        assert len(line.code) < 12 or line.code.encode() not in everything
    done = subprocess.run(
        [sys.executable, "repro.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-1500:]
    issue = (tmp_path / "issue.md").read_text()
    assert f"torch {recording.session.torch}" in issue


@pytest.mark.shared
def test_bad_input_is_one_line(shared: Path, tmp_path: Path) -> None:
    path = shared / "traces" / "models" / "T5"
    with pytest.raises(UsageError, match="99/0"):
        bundle(path, "99/0", "dynamo", tmp_path / "x.zip", frozenset(TOPICS))
    (tmp_path / "y.zip").touch()
    with pytest.raises(UsageError, match="exists already"):
        bundle(path, "0/0", "dynamo", tmp_path / "y.zip", frozenset(TOPICS))


@pytest.mark.shared
def test_a_frame_that_has_no_graph_is_bundled_by_its_log(shared: Path, tmp_path: Path) -> None:
    """Dynamo itself failed, or skipped the frame: what happened is in the log, and there is nothing to run."""
    path = shared / "traces" / "h200" / "gpt2"
    compile_ = next(c for c in open_recording(path).compiles if not c.stages and c.status == "restarted")
    names = bundle(path, compile_.id, "dynamo", tmp_path / "bug.zip", frozenset(TOPICS))
    assert "issue.md" in names
    assert not {"repro.py", "graph.txt"} & set(names)
    with zipfile.ZipFile(tmp_path / "bug.zip") as file:
        file.extractall(tmp_path)
    assert "No graph was made of this frame" in (tmp_path / "issue.md").read_text()
    assert open_recording(tmp_path / "log").totals.compiles


@pytest.mark.shared
def test_the_second_graph_of_a_stage_is_bundled(shared: Path, tmp_path: Path) -> None:
    path = shared / "traces" / "h200" / "ranks_ddp"
    recording = open_recording(path)
    bundle(path, "r0:4/0", "joint#1", tmp_path / "bug.zip", frozenset())
    with zipfile.ZipFile(tmp_path / "bug.zip") as file:
        text = file.read("graph.txt").decode()
        assert "stage joint#1" in file.read("repro.py").decode()
    texts = [recording.text(recording.graph(recording.find("r0:4/0"), "joint", index).event) for index in (0, 1)]
    assert (text in texts[1], text in texts[0]) == (True, False)
    with pytest.raises(UsageError, match="after # comes"):
        bundle(path, "r0:4/0", "joint#b", tmp_path / "other.zip", frozenset())


def test_what_was_compiled_ahead_of_time_is_bundled_too(tmp_path: Path) -> None:
    log = Path(__file__).resolve().parents[2] / "data" / "traces" / "aot_inductor.log.xz"
    names = bundle(log, "-/-", "inference", tmp_path / "bug.zip", frozenset(TOPICS))
    assert {"issue.md", "graph.txt", "repro.py"} <= set(names)
    with zipfile.ZipFile(tmp_path / "bug.zip") as file:
        file.extractall(tmp_path)
    assert open_recording(tmp_path / "log").find("-/-").stages == open_recording(log).find("-/-").stages


def test_a_full_disk_leaves_no_half_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = Path(__file__).resolve().parents[2] / "data" / "traces" / "branches.log.xz"
    monkeypatch.setattr(zipfile.ZipFile, "write", full)
    with pytest.raises(OSError, match="No space"):
        bundle(log, "1/0", "dynamo", tmp_path / "bug.zip", frozenset(TOPICS))
    assert list(tmp_path.iterdir()) == []
