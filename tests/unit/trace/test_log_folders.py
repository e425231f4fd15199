"""Which logs a path names: folders, renamed files, archives and remote stores."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import pytest

import fxscope
from fxscope.errors import UnreadableError
from fxscope.trace.folder import find_logs, list_new, rank_of

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"
LOG = lzma.decompress((TRACES / "no_graph.log.xz").read_bytes())


def test_ranks_of_names() -> None:
    assert rank_of("/x/rank_9/dedicated_log_torch_trace_rank_3_ab.log") == 3
    assert rank_of("dedicated_log_torch_trace_ab.log.gz") is None
    assert rank_of("C:\\logs\\rank12.log") == 12


def test_folder_order_and_what_counts(tmp_path: Path) -> None:
    for name in ("dedicated_log_torch_trace_rank_10_b.log", "dedicated_log_torch_trace_rank_2_a.log"):
        (tmp_path / name).write_bytes(LOG)
    (tmp_path / "renamed.txt").write_bytes(b"a line of the program\n" + LOG)
    (tmp_path / "notes.txt").write_text("nothing\n")
    (tmp_path / "output.log").write_text("epoch 1\n")
    (tmp_path / "dedicated_log_torch_trace_c.log.xz").write_bytes(lzma.compress(LOG))
    names = [os.path.basename(path) for path in find_logs(tmp_path)]
    assert names == [
        "dedicated_log_torch_trace_c.log.xz",
        "renamed.txt",
        "dedicated_log_torch_trace_rank_2_a.log",
        "dedicated_log_torch_trace_rank_10_b.log",
    ]
    assert list_new(tmp_path, {str(tmp_path / name) for name in names[1:]}) == [str(tmp_path / names[0])]
    assert list_new(f"{tmp_path}/./", set()) == find_logs(tmp_path)  # a path is one path, however it is written
    assert list_new(tmp_path / "gone", set()) == []


def test_folders_of_folders(tmp_path: Path) -> None:
    for host in ("b", "a"):
        (tmp_path / host).mkdir()
        (tmp_path / host / f"dedicated_log_torch_trace_rank_{'ab'.index(host)}_x.log").write_bytes(LOG)
    recording = fxscope.open(tmp_path)
    assert recording.session.ranks == [0, 1]


def test_folders_several_levels_deep(tmp_path: Path) -> None:
    """As torchrun's --log-dir has them, and compressed by whoever rotates logs; one of each kind, and one too deep."""
    packed = lzma.compress(LOG)
    for place, name, data in (
        ("run_x/attempt_0/0", "dedicated_log_torch_trace_rank_0_a.log", LOG),
        ("run_x/attempt_0/1", "dedicated_log_torch_trace_rank_1_a.log.xz", packed),
        ("run_x/node-b", "dedicated_log_torch_trace_rank_2_a.log", LOG),
        (".hidden", "dedicated_log_torch_trace_rank_3_a.log", LOG),
        ("a/b/c/d/e", "dedicated_log_torch_trace_rank_4_a.log", LOG),
    ):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / name).write_bytes(data)
    (tmp_path / "run_x" / "again").symlink_to(tmp_path)  # no way round
    recording = fxscope.open(tmp_path)
    assert recording.session.ranks == [0, 1, 2]
    late = tmp_path / "run_x" / "node-c"
    late.mkdir()
    (late / "dedicated_log_torch_trace_rank_5_a.log").write_bytes(LOG)
    assert recording.refresh()
    assert recording.session.ranks == [0, 1, 2, 5]


