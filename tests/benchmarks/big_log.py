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
