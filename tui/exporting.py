"""Files made of what is shown. Nothing is ever overwritten."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fxscope.errors import UnreadableError


def write(folder: str | Path, stem: str, suffix: str, text: str) -> Path:
    """Write a new file ``stem.suffix`` (numbered where that exists).

    Returns:
        Its path.

    Raises:
        UnreadableError: It cannot be written, and why.
    """
    name = re.sub(r"[^\w.+-]+", "-", stem).strip("-.") or "fxscope"
    for number in range(1, 10_000):
        path = Path(folder) / (f"{name}.{suffix}" if number == 1 else f"{name}-{number}.{suffix}")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        except OSError as error:
            raise UnreadableError(
                f"cannot write {path}: {error.strerror}; start fxscope in a folder you may write"
            ) from None
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return path
    raise UnreadableError(f"cannot write {Path(folder) / name}.{suffix}: ten thousand files of this name exist")


def as_json(data: object) -> str:
    """Records as readable JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data, enc_hook=repr), indent=2).decode()
