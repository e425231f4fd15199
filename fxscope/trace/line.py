"""The line format of a structured trace log: a glog prefix, one JSON envelope, and a payload on lines that start with TAB.

    V1129 11:59:38.304000 440 torch/_dynamo/utils.py:2126] {"artifact": {"name": ...}, "frame_id": 0, ..., "has_payload": "<md5>"}
    <TAB>first line of the payload
    <TAB>second line

Written by ``torch._logging._internal.TorchLogsFormatter`` and ``trace_structured``. The event's name is the first key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import mmap

# Start of the next line that is no payload line; blank lines belong to nobody.
NEXT_LINE = re.compile(rb"\n(?![\t\n\r])")
# Groups: level, month and day, time, process (a thread id in logs of early 2024), first key of the envelope.
HEADER = re.compile(
    rb'([A-Z])(\d{4}) (\d\d:\d\d:\d\d(?:\.\d{1,9})?) +(\d{1,18}) [^\]\n]{0,4096}\] \{"([^"\\\n]{1,200})"'
)
# Keys of an envelope that name no event.
CONTEXT_KEYS = frozenset(
    {
        "rank",
        "process",
        "compiled_autograd_id",
        "frame_id",
        "frame_compile_id",
        "attempt",
        "severity",
        "timestamp",
        "pathname",
        "thread",
        "subgraph_name",
        "has_payload",
        "stack",
    }
)
MAX_ENVELOPE = 64 << 20  # bytes; torch writes at most about a megabyte


class BadEnvelope(ValueError):
    """The JSON of an envelope cannot be decoded; the message says why."""


def decode_envelope(raw: bytes) -> dict[str, Any]:
    """The envelope as a dict.

    Raises:
        BadEnvelope: It is cut off, no JSON object, nested too deep or too large.
    """
    if len(raw) > MAX_ENVELOPE:
        raise BadEnvelope(f"envelope of {len(raw)} bytes")
    value = decode_json(raw)
    if not isinstance(value, dict):
        raise BadEnvelope("envelope is no JSON object")
    return value


def decode_json(raw: bytes) -> Any:
    """Decode JSON as Python's json module writes it: NaN, Infinity and lone surrogates included.

    Raises:
        BadEnvelope: It cannot be decoded.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the slow decoder below accepts more
    import json

    try:
        return _scrub(json.loads(raw.decode("utf-8", "replace"), strict=False))
    except (ValueError, RecursionError) as error:
        raise BadEnvelope(str(error)) from error


def _scrub(value: Any) -> Any:
    """Replace lone surrogates, which no output stream can encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    return value


def event_name(envelope: dict[str, Any]) -> str:
    """Name of the event: the first key that is no context; "" where there is none."""
    return next((key for key in envelope if key not in CONTEXT_KEYS), "")


def payload_text(data: mmap.mmap | bytes, start: int, end: int) -> str:
    """The payload between two offsets (whole lines, TABs still on), as text; undecodable bytes become U+FFFD."""
    raw = bytes(data[start:end])
    if b"\n\n" in raw or b"\r" in raw:
        # Torch writes neither: an editor stripped the TAB of empty lines, or something printed progress in between.
        raw = b"\n".join(line for line in raw.split(b"\n") if line.startswith(b"\t") or not line.strip())
        raw = raw.rstrip(b"\r\n")
    raw = raw.removesuffix(b"\n").removeprefix(b"\t").replace(b"\n\t", b"\n")
    return raw.decode("utf-8", "replace")


def payload_matches(text: str, digest: Any) -> bool:
    """Whether a payload is whole: its MD5 is what the envelope says (``has_payload``)."""
    import hashlib

    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest() == digest
