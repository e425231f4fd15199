"""The command that opens a file at a line in the user's editor."""

from __future__ import annotations

import os
import shlex
import shutil

_PLUS = {"vi", "vim", "nvim", "nano", "emacs", "emacsclient", "joe", "micro", "kak", "mg", "ne", "jed", "view", "pico"}
_COLON = {"hx", "helix", "subl", "zed", "cursor"}
_GOTO = {"code", "codium", "code-insiders"}


def editor_command(path: str, line: int) -> list[str] | None:
    """Arguments that open ``path`` at ``line``; None where no editor is set or found.

    ``FXSCOPE_EDITOR``, ``VISUAL`` and ``EDITOR`` are asked in this order, then vi and nano are looked for.
    """
    chosen = os.environ.get("FXSCOPE_EDITOR") or os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not chosen:
        chosen = next((name for name in ("vi", "nano") if shutil.which(name)), None)
    if not chosen:
        return None
    try:
        words = shlex.split(chosen)
    except ValueError:  # a quote without its partner: the name of a program after all
        words = [chosen]
    name = os.path.basename(words[0])
    line = max(line, 1)
    if path.startswith("-"):
        path = f"./{path}"
    if name in _GOTO:
        return [*words, "--goto", f"{path}:{line}"]
    if name in _COLON:
        return [*words, f"{path}:{line}"]
    if name in _PLUS:
        return [*words, f"+{line}", path]
    return [*words, path]
