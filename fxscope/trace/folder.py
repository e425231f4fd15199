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
_FOREIGN = frozenset({"node_modules", "site-packages", "__pycache__"})
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
    """Paths of the trace logs under ``path`` (a log, a folder of logs, or an fsspec URL), of a folder in order of rank and name.

    In a folder every file that PyTorch names as its log counts, and of the others those that hold a trace line, so a log
    may have been renamed and anything else may lie beside it. Sub-folders (of machines, of attempts) and links to folders are
    looked into where the folder itself has none, some levels deep; hidden ones are not, and below the first level only
    files with PyTorch's name or a rank in theirs count.

    Raises:
        UnreadableError: Nothing there, or no permission for the folder, or for one below it where the others have no log.
    """
    text = str(path)
    if not text:  # an unset variable of a script's; it would be the current folder
        raise UnreadableError("the path is empty: name a recording, a folder of logs or a log")
    if is_url(text):
        return sorted(find(text, LOG_PREFIX, _LEVELS), key=_order)
    place = Path(path)
    try:
        if not place.exists():
            raise UnreadableError(f"{text}: no such file or folder")
        if place.is_file():
            return [text]
        if not place.is_dir():
            raise UnreadableError(f"{text} is a pipe or a device; save what comes out of it in a file, and name that")
        found, refused = _below(place)
        if refused and not found:
            raise refused[0]
    except OSError as error:
        raise UnreadableError(f"cannot read {error.filename or text}: {error.strerror or error}") from error
    return found


def list_new(path: str | Path, known: set[str]) -> list[str]:
    """Logs of a local folder that are not among ``known``, by whatever links; an empty list where the folder is gone."""
    try:
        new = [log for log in _below(Path(path))[0] if log not in known] if os.path.isdir(path) else []
    except OSError:
        return []  # a folder that vanished has no new logs; what was read stays
    read = {os.path.realpath(log) for log in known} if new else set()
    return [log for log in new if os.path.realpath(log) not in read]


def _below(top: Path) -> tuple[list[str], list[OSError]]:
    """The logs of a folder, or of the folders below it; and why some of these could not be looked into.

    Level by level, and links last in each, so that a folder that several paths lead to has its shortest and own name.

    Raises:
        OSError: Of the folder itself.
    """
    found: list[str] = []
    refused: list[OSError] = []
    seen: set[tuple[int, int]] = set()
    folders = [(False, str(top))]
    for level in range(_LEVELS + 1):
        below: list[tuple[bool, str]] = []
        for _, folder in sorted(folders):
            try:
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                logs, children = _in_folder(folder, level)
            except OSError as error:
                if not level:
                    raise
                if not isinstance(error, FileNotFoundError):  # it vanished meanwhile, with what it held
                    refused.append(error)
                continue
            found += logs
            below += [] if logs else children
        folders = below
    return found, refused


def _in_folder(folder: str, level: int) -> tuple[list[str], list[tuple[bool, str]]]:
    """A folder's logs, and the folders in it: whether it is a link, and its path."""
    logs: list[str] = []
    children: list[tuple[bool, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            link = entry.is_symlink()
            if os.path.isdir(entry.path) if link else entry.is_dir():
                if not entry.name.startswith(".") and entry.name not in _FOREIGN:
                    children.append((link, entry.path))
            elif (
                _may_be_log(entry.name, level)
                and (os.path.isfile(entry.path) if link else entry.is_file())
                and (entry.name.startswith(LOG_PREFIX) or holds_trace(entry.path))
            ):
                logs.append(entry.path)
    return sorted(logs, key=_order), children


def _may_be_log(name: str, level: int) -> bool:
    """Whether a name is one to look into: deep down, where all of a project may lie, only one that says it is a log of ours."""
    return name.startswith(LOG_PREFIX) or (name != SESSION_FILE and (level <= 1 or rank_of(name) is not None))


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


def holds_trace(path: str) -> bool:
    """Whether a file is a trace log by its name and its first lines; of a compressed one the name has to do."""
    if not path.endswith((".log", ".txt", *COMPRESSED)):
        return False
    if path.endswith(COMPRESSED):
        return ".log" in os.path.basename(path)
    try:
        with open(path, "rb") as file:
            head = file.read(_SNIFF)
    except OSError:
        return True  # let opening it say why it cannot be read
    return any(HEADER.match(line) for line in head.split(b"\n"))