def test_linked_folders(tmp_path: Path) -> None:
    """A folder behind a link counts, and one that is linked from beside it counts once, under its own name."""
    for place in ("elsewhere/real", "runs/run_3"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "dedicated_log_torch_trace_rank_0_a.log").write_bytes(LOG)
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "rank0").symlink_to(tmp_path / "elsewhere" / "real")
    assert find_logs(tmp_path / "top") == [str(tmp_path / "top" / "rank0" / "dedicated_log_torch_trace_rank_0_a.log")]
    (tmp_path / "runs" / "latest").symlink_to("run_3")
    own = str(tmp_path / "runs" / "run_3" / "dedicated_log_torch_trace_rank_0_a.log")
    assert find_logs(tmp_path / "runs") == [own]
    assert list_new(tmp_path / "runs", {own.replace("run_3", "latest")}) == []


def test_unreadable_subfolder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hides no log of another; where there is no other, what is told is its name. (A test may run as root: no chmod.)"""
    for place in ("closed", "gone", "open"):
        (tmp_path / place).mkdir()
    log = tmp_path / "open" / "dedicated_log_torch_trace_a.log"
    log.write_bytes(LOG)
    scandir = os.scandir

    def refusing(folder: str) -> object:
        if os.path.basename(folder) == "closed":
            raise PermissionError(13, "Permission denied", folder)
        if os.path.basename(folder) == "gone":
            raise FileNotFoundError(2, "No such file or directory", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    assert find_logs(tmp_path) == [str(log)]
    assert list_new(tmp_path, set()) == [str(log)]
    with pytest.raises(UnreadableError, match=r"closed: Permission denied"):
        find_logs(tmp_path / "closed")
    log.unlink()
    with pytest.raises(UnreadableError, match=r"closed: Permission denied"):
        find_logs(tmp_path)
    (tmp_path / "closed").rmdir()
    assert find_logs(tmp_path) == []


def test_what_is_taken_deep_down(tmp_path: Path) -> None:
    """Logs of a project's tests lie below the folder that somebody names by mistake; a renamed log of a rank may, too."""
    for place in ("a/tests", "a/node_modules"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "a" / "tests" / "rank1.log").write_bytes(LOG)
    (tmp_path / "a" / "tests" / "case.log").write_bytes(LOG)
    (tmp_path / "a" / "tests" / "check.log.gz").write_bytes(b"")
    (tmp_path / "a" / "node_modules" / "dedicated_log_torch_trace_a.log").write_bytes(LOG)
    assert find_logs(tmp_path) == [str(tmp_path / "a" / "tests" / "rank1.log")]
    assert len(find_logs(tmp_path / "a")) == 3  # whoever names the folder above means them


def test_remote_logs(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/run/dedicated_log_torch_trace_rank_0_a.log", LOG)
    system.pipe("/bucket/run/dedicated_log_torch_trace_rank_1_a.log.xz", lzma.compress(LOG))
    system.pipe("/bucket/run/other.txt", b"x")
    folder = fxscope.open("memory://bucket/run")
    assert folder.session.ranks == [0, 1]
    assert folder.totals.compiles == 2
    system.pipe("/bucket/deep/node-a/0/dedicated_log_torch_trace_rank_7_a.log", LOG)
    assert fxscope.open("memory://bucket/deep").session.ranks == [7]
    one = fxscope.open("memory://bucket/run/dedicated_log_torch_trace_rank_1_a.log.xz")
    assert one.totals.compiles == 1
    assert not one.refresh()
    with pytest.raises(UnreadableError, match="no such file or folder"):
        fxscope.open("memory://bucket/absent")
    with pytest.raises(UnreadableError, match="nonsense://"):
        fxscope.open("nonsense://bucket/run")


def test_rank_that_only_later_events_name(tmp_path: Path) -> None:
    """A process that compiles before it joins its group: the log's name has no rank, and its first events neither."""
    early = LOG.replace(b'"frame_id": 0', b'"frame_id": 5')
    late = LOG.replace(b'}, "frame_id"', b'}, "rank": 3, "frame_id"')
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    path.write_bytes(early + late)
    recording = fxscope.open(path)
    assert recording.session.ranks == [3]
    assert {row.key for row in recording.compiles} == {"r3:5/0", "r3:0/0"}
