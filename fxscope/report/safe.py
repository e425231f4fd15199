"""Text from a log, made harmless for a terminal: nothing that a program printed may move the cursor or hide a line."""

from __future__ import annotations

import json
import re

# C0 controls but tab and newline, DEL, C1 controls, lone surrogates, and the marks that reorder or hide text
# (zero-width characters, bidirectional embeddings, overrides and isolates, byte order mark, language tags).
_BAD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str) -> str:
    r"""A text with every control character written out (``\x1b``); tabs become spaces, newlines stay."""
    return _BAD.sub(_visible, text.replace("\r\n", "\n").expandtabs(4))


def plain_line(text: str) -> str:
    r"""As ``plain``, on one line: a newline is written out as ``\n``."""
    return plain(text).replace("\n", "\\n")


def escape_json(text: str) -> str:
    r"""JSON text in which the same characters stand as ``\uXXXX``, so that printing it is harmless too."""
    return _BAD.sub(lambda match: json.dumps(match[0])[1:-1], text)
