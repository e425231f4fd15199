"""Python tracebacks as text, read back into lines of source."""

from __future__ import annotations

import re

from fxscope.source import SourceLine

_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d{1,9})(?:, in (.*))?$')
_MARKERS = re.compile(r"^[\s^~]*$")


def read_stack(text: str) -> tuple[SourceLine, ...]:
    """Every ``File "...", line N, in name`` of a text, in its order, with the source line below it where there is one."""
    found: list[SourceLine] = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is None:
            continue
        below = lines[number + 1] if number + 1 < len(lines) else ""
        code = "" if _MARKERS.match(below) or _FRAME.match(below) or not below.startswith("    ") else below.strip()
        found.append(SourceLine(file=frame[1], line=int(frame[2]), function=(frame[3] or "").strip(), code=code))
    return tuple(found)


def section(text: str, start: str, *stops: str) -> str:
    """What follows the first ``start`` up to the nearest of ``stops`` (or the end); "" where ``start`` is absent."""
    begin = text.find(start)
    if begin < 0:
        return ""
    begin += len(start)
    ends = [at for stop in stops if (at := text.find(stop, begin)) >= 0]
    return text[begin : min(ends)] if ends else text[begin:]
