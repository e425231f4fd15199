"""Which logs a path names, and what their file names say."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fxscope.errors import UnreadableError
from fxscope.names import LOG_PREFIX, SESSION_FILE
from fxscope.source import base_name
from fxscope.trace.bytesource import COMPRESSED
from fxscope.trace.line import HEADER
from fxscope.trace.remote import find, is_url

if TYPE_CHECKING:
    import mmap

_RANK = re.compile(r"rank[_-]?(\d{1,9})")
_FORKED = re.compile(rb'"forked_from": ?\d')  # in what our recorder says of a session
_SNIFF = 1 << 16
_LEVELS = 4  # of folders below the one that is named: torchrun makes RUN/attempt_0/RANK of its --log-dir
INDEX_FOLDER = ".fxscope-index"  # a folder, so that nobody takes the index for a log


def rank_of(name: str) -> int | None:
    """The rank in a log's file name: ``dedicated_log_torch_trace_rank_3_x1y2.log`` -> 3."""
    found = _RANK.search(base_name(name))
    return int(found[1]) if found else None


def index_cache() -> Path:
    """Where the user's cache keeps the indexes of logs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "fxscope" / "index"


def may_have_index(log: str) -> bool:
    """Whether an index of this log may have been kept, beside it or in the cache."""
    return os.path.exists(os.path.join(os.path.dirname(log), INDEX_FOLDER)) or index_cache().exists()


def find_logs(path: str | Path) -> list[str]:
    """Paths of the trace logs under ``path`` (a log, a folder of logs, or an fsspec URL), in order of rank and name.

    In a folder every file that PyTorch names as its log counts, and of the others those that hold a trace line, so a log
    may have been renamed and anything else may lie beside it. Sub-folders (of machines, of attempts) are looked into where the
    folder itself has none, some levels deep.

    Raises:
        UnreadableError: Nothing there, or no permission.
    """
    text = str(path)
    if is_url(text):
        return sorted(find(text, LOG_PREFIX, _LEVELS), key=_order)
    place = Path(path)
    try:
        if not place.exists():
            raise UnreadableError(f"{text}: no such file or folder")
        if place.is_file():
            return [text]
        found = _below(place, _LEVELS)
    except OSError as error:
        raise UnreadableError(f"cannot read {text}: {error.strerror or error}") from error
    return found


def _below(folder: Path, levels: int) -> list[str]:
    found = _in_folder(folder)
    if found or not levels:
        return found
    children = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return [log for child in children if not child.is_symlink() for log in _below(child, levels - 1)]


def list_new(path: str | Path, known: set[str]) -> list[str]:
    """Logs of a local folder that are not among ``known``; an empty list where the folder is gone."""
    try:
        place = Path(path)
        return [log for log in _below(place, _LEVELS) if log not in known] if place.is_dir() else []
    except OSError:
        return []  # a folder that vanished has no new logs; what was read stays


def _in_folder(folder: Path) -> list[str]:
    logs = []
    for child in folder.iterdir():
        if child.name == SESSION_FILE or not child.is_file():
            continue
        if child.name.startswith(LOG_PREFIX) or _holds_trace(child):
            logs.append(str(child))
    return sorted(logs, key=_order)


def begin_order(path: str, data: mmap.mmap | bytes) -> tuple[bool, int, bytes]:
    """Sorts logs by rank and, within one, by when they begin; forked children, whose rank may be another, come last.

    So whoever reads the logs in this order knows a parent before its children.
    """
    rank = rank_of(path)
    header = HEADER.match(data)
    forked = _FORKED.search(data, 0, _SNIFF) is not None
    return (forked, -1 if rank is None or forked else rank, header[2] + header[3] if header else b"")


def _order(path: str) -> tuple[int, str]:
    rank = rank_of(path)
    return (-1 if rank is None else rank, path)


def _holds_trace(path: Path) -> bool:
    if not path.name.endswith((".log", ".txt", *COMPRESSED)):
        return False
    if path.name.endswith(COMPRESSED):
        return ".log" in path.name
    try:
        with open(path, "rb") as file:
            head = file.read(_SNIFF)
    except OSError:
        return True  # let opening it say why it cannot be read
    return any(HEADER.match(line) for line in head.split(b"\n"))
