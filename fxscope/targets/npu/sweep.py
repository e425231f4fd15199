"""What if the machine were another one: the same islands compiled and modelled on every combination of values."""

from __future__ import annotations

import itertools
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


def text(rows: Sequence[SweepRow], base: Machine) -> str:
    """A table with a bar for each machine's time."""
    labels = [_label(row.values) for row in rows]
    width = max([len(label) for label in labels] + [7])
    longest = max((row.microseconds for row in rows), default=0.0)
    best = min((row.microseconds for row in rows if not row.error), default=0.0)
    lines = [
        f"base {base.name}; every figure modelled",
        f"{'machine':<{width}} {'us':>12} {'util':>6} {'main mem':>9}",
    ]
    for label, row in zip(labels, rows, strict=True):
        if row.error:
            lines.append(f"{label:<{width}} {row.error}")
            continue
        bar = "#" * max(1, round(row.microseconds / longest * 30)) if longest else ""
        mark = " <- fastest" if row.microseconds == best else ""
        lines.append(
            f"{label:<{width}} {row.microseconds:>12,.1f} {row.utilisation:>6.1%} {row.dram_bytes / 1e6:>6.1f} MB {bar}{mark}"
        )
    return "\n".join(lines)


def svg(rows: Sequence[SweepRow], base: Machine) -> str:
    """A bar chart of the modelled times."""
    from xml.sax.saxutils import escape

    good = [row for row in rows if not row.error]
    longest = max((row.microseconds for row in good), default=1.0)
    height = 20 * len(good) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" font-family="monospace" font-size="12">',
        f'<text x="8" y="18">{escape(base.name)}: modelled time of one run, microseconds</text>',
    ]
    for number, row in enumerate(good):
        y = 32 + 20 * number
        bar = row.microseconds / longest * 420
        parts.append(f'<text x="8" y="{y + 11}">{escape(_label(row.values)[:48])}</text>')
        parts.append(f'<rect x="370" y="{y}" width="{bar:.1f}" height="14" fill="#4477aa"/>')
        parts.append(f'<text x="{376 + bar:.1f}" y="{y + 11}">{row.microseconds:,.1f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items()) or "as it is"
