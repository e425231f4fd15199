"""Where the bytes of one log come from: a file that is mapped into memory, unpacked or fetched first where it must be."""

from __future__ import annotations

import mmap
import os
from typing import IO, TYPE_CHECKING, cast

from fxscope.errors import MissingError, UnreadableError

if TYPE_CHECKING:
    from pathlib import Path

COMPRESSED = (".gz", ".xz", ".zst")
MAX_UNPACKED = int(os.environ.get("FXSCOPE_MAX_UNPACKED", 16 << 30))  # bytes; a zip bomb stops here
_CHUNK = 1 << 20


def is_url(path: str) -> bool:
    """Whether fsspec, not the operating system, opens this path."""
    return "://" in path


class ByteSource:
    """The bytes of one log, as a buffer that can be searched and sliced without being loaded.

    A plain file is mapped where it lies, so its pages belong to the file cache and not to this process. A compressed or
    remote one is first unpacked into an unlinked temporary file.

    Attributes:
        path: As the user named it; an fsspec URL for a remote log.
        data: The mapped bytes; empty for an empty file. Replaced by ``grow``.
        notes: What could not be read whole, one line each.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.notes: list[str] = []
        self.data: mmap.mmap | bytes = b""
        self._file: IO[bytes] | None = None
        self._follow = not is_url(self.path) and not self.path.endswith(COMPRESSED)
        self._inode = 0
        try:
            self._file = open(self.path, "rb") if self._follow else self._unpack()  # noqa: SIM115
            self._inode = os.fstat(self._file.fileno()).st_ino
            self._map()
        except (OSError, ValueError, EOFError) as error:
            raise UnreadableError(f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}") from error

    def __len__(self) -> int:
        return len(self.data)

    def grow(self) -> int:
        """Take in what was appended; the new size. A file that shrank or was replaced is left as it was read.

        Raises:
            UnreadableError: The file was replaced or shrank, so that what was read is no longer what is there.
        """
        if not self._follow or self._file is None:
            return len(self.data)
        try:
            at_path = os.stat(self.path)
        except OSError:
            return len(self.data)  # the file vanished: what was mapped stays readable
        if at_path.st_ino != self._inode or at_path.st_size < len(self.data):
            raise UnreadableError(f"{self.path} was replaced while it was read; open it again")
        if at_path.st_size > len(self.data):
            self._map()
        return len(self.data)

    def close(self) -> None:
        """Unmap and close."""
        if isinstance(self.data, mmap.mmap):
            self.data.close()
        self.data = b""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _map(self) -> None:
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        if size:
            # The old map is dropped, not closed: another thread may still be reading from it.
            self.data = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)

    def _unpack(self) -> IO[bytes]:
        """Copy the unpacked bytes into an unlinked temporary file; a broken archive yields what came before the break."""
        import tempfile  # costs as much as the rest of this module, and few logs are compressed

        target = cast("IO[bytes]", tempfile.TemporaryFile(prefix="fxscope-"))  # noqa: SIM115
        written = 0
        try:
            with self._opened() as raw, _decompressed(self.path, raw) as stream:
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

    def _opened(self) -> IO[bytes]:
        if not is_url(self.path):
            return open(self.path, "rb")
        try:
            import fsspec
        except ImportError as error:
            raise MissingError(f"{self.path} is remote: pip install 'fxscope[remote]'") from error
        return cast("IO[bytes]", fsspec.open(self.path, "rb").open())


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
