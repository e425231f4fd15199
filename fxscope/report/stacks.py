"""Where compiles come from: the user's stacks of all compiles, as one tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.report.columns import short_path
from fxscope.report.safe import plain_line

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording
    from fxscope.source import SourceLine


class _Node:
    def __init__(self) -> None:
        self.below: dict[SourceLine, _Node] = {}
        self.compiles: list[str] = []


def stack_lines(recording: Recording) -> list[str]:
    """The tree, one frame a line, indented where stacks part; compiles stand, with their status, at the frame that led to them."""
    root = _Node()
    for compile_ in recording.compiles:
        if not compile_.stack:
            continue
        node = root
        for frame in compile_.stack:
            node = node.below.setdefault(frame, _Node())
        status = "" if compile_.status == "ok" else f" {compile_.status}"
        node.compiles.append(f"[{compile_.key}{status}]")
    lines: list[str] = []
    waiting = [(frame, node, 0) for frame, node in reversed(root.below.items())]
    while waiting:
        frame, node, depth = waiting.pop()
        where = f"{short_path(frame.file)}:{frame.line} in {frame.function}"
        shown = node.compiles[:8] + ([f"and {len(node.compiles) - 8} more"] if len(node.compiles) > 8 else [])
        text = "  ".join(part for part in (where, frame.code, " ".join(shown)) if part)
        lines.append("  " * min(depth, 20) + plain_line(text))
        depth += len(node.below) > 1
        waiting += [(frame, child, depth) for frame, child in reversed(node.below.items())]
    return lines
