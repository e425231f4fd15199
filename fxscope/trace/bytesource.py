"""Where the bytes of one log come from: a file that is mapped into memory, unpacked or fetched first where it must be."""

from __future__ import annotations

import mmap
import os
import time
from typing import IO, TYPE_CHECKING, cast

from fxscope.errors import MissingError, UnreadableError
from fxscope.trace.remote import is_url, opened, pieces, size_of

if TYPE_CHECKING:
    from pathlib import Path

COMPRESSED = (".gz", ".xz", ".zst")
MAX_UNPACKED = int(os.environ.get("FXSCOPE_MAX_UNPACKED", 16 << 30))  # bytes; a zip bomb stops here
_CHUNK = 1 << 20
_LOOK_AGAIN = 5.0  # seconds between two questions how large a remote log is
_OVERLAP = 256  # bytes that are read again, to see that a log was appended to and not replaced


def allow_files(number: int) -> None:
    """Raise the process's own limit of open files where so many logs (a map holds one each) would not fit."""
    try:
        import resource
    except ImportError:
        return  # Windows has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * number + 256  # a remote one has its copy open too
    if soft != resource.RLIM_INFINITY and soft < wanted:
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


class ByteSource:
    """The bytes of one log, as a buffer that can be searched and sliced without being loaded.

    A plain file is mapped where it lies, so its pages belong to the file cache and not to this process. A compressed or
    remote one is first unpacked into an unlinked temporary file.

    Attributes:
        path: As the user named it; an fsspec URL for a remote log.
        data: The mapped bytes; empty for an empty file. Replaced by ``grow``.
        notes: What could not be read whole, one line each.
        inode: Of the file that is mapped.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.notes: list[str] = []
        self.data: mmap.mmap | bytes = b""
        self._follow = not is_url(self.path) and not self.path.endswith(COMPRESSED)
        self.inode = 0
        self._copy: IO[bytes] | None = None  # of a remote log that may grow
        self._end = b""  # the last bytes as they were read
        self._modified = 0  # when the file was, in ns
        self._replaced = False
        self._asked = time.monotonic()
        try:
            file = open(self.path, "rb") if self._follow else self._unpack()  # noqa: SIM115 - a copy stays open
            self.inode = os.fstat(file.fileno()).st_ino
            self._map(file)
            if is_url(self.path) and not self.path.endswith(COMPRESSED):
                self._copy = file
            else:
                file.close()
        except (OSError, ValueError, EOFError) as error:
            raise UnreadableError(f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}") from error

    def __len__(self) -> int:
        return len(self.data)

    @property
    def plain(self) -> bool:
        """Whether the file at ``path`` itself is mapped, not a copy that was unpacked or fetched."""
        return self._follow

    def grow(self) -> int:
        """Take in what was appended; the new size. A file that shrank or was replaced is left as it was read, for good.

        Raises:
            UnreadableError: The file was replaced or shrank, so that what was read is no longer what is there. Cut in place and
                written anew it may be as long as before, or longer: its end tells.
        """
        try:
            if not self._follow:
                self._grow_remote()
                return len(self.data)
            at_path, known = os.stat(self.path), len(self.data)
            self._replaced = self._replaced or at_path.st_ino != self.inode or at_path.st_size < known
            if not self._replaced and (at_path.st_size > known or at_path.st_mtime_ns != self._modified):
                with open(self.path, "rb") as file:
                    file.seek(known - len(self._end))
                    now = file.read(len(self._end))
                    # Zeros are what a network file system shows of bytes that it has not got yet: any may come there.
                    pairs = zip(self._end, now, strict=False)
                    same = len(now) == len(self._end) and all(old in (0, new) for old, new in pairs)
                    self._replaced = not same
                    if same:
                        self._map(file)
            if self._replaced:
                raise UnreadableError(f"{self.path} was replaced while it was read; open it again")
        except OSError:
            pass  # the file vanished, or its store does not answer: what was mapped stays readable
        return len(self.data)

    def reaches(self, end: int) -> bool:
        """Whether the bytes up to ``end`` are still there, and were those that were read when the log was last looked at: touching a file that was cut in place would kill us (SIGBUS)."""
        if not self._follow:
            return True
        try:
            at_path = os.stat(self.path)
        except OSError:
            return True  # unlinked, but still there for us
        return at_path.st_ino != self.inode or (at_path.st_size >= end and not self._replaced)

    def let_go(self, start: int, end: int) -> None:
        """Unmap the pages between two offsets until they are read again: the file cache keeps them, this process need not."""
        advice = getattr(mmap, "MADV_DONTNEED", None)  # not on Windows
        start -= start % mmap.PAGESIZE
        end -= end % mmap.PAGESIZE
        if advice is not None and isinstance(self.data, mmap.mmap) and start < end:
            self.data.madvise(advice, start, end - start)

    def close(self) -> None:
        """Unmap."""
        if isinstance(self.data, mmap.mmap):
            self.data.close()
        if self._copy is not None:
            self._copy.close()
        self._copy = None
        self.data = b""
        self._follow = False

    def _map(self, file: IO[bytes]) -> None:
        known = os.fstat(file.fileno())
        size, self._modified = known.st_size, known.st_mtime_ns
        if size:
            # The old map is dropped, not closed: another thread may still be reading from it.
            self.data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            self._end = self.data[-_OVERLAP:]

    def _unpack(self) -> IO[bytes]:
        """Copy the unpacked bytes into an unlinked temporary file; a broken archive yields what came before the break."""
        import tempfile  # costs as much as the rest of this module, and few logs are compressed

        target = cast("IO[bytes]", tempfile.TemporaryFile(prefix="fxscope-"))  # noqa: SIM115
        written = 0
        try:
            with (
                opened(self.path) if is_url(self.path) else open(self.path, "rb") as raw,
                _decompressed(self.path, raw) as stream,
            ):
                # One piece at a time, so that what comes before a break in the archive is kept.
                read = getattr(stream, "read1", stream.read)
                while chunk := read(_CHUNK):
                    written += len(chunk)
                    if written > MAX_UNPACKED:
                        self.notes.append(f"{self.path}: unpacks to more than {MAX_UNPACKED} bytes; read up to there")
                        break
                    target.write(chunk)
        except (OSError, EOFError, ValueError) as error:
            if not written:
                raise
            self.notes.append(f"{self.path}: {error}; read up to there ({written} bytes)")
        except Exception as error:  # lzma, zlib and zstandard each raise their own base class
            if not written:
                raise ValueError(f"{type(error).__name__}: {error}") from error
            self.notes.append(f"{self.path}: {type(error).__name__}: {error}; read up to there ({written} bytes)")
        target.flush()
        return target

    def _grow_remote(self) -> None:
        """Fetch what was appended to a remote log, and only that."""
        if self._copy is None or time.monotonic() < self._asked + _LOOK_AGAIN:
            return
        self._asked = time.monotonic()
        size, known = size_of(self.path), len(self.data)
        if size == known:
            return
        last = max(0, known - _OVERLAP)
        if size < known or b"".join(pieces(self.path, last, known)) != self.data[last:known]:
            raise UnreadableError(f"{self.path} was replaced while it was read; open it again")
        self._copy.seek(known)
        for piece in pieces(self.path, known, size):
            self._copy.write(piece)
        self._copy.flush()
        self._map(self._copy)


def _decompressed(path: str, raw: IO[bytes]) -> IO[bytes]:
    if path.endswith(".gz"):
        import gzip

        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if path.endswith(".xz"):
        import lzma

        return cast("IO[bytes]", lzma.LZMAFile(raw))
    if path.endswith(".zst"):
        try:
            import zstandard
        except ImportError as error:
            raise MissingError(f"{path} is compressed with zstd: pip install 'fxscope[zstd]'") from error
        return cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(raw))
    return raw
