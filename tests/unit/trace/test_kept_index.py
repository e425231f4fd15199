"""A kept index: what is read through it is what is read without it, and one that is not this log's is never read through."""

from __future__ import annotations

import lzma
import os
import re
import zlib
from array import array
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fxscope.cli.index import command
from fxscope.recording.recording import Recording, open_recording
from fxscope.report.document import encode_document, report_document
from fxscope.trace import keep
from fxscope.trace.bytesource import ByteSource
from fxscope.trace.folder import INDEX_FOLDER
from fxscope.trace.index import LogIndex, Nobody

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"
NAME = "dedicated_log_torch_trace_x.log"


@pytest.fixture(scope="module")
def raw() -> bytes:
    return lzma.decompress((TRACES / "branches.log.xz").read_bytes())


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _kept(log: Path, *, old: bool = True) -> Path:
    """Keep the index of a log, written a minute ago by its time unless ``old`` is False; where."""
    if old:
        os.utime(log, (log.stat().st_mtime - 60,) * 2)
    index = LogIndex(ByteSource(log))
    index.scan(Nobody(), final=True)
    return keep.save(index)


def _state(log: Path) -> tuple[str, list[str], bool]:
    """What the report says, the notes about the index, and whether the log was read through it."""
    recording = open_recording(log)
    index = recording._builder.logs[0]
    notes = [note for note in recording.session.notes if "kept index" in note]
    recording.session.notes = [note for note in recording.session.notes if note not in notes]
    return encode_document(report_document(recording)), notes, index.kept is not None


@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.log.xz")), ids=lambda path: path.name)
def test_the_report_is_the_same_through_an_index(trace: Path, tmp_path: Path) -> None:
    log = tmp_path / NAME
    log.write_bytes(b"a foreign line\n" + lzma.decompress(trace.read_bytes()) + b"another\nV1129 torn")
    without, notes, through = _state(log)
    assert (notes, through) == ([], False)
    assert _kept(log) == tmp_path / ".fxscope-index" / f"index.{NAME}.bin"
    assert _state(log) == (without, [], True)
    recording = open_recording(tmp_path)  # the folder of the index is no recording and no log
    assert len(list(recording.events())) == recording.totals.events
    assert [recording.text(number) for number, _ in recording.events()]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_log_that_grew_is_read_on_from_its_index(raw: bytes, tmp_path: Path, data: st.DataObject) -> None:
    cut = data.draw(st.integers(2000, len(raw)))
    log = tmp_path / NAME
    log.unlink(missing_ok=True)
    keep.places(str(log))[0].unlink(missing_ok=True)
    log.write_bytes(raw)
    expected, _, _ = _state(log)
    log.write_bytes(raw[:cut])
    _kept(log)
    with open(log, "ab") as file:
        file.write(raw[cut:])
    assert _state(log) == (expected, [], True)
    size = msgspec.msgpack.decode(keep.places(str(log))[0].read_bytes()[len(keep._MAGIC) + 4 :])[0]
    assert size == _index(log).starts[-1]  # extended: it covers all but the last event


def _index(log: Path) -> LogIndex:
    index = LogIndex(ByteSource(log))
    index.scan(Nobody(), final=True)
    return index


