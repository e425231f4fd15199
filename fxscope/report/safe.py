"""Text from a log, made harmless for a terminal: nothing that a program printed may move the cursor or hide a line."""

from __future__ import annotations

import json
import os
import re

# C0 controls but tab and newline, DEL, C1 controls, lone surrogates, and the marks that reorder or hide text
# (zero-width characters, bidirectional embeddings, overrides and isolates, byte order mark, language tags).
_BAD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# What GitHub's runner takes for a command where it begins a line, whatever blanks are before it; a line may be broken at any blank.
_COMMAND = re.compile(r"(?<!\S):(?=:)|#(?=#\[)")


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str) -> str:
    r"""A text with every control character written out (``\x1b``); tabs become spaces, newlines stay.

    In a job of GitHub Actions also what would be a command to its runner, ``::add-mask::`` for one.
    """
    shown = _BAD.sub(_visible, text.replace("\r\n", "\n").expandtabs(4))
    return _COMMAND.sub(_visible, shown) if "GITHUB_ACTIONS" in os.environ else shown


def plain_line(text: str) -> str:
    r"""As ``plain``, on one line: a newline is written out as ``\n``."""
    return plain(text).replace("\n", "\\n")


def escape_json(text: str) -> str:
    r"""JSON text in which the same characters stand as ``\uXXXX``, so that printing it is harmless too."""
    return _BAD.sub(lambda match: json.dumps(match[0])[1:-1], text)
