"""What if the machine were another one: the same islands compiled and modelled on every combination of values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.errors import UsageError
from fxscope.targets.npu.machine import Machine, with_values

if TYPE_CHECKING:
    from torch.fx import GraphModule


class SweepRow(msgspec.Struct, kw_only=True):
    """One machine. Times are modelled; ``error`` says why a machine cannot run the islands.

    Attributes:
        values: The numbers that differ from the base machine, by dotted key.
        microseconds: Programs and boundary transfers of all islands.
    """

    values: dict[str, Any]
    cycles: float = 0.0
    microseconds: float = 0.0
    utilisation: float = 0.0
    dram_bytes: int = 0
    error: str = ""


def parse_values(settings: Sequence[str]) -> dict[str, list[Any]]:
    """``array.rows=8,16`` to ``{"array.rows": [8, 16]}``; keys joined by ``+`` change together.

    Raises:
        UsageError: No ``=``, or no number.
    """
    out: dict[str, list[Any]] = {}
    for setting in settings:
        key, equals, values = setting.partition("=")
        if not equals or not values:
            raise UsageError(f"--set {setting}: write KEY=VALUE,VALUE, for example array.rows+array.cols=8,16,32")
        out[key] = [_number(value, setting) for value in values.split(",")]
    return out


def _number(text: str, setting: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text in ("ws", "os", "is"):
        return text
    raise UsageError(f"--set {setting}: {text!r} is no number")


def machines(base: Machine, values: Mapping[str, Sequence[Any]]) -> list[tuple[dict[str, Any], Machine]]:
    """Every combination, with what it changes."""
    out = []
    for combination in itertools.product(*values.values()):
        changes = {single: value for key, value in zip(values, combination, strict=True) for single in key.split("+")}
        out.append((changes, with_values(base, changes)))
    return out


def sweep(
    islands: Sequence[GraphModule],
    base: Machine,
    values: Mapping[str, Sequence[Any]],
    progress: Callable[[str], None] = lambda text: None,
) -> list[SweepRow]:
    """Compile and model all islands on every machine; tile factors by the closed form."""
    from fxscope.targets.npu.compile import compile_island
    from fxscope.targets.npu.executable import boundary_bytes
    from fxscope.targets.npu.simulate import simulate

    rows = []
    combinations = machines(base, values)
    for number, (changes, machine) in enumerate(combinations, 1):
        progress(f"machine {number} of {len(combinations)}: {_label(changes)}")
        row = SweepRow(values=changes)
        macs = 0
        try:
            for island in islands:
                compiled = compile_island(island, machine, tried=1)
                timing = simulate(compiled.program.instructions, machine)
                host = boundary_bytes(compiled) / machine.host.bytes_per_cycle + machine.host.launch_cycles
                row.cycles += timing.total
                row.microseconds += machine.seconds(timing.total + host) * 1e6
                row.dram_bytes += timing.moved["dram"]
                macs += sum(int(group.note.get("macs", 0)) for group in compiled.groups)
        except UsageError as error:
            row = SweepRow(values=changes, error=str(error))
        else:
            row.utilisation = macs / (row.cycles * machine.array.rows * machine.array.cols) if row.cycles else 0.0
        rows.append(row)
    return rows


Column = tuple[str, list[str]]
_WIDTH = 80


def columns(rows: Sequence[SweepRow]) -> list[Column]:
    """What differs between the machines, a title and a text per row; keys that change together share a column."""
    found: dict[tuple[str, ...], list[str]] = {}  # the values of a column to its keys
    for key in rows[0].values if rows else ():
        values = tuple(str(row.values.get(key, "")) for row in rows)
        found.setdefault(values, []).append(key)
    out = []
    for values, keys in found.items():
        section = keys[0].rpartition(".")[0]
        rest = [key.removeprefix(f"{section}.") for key in keys[1:]]
        out.append(("+".join([keys[0], *rest]), list(values)))
    return out or [("machine", ["as it is"] * len(rows))]


def text(rows: Sequence[SweepRow], base: Machine) -> str:
    """A table with a bar for each machine's time."""
    table = columns(rows)
    widths = [max(len(title), *(len(value) for value in values)) for title, values in table]
    longest = max((row.microseconds for row in rows), default=0.0)
    best = min((row.microseconds for row in rows if not row.error), default=0.0)

    def left(cells: Sequence[str]) -> str:
        return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

    head = f"{left([title for title, _ in table])} {'us':>9} {'util':>6} {'main mem':>10}"
    room = max(10, _WIDTH - len(head) - 1)
    lines = [f"base {base.name}; every figure modelled; * is the fastest", head]
    for number, row in enumerate(rows):
        label = left([values[number] for _, values in table])
        if row.error:
            lines.append(f"{label} {row.error}")
            continue
        bar = "#" * max(1, round(row.microseconds / longest * (room - 2))) if longest else ""
        mark = " *" if row.microseconds == best else ""
        moved = f"{row.dram_bytes / 1e6:,.1f} MB"
        lines.append(f"{label} {row.microseconds:>9,.1f} {row.utilisation:>6.1%} {moved:>10} {bar}{mark}")
    return "\n".join(lines)


