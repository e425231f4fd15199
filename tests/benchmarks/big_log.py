"""A log of any size: a real one repeated, each time with fresh frame ids."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

_FRAME = re.compile(rb'"frame_id": (\d+)')
_COMPILE = re.compile(rb'("compile_id": "!?)(\d+)/')


def write_big_log(source: Path, target: Path, megabytes: int) -> int:
    """Write ``source`` (.xz) to ``target`` until that has at least so many megabytes; its size in bytes."""
    raw = lzma.decompress(source.read_bytes())
    frames = 1 + max(int(number) for number in _FRAME.findall(raw))
    written = 0
    with open(target, "wb") as file:
        for again in range(1 << 20):
            shift = again * frames

            def frame(match: re.Match[bytes], shift: int = shift) -> bytes:
                return b'"frame_id": %d' % (int(match[1]) + shift)

            def compile_(match: re.Match[bytes], shift: int = shift) -> bytes:
                return match[1] + b"%d/" % (int(match[2]) + shift)

            lines = _COMPILE.sub(compile_, _FRAME.sub(frame, raw)) if again else raw
            written += file.write(lines)
            if written >= megabytes * 1_000_000:
                return written
    return written


def write_recompiles(source: Path, target: Path, recompiles: int) -> int:
    """Write ``source``, the plain log of a frame 0 that was compiled again as 0/1, 0/2, ..., with its last compile repeated.

    Each repetition gets a compile id of its own, as if the recompile limit had been that high. Returns the size in bytes.
    """
    events = re.findall(rb"^[^\t\n].*\n(?:\t.*\n)*", source.read_bytes(), re.MULTILINE)
    last = max(int(number) for number in re.findall(rb'"frame_id": 0, "frame_compile_id": (\d+)', b"".join(events)))
    mark = re.compile(rb'(?<="frame_compile_id": )%d(?=[,}])|(?<="compile_id": "0/)%d(?=")' % (last, last))
    unit = b"".join(event for event in events if b'"frame_id": 0, "frame_compile_id": %d,' % last in event)
    with open(target, "wb") as file:
        size = file.write(b"".join(events))
        for number in range(last + 1, recompiles + 1):
            size += file.write(mark.sub(b"%d" % number, unit))
    return size
