"""Copying over any terminal: OSC 52, a file beside it, and a message that does not claim more than is known."""

from __future__ import annotations

import os
from pathlib import Path

OSC52_LIMIT = 74_000  # bytes that common terminals take; longer ones are only written to the file


def clip_file() -> Path:
    """Where the last copied text is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "fxscope" / "copied.txt"


def save(text: str) -> tuple[Path | None, str]:
    """Write the text to the file.

    Returns:
        The file, or None and why not.
    """
    path = clip_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        return None, str(error)
    return path, ""


def message(text: str, path: Path | None, problem: str) -> str:
    """What to tell the user."""
    lines = text.count("\n") + 1
    what = f"{lines} lines" if lines > 1 else f"{text.strip()[:40]!r}"
    size = len(text.encode("utf-8", "replace"))
    sent = (
        "sent to the terminal's clipboard (OSC 52)" if size <= OSC52_LIMIT else "too long for the terminal's clipboard"
    )
    kept = f"also saved to {path}" if path else f"not saved to a file: {problem}"
    hint = "; in tmux that needs `set -g set-clipboard on`" if os.environ.get("TMUX") and size <= OSC52_LIMIT else ""
    return f"{what} {sent}{hint}; {kept}"