def _edit(log: Path, raw: bytes) -> None:
    """Other bytes of the same length in the middle, the time of change as before."""
    was = log.stat()
    place = raw.index(b"\n\t", len(raw) // 2)
    with open(log, "r+b") as file:
        file.seek(place)
        file.write(b"\nV")
    os.utime(log, ns=(was.st_atime_ns, was.st_mtime_ns))


def _replace(log: Path, raw: bytes) -> None:
    was = log.stat()
    other = log.with_name("other")
    other.write_bytes(raw.replace(b'"frame_id": 0', b'"frame_id": 7'))
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    os.replace(other, log)


def _cut(log: Path, raw: bytes) -> None:
    os.truncate(log, len(raw) // 2)


def _overwrite(log: Path, raw: bytes) -> None:
    log.write_bytes(raw[: len(raw) // 3] + raw)


@pytest.mark.parametrize("change", [_edit, _replace, _cut, _overwrite])
def test_a_log_that_is_another_one_is_read_without_and_indexed_anew(
    change: object, raw: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / NAME
    log.write_bytes(raw)
    place = _kept(log)
    assert _state(log)[2]
    change(log, raw)  # type: ignore[operator]
    stale = place.read_bytes()
    told, notes, through = _state(log)
    assert notes == [f"{log}: its kept index was made for other bytes; read without it"]
    assert not through
    assert place.read_bytes() != stale
    assert _state(log) == (told, [], True)
    place.unlink()
    assert _state(log) == (told, [], False)


def test_a_file_that_was_just_written_is_not_known_by_its_times(raw: bytes, tmp_path: Path) -> None:
    log = tmp_path / NAME
    log.write_bytes(raw)
    place = _kept(log, old=False)
    head = len(keep._MAGIC) + 4
    assert msgspec.msgpack.decode(place.read_bytes()[head:])[1] == []
    _edit(log, raw)
    assert not _state(log)[2]
    assert _state(log)[2]  # by its checksum


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 1 << 30), value=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_index_is_left_aside(raw: bytes, tmp_path: Path, place: int, value: int, cut: bool) -> None:
    log = tmp_path / NAME
    if not log.exists():
        log.write_bytes(raw)
    keep.places(str(log))[0].unlink(missing_ok=True)
    expected, _, _ = _state(log)
    kept = _kept(log)
    spoilt = bytearray(kept.read_bytes())
    place %= len(spoilt)
    spoilt[place] ^= value
    kept.write_bytes(spoilt[:place] if cut else spoilt)
    told, notes, through = _state(log)
    assert (told, len(notes), through) == (expected, 1, False)
    assert _state(log) == (expected, [], True)  # made anew


def _forged(kept: Path, **fields: object) -> None:
    head = len(keep._MAGIC)
    made = msgspec.msgpack.decode(kept.read_bytes()[head + 4 :], type=keep.Kept)
    body = msgspec.msgpack.encode(msgspec.structs.replace(made, **fields))
    kept.write_bytes(keep._MAGIC + zlib.crc32(body).to_bytes(4, "little") + body)


def test_a_forged_index_is_left_aside(raw: bytes, tmp_path: Path) -> None:
    log = tmp_path / NAME
    log.write_bytes(raw)
    expected, _, _ = _state(log)
    index = _index(log)
    count = len(index) - 1
    names = index.names
    nonsense: list[dict[str, object]] = [
        {"names": names[:1]},
        {"names": names[::-1]},
        {"starts": b"123"},
        {"starts": array("q", [0] * count).tobytes()},
        {"starts": array("q", [start + 1 for start in index.starts[:count]]).tobytes()},
        {"stops": array("q", [1 << 60] * count).tobytes()},
        {"kinds": b""},
        {"foreign": -1},
        {"size": 1 << 62},
    ]
    for fields in nonsense:
        kept = _kept(log)
        _forged(kept, **fields)
        told, notes, through = _state(log)
        assert (told, len(notes), through) == (expected, 1, False), fields


def test_links_and_pipes_are_not_followed(raw: bytes, tmp_path: Path) -> None:
    log = tmp_path / "logs" / NAME
    log.parent.mkdir()
    log.write_bytes(raw)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = log.parent / INDEX_FOLDER
    folder.symlink_to(elsewhere)
    kept = _kept(log)
    assert kept.parent.parent == tmp_path / "cache" / "fxscope"
    assert list(elsewhere.iterdir()) == []
    folder.unlink()
    folder.mkdir()
    os.mkfifo(folder / f"index.{NAME}.bin")
    kept.unlink()
    assert _state(log)[1] == [f"{log}: its kept index is no plain file; read without it"]


def test_a_folder_that_cannot_be_written_has_its_index_in_the_cache(raw: bytes, tmp_path: Path) -> None:
    log = tmp_path / NAME
    log.write_bytes(raw)
    (tmp_path / INDEX_FOLDER).write_text("in the way")
    kept = _kept(log)
    assert kept.is_relative_to(tmp_path / "cache")
    assert _state(log)[1:] == ([], True)


def test_compressed_and_remote_logs_too(raw: bytes, tmp_path: Path) -> None:
    pytest.importorskip("fsspec").filesystem("memory").pipe(f"/kept/{NAME}", raw)
    remote = f"memory://kept/{NAME}"
    packed = tmp_path / f"{NAME}.xz"
    packed.write_bytes(lzma.compress(raw))
    for path in (remote, str(packed)):
        index = LogIndex(ByteSource(path))
        index.scan(Nobody(), final=True)
        keep.save(index)
        recording = open_recording(path)
        assert recording._builder.logs[0].kept is not None
        assert recording.totals.compiles


def test_following_goes_on_after_the_index(raw: bytes, tmp_path: Path) -> None:
    log = tmp_path / NAME
    half = raw.index(b"\nV", len(raw) // 2) + 1
    log.write_bytes(raw[:half])
    _kept(log)
    recording: Recording = open_recording(log)
    before = recording.totals.events
    with open(log, "ab") as file:
        file.write(raw[half:])
    assert recording.refresh()
    (tmp_path / "whole").mkdir()
    whole = tmp_path / "whole" / NAME
    whole.write_bytes(raw)
    assert before < recording.totals.events == open_recording(whole).totals.events


def test_the_command(raw: bytes, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}.log").write_bytes(raw)
    done = CliRunner().invoke(command, [str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    rows = msgspec.json.decode(done.stdout)["logs"]
    assert [Path(row["kept_at"]).is_file() for row in rows] == [True, True]
    assert rows[0]["events"] == len(_index(Path(rows[0]["log"])))
    assert all(index.kept is not None for index in open_recording(tmp_path)._builder.logs)
    assert re.search(r"index of [1-9]\d* kB in", CliRunner().invoke(command, [str(tmp_path)]).stdout)
