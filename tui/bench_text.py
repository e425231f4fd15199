"""A bench document in words and pictures: traffic, partitions, and the sweep over sizes as bars on a log scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fxscope.words import count

from .frames import size_text
from .spans import Cell
from .widgets.document import Block, heading

PLOT = 44  # cells of the sweep's longest bar
MARKS = ("\u2588", "\u2593", "\u2592", "\u2591", "\u2584", "\u2580")


def blocks(document: Mapping[str, Any]) -> list[Block]:
    """Everything beside the table."""
    found = [*_traffic(document), *_sweep(document.get("sweep")), *_partitions(document.get("partitions") or {})]
    notes = [str(note) for note in document.get("notes") or ()]
    how = [f"{row.get('executor')}: {row['how']}" for row in document.get("rows") or () if row.get("how")]
    lines: list[Cell] = [[("  ", ""), (note, "")] for note in notes]
    lines += [[("  timed ", "dim"), (text, "dim")] for text in how]
    if document.get("reference"):
        lines.insert(0, [("  results are compared with ", "dim"), (str(document["reference"]), "")])
    found += [heading("NOTES"), Block(lines or ["  none"])]
    first, *rest = found
    return [first._replace(lines=first.lines[1:]), *rest]


def _traffic(document: Mapping[str, Any]) -> list[Block]:
    traffic, machine = document.get("traffic"), document.get("machine") or {}
    if not isinstance(traffic, Mapping):
        return []
    lines: list[Cell] = [
        [
            ("  unfused ", "dim"),
            (
                f"{size_text(traffic['unfused_bytes'])} in {count(traffic['unfused_launches'], 'launch', 'launches')}",
                "",
            ),
            ("   fused ", "dim"),
            (f"{size_text(traffic['fused_bytes'])} in {traffic['fused_launches']}", ""),
            ("   least possible ", "dim"),
            (size_text(traffic["floor_bytes"]), ""),
        ]
    ]
    flops = traffic.get("flops") or 0
    if traffic.get("fused_bytes"):
        lines.append(
            [("  arithmetic intensity ", "dim"), (f"{flops / traffic['fused_bytes']:.2f} FLOPs per byte, fused", "")]
        )
    if machine.get("bandwidth"):
        facts = f"copies {machine['bandwidth'] / 1e9:,.1f} GB/s, matmul {machine.get('flops', 0) / 1e9:,.0f} GFLOP/s, "
        facts += f"a launch {machine.get('launch', 0) * 1e6:.2f} \u00b5s ({machine.get('origin', '')})"
        lines.append([("  machine ", "dim"), (facts, "")])
    lines += [[("  ", ""), (str(text), "dim")] for text in traffic.get("assumptions") or ()]
    return [heading("TRAFFIC", "modelled"), Block(lines)]


def _sweep(sweep: Any) -> list[Block]:
    """Bars on a log scale: where they stay equal launches decide, where they grow bandwidth does."""
    if not isinstance(sweep, Mapping) or not sweep.get("points"):
        return []
    points: Sequence[Mapping[str, Any]] = sweep["points"]
    names = list(dict.fromkeys(name for point in points for name in point["ms"]))
    times = [value for point in points for value in point["ms"].values() if value > 0]
    low, high = min(times) / 1.5, max(times)
    span = math.log(high / low) or 1.0
    kinds = sweep.get("kinds") or {}
    labels = {name: name if kinds.get(name) in (None, "measured") else f"{name} ({kinds[name]})" for name in names}
    width = max(len(label) for label in labels.values())
    lines: list[Cell] = [[("  ", ""), (str(sweep.get("sentence") or ""), "")]]
    for point in points:
        lines.append([("  size ", "dim"), (f"{point['size']:,}", "strong"), (f"  {size_text(point['bytes'])}", "dim")])
        for number, name in enumerate(names):
            value = point["ms"].get(name)
            if value is None:
                lines.append([(f"    {labels[name]:<{width}} ", ""), ("did not run at this size", "dim")])
                continue
            cells = max(1, round(PLOT * math.log(value / low) / span))
            lines.append(
                [
                    (f"    {labels[name]:<{width}} ", ""),
                    (f"{value:>9.4g} ms ", "dim"),
                    (MARKS[number % len(MARKS)] * cells, "info"),
                ]
            )
    for name in names:
        cross = (sweep.get("crossover_bytes") or {}).get(name)
        fixed, rate = (sweep.get("fixed_ms") or {}).get(name), (sweep.get("gbps") or {}).get(name)
        if fixed is not None and rate is not None:
            where = f", equal at {size_text(cross)}" if cross else ""
            lines.append(
                [
                    (f"  {labels[name]:<{width}} ", "strong"),
                    (f"fixed {fixed:.3g} ms, then {rate:.3g} GB/s{where}", "dim"),
                ]
            )
    return [heading("SWEEP", "log scale; flat: launch-bound, growing: bandwidth-bound"), Block(lines)]


def _partitions(partitions: Mapping[str, Any]) -> list[Block]:
    found: list[Block] = []
    for target, report in partitions.items():
        islands = report.get("islands") or ()
        kept = [island for island in islands if not island.get("dropped")]
        lines: list[Cell] = [
            [
                ("  coverage ", "dim"),
                (
                    f"{report.get('coverage', 0):.0%} of {count(report.get('nodes', 0), 'node')} in {count(len(kept), 'island')}",
                    "",
                ),
                ("   crossing edges ", "dim"),
                (size_text(report.get("boundary_bytes") or 0), ""),
            ]
        ]
        for island in islands:
            dropped = f"  dropped: {island['dropped']}" if island.get("dropped") else ""
            facts = f"{count(len(island.get('nodes', ())), 'node')}, in {size_text(island.get('bytes_in', 0))}, "
            facts += f"parameters {size_text(island.get('bytes_parameters', 0))}, out {size_text(island.get('bytes_out', 0))}"
            lines.append([(f"  island {island.get('index')} ", "strong"), (facts, ""), (dropped, "warn")])
        for reason in report.get("reasons") or ():
            texts = "; ".join(reason.get("texts") or reason.get("codes") or ())
            lines.append(
                [
                    ("  \u2716 ", "warn"),
                    (f"{reason.get('target')} \u00d7{len(reason.get('nodes', ()))}: ", ""),
                    (texts, "dim"),
                ]
            )
        lines += [[("  ? ", "info"), (str(item.get("text", "")), "")] for item in report.get("what_if") or ()]
        found += [
            heading(f"PARTITION FOR {target.upper()}", "what runs there, why not, what one more op would bring"),
            Block(lines),
        ]
    return found
