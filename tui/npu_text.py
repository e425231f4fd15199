"""``fxscope npu report`` as a table of ops with their place in time, and the facts below it. All of it is modelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .frames import site, size_text
from .spans import Cell, Span
from .widgets.document import Block, heading
from .widgets.virtual_table import Column, Rows

COLUMNS = (
    Column("op", keep=9, limit=44),
    Column("cycles", right=True, keep=9),
    Column("when", 32, keep=7),
    Column("waits for", keep=6),
    Column("next", right=True, keep=3),
    Column("util", right=True, keep=5),
    Column("bytes", right=True, keep=5),
    Column("bound", right=True, keep=2),
    Column("roof", keep=2),
    Column("tile", keep=1),
    Column("source", keep=4, flex=True),
)
TIME = 32  # cells of the timeline


def op_rows(document: Mapping[str, Any]) -> Rows:
    """A row per op; the bars of an island stand one behind the other: the machine takes its ops in order."""
    rows: list[Sequence[Cell]] = []
    for number, island in enumerate(document.get("islands", ())):
        whole = sum(op["cycles"] for op in island["ops"]) or 1.0
        at = 0.0
        for op in island["ops"]:
            names = ", ".join(map(str, op["nodes"])) or op["kind"]
            label = f"{number}: {names}" if len(document["islands"]) > 1 else names
            rows.append(
                [
                    [(f"{op['kind']} ", "dim"), (label, "strong")],
                    f"{op['cycles']:,.0f}",
                    (_span(at, op["cycles"], whole), "info"),
                    (str(op["pole"]), "warn" if op["cycles"] > whole / 5 else ""),
                    (f"{op['next']:.0%}", "dim"),
                    f"{op['utilisation']:.1%}" if op["utilisation"] else "",
                    size_text(int(op["bytes"])),
                    (size_text(int(op["bound"])) if op["bound"] else "", "dim"),
                    (str(op["roofline"]), "dim"),
                    (str(op["tile"]), "dim"),
                    (_site(str(op.get("source") or "")), "name"),
                ]
            )
            at += op["cycles"]
    return Rows(COLUMNS, rows)


def _site(source: str) -> str:
    path, _, line = source.rpartition(":")
    return site(path, int(line)) if path and line.isdigit() else source


def _span(start: float, length: float, whole: float) -> str:
    """A bar at its place in time; the shortest op still shows."""
    first = min(TIME - 1, int(TIME * start / whole))
    last = max(first + 1, min(TIME, round(TIME * (start + length) / whole)))
    return " " * first + ("\u2588" * (last - first) if TIME * length >= whole / 2 else "\u258f")


def npu_blocks(document: Mapping[str, Any]) -> list[Block]:
    """Totals, memory and assumptions of each island, and what the choices would cost."""
    blocks: list[Block] = []
    for number, island in enumerate(document.get("islands", ())):
        busy: dict[str, float] = {}
        for op in island["ops"]:
            for engine, cycles in op["busy"].items():
                busy[engine] = busy.get(engine, 0.0) + cycles
        names = {"l": "load", "x": "execute", "s": "store"}
        engines = "   ".join(f"{names.get(e, e)} {c / max(island['cycles'], 1):.0%}" for e, c in busy.items())
        lines: list[Cell] = [
            _fact(
                "time ",
                f"{island['microseconds']:,.1f} \u00b5s = {island['cycles']:,.0f} cycles at {island['clock_ghz']:g} GHz",
            ),
            _fact("bounds ", f"{island['lower']:,.0f} to {island['upper']:,.0f} cycles"),
            _fact("busy ", engines),
            _fact("MACs ", f"{island['macs']:,}, utilisation {island['utilisation']:.1%}"),
            _fact(
                "moved ",
                f"{size_text(int(island['dram_bytes']))} of main memory, instructions {size_text(int(island['fetched_bytes']))}",
            ),
            _fact(
                "boundary ",
                f"{size_text(int(island['boundary_bytes']))} in and out, {island['boundary_microseconds']:.1f} \u00b5s with the launch",
            ),
        ]
        for memory in island["memory"]:
            facts = f"peak {size_text(int(memory['peak']))}, most alive at once {size_text(int(memory['bound']))}"
            lines.append(_fact(f"memory {memory['region']} ", facts))
        lines += [[("  ", ""), (str(text), "dim")] for text in island["assumptions"]]
        blocks += [
            heading(
                f"ISLAND {number} ON {str(island['machine']).upper()}",
                f"modelled; {island['instructions']:,} instructions",
            ),
            Block(lines),
        ]
    choices: list[Cell] = [
        [("  ? ", "info"), (str(choice.get("text", "")), "")] for choice in document.get("choices", ())
    ]
    return blocks + ([heading("CHOICES"), Block(choices)] if choices else [])


def _fact(label: str, value: str) -> list[Span]:
    return [(f"  {label}", "dim"), (value, "")]
