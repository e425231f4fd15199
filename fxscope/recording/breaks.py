"""The text of a graph break (artifact ``dynamo_graph_break_reason``), taken apart.

Its forms, 2024 to 2.15:

Graph break in user code at FILE:LINE                      log_graph_break, 2.6 on; "Reason:" before 2.7
Graph break (user stack suppressed due to duplicate graph break) in user code at FILE:LINE
Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.   convert_frame
WON'T CONVERT NAME FILE line LINE                          unimplemented_with_warning
"""

from __future__ import annotations

import re

import msgspec

from fxscope.recording.tracebacks import read_stack, section
from fxscope.source import SourceLine

_AT = re.compile(r"^Graph break[^\n]*? in user code at (.*):(\d{1,9})\s*$", re.MULTILINE)
_WONT = re.compile(r"^WON'T CONVERT (\S+) (.*) line (\d{1,9})", re.MULTILINE)
_FRAME = re.compile(r"will skip tracing the frame (\S+) \((.*) line (\d{1,9})\)")
_GB = re.compile(r"/gb(\d{1,9})\.html")
_RAISED = re.compile(
    r"^((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*(?:Error|Exception|Unsupported|Failed|Warning|Exit)?): ", re.MULTILINE
)
# Sentences that torch puts before the reason proper.
_PREFIX = re.compile(
    r"^(?:Encountered graph break when attempting to trace [^\n]*"
    r"|Encountered graph break that we cannot resume from\.[^\n]*"
    r"|Failed to handle graph break gracefully\.[^\n]*)\n+"
)
_SKIPPED = (
    "Skipping the function and falling back to eager",
    "results in a skip",
    "will skip tracing the frame",
    "WON'T CONVERT",
)
_ANOTHER = "*** While handling this graph break, another graph break occurred: ***"
_LONGEST = 20_000  # characters of one reason that are kept


class BreakText(msgspec.Struct, kw_only=True):
    """What one break event says. ``line`` is 0 where the text names no place."""

    file: str = ""
    line: int = 0
    function: str = ""
    code: str = ""
    gb_id: str | None = None
    kind: str = ""
    reason: str = ""
    explanation: str = ""
    context: str = ""
    hints: list[str] = msgspec.field(default_factory=list)
    skipped_frame: bool = False
    duplicate: bool = False
    stack: tuple[SourceLine, ...] = ()


def parse_break(text: str) -> BreakText:
    """Take one break text apart; what is not there stays empty, and any text gives a record."""
    found = BreakText()
    found.duplicate = "suppressed due to duplicate" in text[:300]
    found.skipped_frame = any(words in text for words in _SKIPPED)
    found.stack = read_stack(
        section(text, "User code traceback:", "\nTraceback (most recent call last)", "\nNoneType: None")
        or section(text, "in the following user code:", "\nTraceback (most recent call last)", "\nNoneType: None")
    )
    place = _AT.search(text) or None
    if place:
        found.file, found.line = place[1], int(place[2])
    elif found.stack:
        found.file, found.line = found.stack[-1].file, found.stack[-1].line
    elif frame := (_FRAME.search(text) or _WONT.search(text)):
        found.function, found.file, found.line = frame[1], frame[2], int(frame[3])
    for frame_line in reversed(found.stack):
        if (frame_line.file, frame_line.line) == (found.file, found.line):
            found.function, found.code = frame_line.function, frame_line.code
            break
    _read_reason(found, _reason(text))
    return found


def _reason(text: str) -> str:
    stops = ("\nUser code traceback:", "\nStack variable source attribution:", "\nTraceback (most recent call last)")
    for mark in ("Graph Break Reason:", "\nReason:"):
        body = section(text, mark, *stops)
        if body:
            return body.strip()
    raised = list(_RAISED.finditer(text))
    if raised:
        return text[raised[-1].end() :].strip()
    return ""


def _read_reason(found: BreakText, reason: str) -> None:
    if len(reason) > _LONGEST:
        reason = reason[:_LONGEST] + f"\n[{len(reason) - _LONGEST} more characters in the log]"
    found.reason = reason
    body = _PREFIX.sub("", reason, count=1).strip("\n")
    first = body.split(_ANOTHER, 1)[0]
    if url := _GB.search(first):
        found.gb_id = f"GB{int(url[1]):04d}"
    title, _, rest = first.partition("\n")
    found.kind = title.strip().removeprefix("Unsupported: ").strip()
    context = re.split(r"^\s*Developer debug context: ?", rest, maxsplit=1, flags=re.MULTILINE)
    if len(context) == 2:
        found.context = context[1].split("\n\n For more details", 1)[0].strip()
    parts = re.split(r"^  Hint: ", context[0].split("\n For more details", 1)[0], flags=re.MULTILINE)
    found.explanation = re.sub(r"^\s*Explanation: ", "", parts[0]).strip()
    found.hints = [part.strip() for part in parts[1:]]
