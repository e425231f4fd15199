"""An index kept on disk beside its log, and every check that it passes before a log is read through it.

It holds where events lie and what they are called, never what they say: payloads and envelopes are always read from the log.
A kept index is used where the log is, by the file system, the very file that was indexed (size, inode, both times) and its head
and tail are the same; else only where a checksum over all indexed bytes is the same, which is also how one that grew is known.
"""

from __future__ import annotations

import operator
import os
import stat
import sys
import time
import zlib
from array import array
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fxscope.trace.folder import INDEX_FOLDER, index_cache
from fxscope.trace.index import LAZY
from fxscope.trace.line import CONTEXT_KEYS, HEADER
from fxscope.trace.remote import is_url

if TYPE_CHECKING:
    import mmap

    from fxscope.trace.bytesource import ByteSource
    from fxscope.trace.index import LogIndex, Sink

_MAGIC = b"fxscope index 1 " + sys.byteorder[:1].encode() + b"\n"  # the offsets are as this machine writes numbers
_ENDS = 1 << 16  # bytes of the log's head and tail that are looked at always
_SETTLED = 2.0  # seconds: a file written more recently could change again without a change of its times


class Kept(msgspec.Struct, array_like=True):
    """A kept index.

    Attributes:
        size: Bytes of the log that it covers; the last event is left out, for it may have been unfinished.
        stamp: Size, inode, modification and change time (ns) of the file then; empty where they prove nothing.
        ends: Digest of head and tail of the covered bytes.
        checksum: CRC-32 of all covered bytes.
        starts: As in ``LogIndex``, as bytes; ``stops`` and ``kinds`` likewise.
    """

    size: int
    stamp: list[int]
    ends: bytes
    checksum: int
    names: list[str]
    starts: bytes
    stops: bytes
    kinds: bytes
    foreign: int
    torn: int
    notes: list[str]

    def arrays(self) -> tuple[array[int], array[int], array[int]]:
        """Starts, ends and kinds.

        Raises:
            ValueError: They are no arrays, or describe no log: offsets must rise, and kinds must have names.
        """
        starts, stops, kinds = array("q", self.starts), array("q", self.stops), array("H", self.kinds)
        if not (len(starts) == len(stops) == len(kinds)) or min(self.foreign, self.torn) < 0:
            raise ValueError("is damaged: counts differ")
        rising = all(map(operator.lt, starts, stops)) and all(map(operator.le, stops, starts[1:]))
        if starts and not (rising and starts[0] >= 0 and stops[-1] <= self.size and max(kinds) < len(self.names)):
            raise ValueError("is damaged: offsets or kinds out of range")
        return starts, stops, kinds

    def eager(self) -> list[int]:
        """Numbers of the events that are decoded when a log is opened."""
        lazy = {kind for kind, name in enumerate(self.names) if name in LAZY}
        return [number for number, kind in enumerate(array("H", self.kinds)) if kind not in lazy]


