"""Logs on remote storage, through fsspec: what is there, and its bytes by range where the store can."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any, cast

from fxscope.errors import MissingError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What installs the driver of a protocol; fsspec itself says so of the others.
_DRIVERS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hdfs": "pyarrow",
    "http": "aiohttp",
    "https": "aiohttp",
    "abfs": "adlfs",
    "az": "adlfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
}
_LONGEST = 300  # characters of a driver's own words
_BLOCK = 8 << 20  # bytes of one request


def is_url(path: str) -> bool:
    """Whether fsspec, not the operating system, opens this path."""
    return "://" in path


def filesystem(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it.

    Raises:
        MissingError: fsspec, or the driver of this protocol, is not installed.
        UnreadableError: No such protocol, or the store refuses us.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingError(f"{url} is remote: pip install 'fxscope[remote]'") from error
    protocol = url.split("://", 1)[0]
    try:
        system, inner = fsspec.core.url_to_fs(url)
    except ImportError as error:
        driver = _DRIVERS.get(protocol)
        raise MissingError(f"{url} needs a driver: {f'pip install {driver}' if driver else error}") from error
    except Exception as error:  # each driver raises its own kinds when it cannot reach its store
        if "libjvm" in str(error) or "libhdfs" in str(error):
            raise MissingError(
                f"{url} needs Java and Hadoop's libhdfs on this machine; without them read it as webhdfs://HOST:PORT/PATH"
            ) from error
        raise UnreadableError(f"cannot read {url}: {one_line(error)}") from error
    return system, inner


def find(url: str, prefix: str, levels: int) -> list[str]:
    """The log that a URL names, or those of a folder whose names begin with ``prefix``.

    Where the folder itself has none, those below it, so many levels deep; not of a web server, whose links may lead anywhere.

    Raises:
        MissingError: As ``filesystem``.
        UnreadableError: There is nothing, or the store refuses us.
    """
    system, inner = filesystem(url)
    try:
        if system.info(inner)["type"] == "file":
            return [url]
        root = inner.rstrip("/")
        names = [os.path.basename(name) for name in system.ls(inner, detail=False)]
        if not any(name.startswith(prefix) for name in names) and not url.startswith("http"):
            # What is listed begins with the bucket or a slash, as the driver likes.
            below = (str(name) for name in system.find(inner, maxdepth=levels + 1))
            names = [name.partition(root.lstrip("/"))[2].lstrip("/") if root else name for name in below]
    except FileNotFoundError as error:
        raise UnreadableError(f"{url}: no such file or folder") from error
    except PermissionError as error:
        raise UnreadableError(f"{url}: no permission, check your credentials: {one_line(error)}") from error
    except Exception as error:  # as above: botocore, google.auth and aiohttp have bases of their own
        raise UnreadableError(f"cannot read {url}: {one_line(error)}") from error
    # The names that drivers list have lost the host, where the URL has one.
    return [f"{url.rstrip('/')}/{name}" for name in names if os.path.basename(name).startswith(prefix)]


def opened(url: str) -> IO[bytes]:
    """A remote file, which asks for its bytes in blocks.

    Raises:
        OSError: It cannot be opened, whatever its driver raised.
    """
    system, inner = filesystem(url)
    try:
        return cast("IO[bytes]", system.open(inner, "rb", block_size=_BLOCK))
    except OSError:
        raise
    except Exception as error:
        raise OSError(one_line(error)) from error


def size_of(url: str) -> int:
    """Bytes of a remote file now.

    Raises:
        OSError: It is gone, or the store does not answer or does not say.
    """
    system, inner = filesystem(url)
    try:
        system.invalidate_cache(os.path.dirname(inner))
        return int(system.info(inner)["size"])
    except Exception as error:  # each driver has its own
        raise OSError(one_line(error)) from error


def pieces(url: str, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a remote file between two offsets, a block at a time.

    Raises:
        OSError: It cannot be read, or not by range.
    """
    with opened(url) as file:
        try:
            file.seek(start)
            while start < end and (piece := file.read(min(_BLOCK, end - start))):
                start += len(piece)
                yield piece
        except OSError:
            raise
        except Exception as error:  # a server without ranges: "Cannot seek streaming HTTP file"
            raise OSError(one_line(error)) from error


def one_line(error: Exception) -> str:
    """An error of a driver in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
