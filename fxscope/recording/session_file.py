"""``session.json`` as it is on disk, and whether its recorder still writes."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from fxscope import names
from fxscope.trace.line import BadEnvelope, decode_json
from fxscope.trace.remote import is_url


def read_session_file(path: str) -> dict[str, Any] | None:
    """``session.json`` of a recording folder; None where there is none, empty where it is broken."""
    if is_url(path):
        return None
    try:
        place = Path(path) / names.SESSION_FILE
        if not place.is_file():  # a pipe or a device of that name would hold the reader for ever
            return None
        raw = place.read_bytes()
    except OSError:
        return None
    try:
        value = decode_json(raw)
    except BadEnvelope:
        return {}
    return value if isinstance(value, dict) else {}


def is_live(on_disk: dict[str, Any] | None) -> bool:
    """Whether a recorder still writes, by ``session.json``; taken at its word where that is another machine's."""
    if on_disk is None or on_disk.get("state") != "live":
        return False
    pid = on_disk.get("pid")
    if on_disk.get("host") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # somebody else's process: it exists
    return True