def places(path: str) -> list[Path]:
    """Where the index of a log may lie: beside it, else (a folder that cannot be written, a remote log) in the user's cache."""
    import hashlib

    whole = path if is_url(path) else os.path.realpath(path)
    name = hashlib.blake2b(whole.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    cached = index_cache() / f"{name}.bin"
    return [cached] if is_url(path) else [Path(path).parent / INDEX_FOLDER / f"index.{Path(path).name}.bin", cached]


def resume(index: LogIndex, sink: Sink) -> int:
    """Take in what an index that was kept of this log covers, where there is one that is true; the number of events.

    Where there is one that is not, ``index.disused`` says why, and ``renew`` makes it anew.
    """
    for place in places(index.source.path):
        try:
            raw = _read(place, len(index.source))
            if raw is None:
                continue
            kept = _decode(raw)
            _check(kept, index.source)
        except (ValueError, msgspec.MsgspecError) as error:
            index.kept_at = index.kept_at or place
            index.disused = f"{index.source.path}: its kept index {error}; read without it"
            continue
        index.kept_at, index.kept, index.disused = place, kept, ""
        return index.replay(kept, sink)
    return 0


def renew(index: LogIndex) -> None:
    """Keep anew an index that could not be used, or whose log has grown."""
    if not len(index):
        return
    kept = index.kept
    if kept is not None and kept.size >= index.starts[-1]:
        stamp = _stamp(index.source, settled=True)
        if not stamp or stamp == kept.stamp:
            return  # nothing new, not even that the file has come to rest
    try:
        save(index)
    except OSError as error:
        index.note(f"{index.source.path}: cannot keep its index: {error.strerror or error}")


def save(index: LogIndex) -> Path:
    """Keep this index; where.

    Raises:
        OSError: It can be written neither beside the log nor into the cache.
    """
    data = index.source.data
    cover = index.starts[-1] if len(index) else 0
    count = max(0, len(index) - 1)
    foreign, torn, notes = index.behind_last()
    size, checksum = (0, 0) if index.kept is None else (index.kept.size, index.kept.checksum)
    kept = Kept(
        size=cover,
        stamp=_stamp(index.source, settled=True),
        ends=_digest(data, cover),
        checksum=_checksum(data, cover, size, checksum),
        names=index.names,
        starts=index.starts[:count].tobytes(),
        stops=index.ends[:count].tobytes(),
        kinds=index.kinds[:count].tobytes(),
        foreign=index.foreign - foreign,
        torn=index.torn - torn,
        notes=index.notes[: len(index.notes) - notes],
    )
    body = msgspec.msgpack.encode(kept)
    raw = _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body
    *first, last = places(index.source.path)
    for place in first:
        with suppress(OSError):  # a folder that cannot be written: the cache takes it
            _write(place, raw)
            return place
    _write(last, raw)
    return last


def _read(place: Path, log_size: int) -> bytes | None:
    """The bytes of a kept index; None where there is none.

    Raises:
        ValueError: It is no plain file in a plain folder, or larger than an index of this log can be.
    """
    try:
        found = os.lstat(place)
        if not stat.S_ISREG(found.st_mode) or place.parent.is_symlink():
            raise ValueError("is no plain file")
        if found.st_size > log_size + (1 << 20):
            raise ValueError("is larger than its log")
        return place.read_bytes()
    except OSError:
        return None  # there is none, or it is not for us to read


def _decode(raw: bytes) -> Kept:
    """The structure in these bytes.

    Raises:
        ValueError: Another version's, or not what was written.
    """
    head = len(_MAGIC)
    if raw[:head] != _MAGIC:
        raise ValueError("is of another version or machine")
    body = raw[head + 4 :]
    if zlib.crc32(body).to_bytes(4, "little") != raw[head : head + 4]:
        raise ValueError("is damaged: its checksum is wrong")
    return msgspec.msgpack.decode(body, type=Kept)


def _check(kept: Kept, source: ByteSource) -> None:
    """Hold a kept index against its log.

    Raises:
        ValueError: It belongs to other bytes.
    """
    data = source.data
    starts, ends, kinds = kept.arrays()
    if kept.size > len(data) or kept.ends != _digest(data, kept.size):
        raise ValueError("was made for other bytes")
    if not (kept.stamp and kept.stamp == _stamp(source)) and kept.checksum != _checksum(data, kept.size):
        raise ValueError("was made for other bytes")
    # An index with a right checksum but wrong offsets is somebody's own work; a log must not be read through it either.
    for number in kept.eager():
        header = HEADER.match(data, starts[number], ends[number])
        name = kept.names[kinds[number]]
        if header is None or (header[5] != name.encode() and header[5].decode("utf-8", "replace") not in CONTEXT_KEYS):
            raise ValueError(f"names a {name} that is not there")


def _stamp(source: ByteSource, *, settled: bool = False) -> list[int]:
    """What the file system says of the file that was mapped; empty where that proves nothing.

    So it is for an unpacked or remote one, one that was replaced and, with ``settled``, one written just now.
    """
    if not source.plain:
        return []
    try:
        found = os.stat(source.path)
    except OSError:
        return []
    if found.st_ino != source.inode or (settled and time.time() - max(found.st_mtime, found.st_ctime) < _SETTLED):
        return []
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def _digest(data: mmap.mmap | bytes, size: int) -> bytes:
    import hashlib

    made = hashlib.blake2b(data[: min(size, _ENDS)], digest_size=16)
    made.update(data[max(0, size - _ENDS) : size])
    return made.digest()


def _checksum(data: mmap.mmap | bytes, size: int, done: int = 0, value: int = 0) -> int:
    """CRC-32 of the first ``size`` bytes, that of the first ``done`` being ``value``."""
    with memoryview(data) as whole:
        for start in range(done, size, 1 << 24):
            value = zlib.crc32(whole[start : min(size, start + (1 << 24))], value)
    return value


def _write(place: Path, raw: bytes) -> None:
    """Replace the file at once, so that a reader finds the old or the new one."""
    import tempfile  # costs as much as reading a small log, and few logs have an index

    if place.parent.is_symlink():
        raise OSError(f"{place.parent} is a link")
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        os.replace(name, place)
    except OSError:
        with suppress(OSError):
            os.unlink(name)
        raise