def svg(rows: Sequence[SweepRow], base: Machine) -> str:
    """A bar chart of the modelled times, every row labelled with what differs; a machine that cannot run says why."""
    from xml.sax.saxutils import escape

    table = columns(rows)
    character, pitch, bars = 7.4, 20, 420
    widths = [character * (2 + max(len(title), *(len(value) for value in values))) for title, values in table]
    ends = [8 + sum(widths[: index + 1]) for index in range(len(widths))]
    start, top = ends[-1] + 12, 64
    longest = max((row.microseconds for row in rows), default=0.0) or 1.0
    best = min((row.microseconds for row in rows if not row.error), default=0.0)
    words_end = max((character * len(row.error) for row in rows), default=0.0)
    width, height = start + max(bars + 170, words_end + 12), top + pitch * len(rows) + 34
    bottom = top + pitch * len(rows)

    def words(x: float, y: float, content: str, anchor: str = "start", fill: str = "#222222") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(content)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">',
        '<g font-family="DejaVu Sans Mono, monospace" font-size="12">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        words(8, 20, f"{base.name}: modelled time of one run, microseconds (utilisation of the array)"),
        *(words(end, top - 10, title, "end", "#555555") for end, (title, _) in zip(ends, table, strict=True)),
    ]
    step = _step(longest)
    for tick in range(int(longest / step) + 1):
        x = start + tick * step / longest * bars
        parts.append(f'<line x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{bottom}" stroke="#dddddd"/>')
        parts.append(words(x, bottom + 16, f"{tick * step:,g}", "middle", "#555555"))
    for number, row in enumerate(rows):
        y = top + pitch * number
        parts += [words(end, y + 12, values[number], "end") for end, (_, values) in zip(ends, table, strict=True)]
        if row.error:
            parts.append(words(start, y + 12, row.error, fill="#aa3333"))
            continue
        bar = row.microseconds / longest * bars
        fill = "#228833" if row.microseconds == best else "#4477aa"
        parts.append(f'<rect x="{start:.1f}" y="{y + 1}" width="{bar:.1f}" height="14" fill="{fill}"/>')
        note = f"{row.microseconds:,.1f} ({row.utilisation:.1%})" + (" fastest" if row.microseconds == best else "")
        parts.append(words(start + bar + 6, y + 12, note))
    return "\n".join([*parts, "</g></svg>"]) + "\n"


def _step(longest: float) -> float:
    """A round distance of the axis's ticks, for four to ten of them."""
    step: float = 10.0 ** math.floor(math.log10(longest))
    return next(step * part for part in (1.0, 0.5, 0.2, 0.1) if longest / (step * part) >= 4)


def _label(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items()) or "as it is"
