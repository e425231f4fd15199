"""Inductor's fusion decisions: it logs them as text only (``TORCH_LOGS=fusion``), so they are read from the program's output."""

from __future__ import annotations

import re
from typing import NamedTuple

from .spans import Cell
from .widgets.document import Block, heading

# V1129 18:42:21.277000 28871 torch/_inductor/scheduler.py:2059] [0/0] [__fusion] cannot fuse op2 with op4: no shared data
_LINE = re.compile(r"\]\s(?:\[(?P<id>[!\w/]+)\]\s)?\[__fusion\]\s(?P<text>.*)")
_REFUSED = re.compile(r"cannot fuse (?P<a>\S+) with (?P<b>\S+): (?P<why>.*)")
_FUSED = re.compile(r"fusing (?P<a>\S+) with (?P<b>\S+)")
_NODE = re.compile(r"SchedulerNode\(name='(?P<name>\w+)'\).*?origins=OrderedSet\(\[(?P<origins>[^\]]*)\]")
HOW = (
    "Inductor logs why it fused or did not fuse as text only. Run the program in the app (or keep what it prints) with "
    "TORCH_LOGS=fusion and without cached kernels: "
    "TORCH_LOGS=fusion TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 fxscope run "
)
PAIRS = 6  # of one reason that are named


class Fusions(NamedTuple):
    """The decisions of one compile.

    Attributes:
        fused: Pairs that became one kernel.
        refused: Pairs by the reason why not.
        origins: Graph nodes by the scheduler's name.
    """

    fused: list[tuple[str, str]]
    refused: dict[str, list[tuple[str, str]]]
    origins: dict[str, str]

    def label(self, name: str) -> str:
        """What a scheduler's node computes: ``op2_op3`` gives the graph nodes behind both."""
        parts = [self.origins.get(part, part) for part in name.split("_")] if name.startswith("op") else [name]
        return " + ".join(dict.fromkeys(parts))


def read_fusions(output: str, compile_id: str) -> Fusions:
    """The decisions about one compile in a program's output.

    Args:
        output: What the program printed.
        compile_id: As Inductor prints it, ``0/0`` or ``0/0_1``.
    """
    origins: dict[str, str] = {}
    joined: dict[tuple[str, str], None] = {}  # as dicts, for pairs are many: each node is tried with each
    apart: dict[str, dict[tuple[str, str], None]] = {}
    for line in output.splitlines():
        if "[__fusion]" not in line:
            continue
        match = _LINE.search(line)
        if match is None or match["id"] not in (compile_id, None):
            continue
        text = match["text"]
        node, refused, fused = _NODE.search(text), _REFUSED.match(text), _FUSED.match(text)
        if node is not None:
            origins.setdefault(node["name"], node["origins"])
        elif refused is not None:
            apart.setdefault(refused["why"].strip(), {})[refused["a"], refused["b"]] = None
        elif fused is not None:
            joined[fused["a"], fused["b"]] = None
    return Fusions(list(joined), {why: list(pairs) for why, pairs in apart.items()}, origins)


def fusion_blocks(found: Fusions, script: str) -> list[Block]:
    """The decisions in lines, or the command that would fill them, which runs ``script``."""
    title = heading("FUSION", "what Inductor joined into one kernel, and why not")
    if not found.fused and not found.refused:
        return [title, Block([[("  ", ""), (HOW + script, "dim")]])]
    lines: list[Cell] = [
        [("  \u2714 ", "good"), (found.label(a), ""), (" with ", "dim"), (found.label(b), "")] for a, b in found.fused
    ]
    for why, pairs in sorted(found.refused.items(), key=lambda item: -len(item[1])):
        lines.append([("  \u2716 ", "warn"), (f"{why} ", "strong"), (f"\u00d7{len(pairs)}", "dim")])
        lines += [
            [("      ", ""), (found.label(a), ""), (" with ", "dim"), (found.label(b), "")] for a, b in pairs[:PAIRS]
        ]
        if len(pairs) > PAIRS:
            lines.append([(f"      \u2026 and {len(pairs) - PAIRS} more", "dim")])
    return [title, Block(lines)]
