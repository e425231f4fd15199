"""``fxscope npu``: assemble, disassemble, run, report, sweep and specify NPU programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fxscope.cli import options
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.targets.npu.executable import NpuExecutable
    from fxscope.targets.npu.machine import Machine
    from fxscope.targets.npu.program import Program

SCHEMA = "fxscope.npu/1"
_MACHINE = click.option(
    "--machine", metavar="M", help="Preset or TOML file (default: FXSCOPE_NPU, else gemmini-16x16)."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group(epilog="\b\nExample:\n  fxscope npu report run.fxscope --graph 0/0 --machine ethos-u65-512")
def command() -> None:
    """Assemble, run, report and sweep NPU programs. Times are modelled, never measured."""


@command.command(epilog="\b\nExample:\n  fxscope npu asm add.s -o add.bin")
@click.argument("source", type=click.Path())
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="Where the program goes (default: SOURCE with .bin)."
)
@click.option("--region", "sizes", multiple=True, metavar="R=BYTES", help="Size of a memory region: w, a, i, o or c.")
@_MACHINE
def asm(source: str, output: str | None, sizes: tuple[str, ...], machine: str | None) -> None:
    """Assemble program text into a program file."""
    from fxscope.targets.npu.program import to_bytes

    program = _from_text(source, _machine(machine), sizes)
    target = Path(output or Path(source).with_suffix(".bin"))
    target.write_bytes(to_bytes(program))
    click.echo(f"{target}: {count(len(program.instructions), 'instruction')}", err=True)


@command.command(epilog="\b\nExample:\n  fxscope npu dis add.bin", short_help="Disassemble a program file.")
@click.argument("program", type=click.Path())
@click.option("--flat", is_flag=True, help="Loops unrolled, as the queues see them.")
@click.option("--node", metavar="NODE", help="Only the instructions of one FX node.")
def dis(program: str, flat: bool, node: str | None) -> None:
    """Disassemble a program file; comments lead back to nodes and source lines."""
    from fxscope.targets.npu.assembly import disassemble
    from fxscope.targets.npu.loops import roll
    from fxscope.targets.npu.program import read

    found = read(program)
    instructions = found.instructions
    if node is not None:
        instructions = [instructions[index] for index in found.instructions_of(node)]
        if not instructions:
            from fxscope.errors import UsageError

            known = sorted({entry.node for entry in found.debug if entry.node})
            raise UsageError(f"{program} has no instruction of node {node!r}; nodes: {', '.join(known) or 'none'}")
    elif not flat:
        instructions = roll(instructions)
    click.echo(disassemble(instructions, found.comments()), nl=False)


@command.command(
    epilog="\b\nExample:\n  fxscope npu run add.s --seed 1 --interleave 5",
    short_help="Prove a program legal, run it, model its time.",
)
@click.argument("program", type=click.Path())
@click.option("--seed", default=0, show_default=True, help="Of the numbers in the weight and input regions.")
@click.option("--interleave", default=0, metavar="N", help="Also run N random interleavings of the queues.")
@click.option("--region", "sizes", multiple=True, metavar="R=BYTES", help="Size of a memory region, for program text.")
@_MACHINE
@_JSON
def run(program: str, seed: int, interleave: int, sizes: tuple[str, ...], machine: str | None, as_json: bool) -> None:
    """Prove a program legal, run it on random numbers, and model its time.

    Exit code 1: an illegal address, a race, an uninitialised read or a deadlock, or interleavings that differ.
    """
    from fxscope.errors import CheckFailed
    from fxscope.targets.npu.check import verify
    from fxscope.targets.npu.program import read
    from fxscope.targets.npu.run import outputs_of
    from fxscope.targets.npu.simulate import simulate, stretches

    where = _machine(machine)
    found = _from_text(program, where, sizes) if program.endswith((".s", ".asm")) else read(program)
    if machine is None and found.machine != where.name:
        where = _machine(found.machine)
    verify(found, where, limit=8)
    results = outputs_of(found, where, seed)
    for number in range(interleave):
        if outputs_of(found, where, seed, interleaving=number) != results:
            raise CheckFailed(f"interleaving {number} gives other results: a token is missing that check did not see")
    timing = simulate(found.instructions, where)
    marks = stretches(found.instructions, timing)
    document = {
        "schema": SCHEMA,
        "command": "run",
        "machine": where.name,
        "modelled": True,
        "instructions": len(found.instructions),
        "cycles": timing.total,
        "lower": timing.lower,
        "upper": timing.upper,
        "busy": timing.busy,
        "microseconds": where.seconds(timing.total) * 1e6,
        "outputs": results,
        "pmu": marks,
        "interleavings": interleave,
    }
    if as_json:
        _print_json(document)
        return
    agreed = f"; {interleave} interleavings agree" if interleave else ""
    click.echo(f"{count(len(found.instructions), 'instruction')} on {where.name}: legal{agreed}")
    click.echo(
        f"{timing.total:,.0f} cycles = {where.seconds(timing.total) * 1e6:,.2f} us modelled, between {timing.lower:,.0f} and {timing.upper:,.0f}"
    )
    for name, cycles in marks.items():
        click.echo(f"pmu {name}: {cycles:,.0f} cycles modelled")
    for name, result in results.items():
        click.echo(f"{name}: {result}")


@command.command(
    epilog="\b\nExample:\n  fxscope npu report run.fxscope --graph 0/0 --timeline npu.json",
    short_help="Compile a recorded graph and say what each op costs.",
)
@click.argument("path", type=click.Path())
@options.graph
@options.stage
@click.option("--softmax", type=click.Choice(["decompose", "host"]), default="decompose", show_default=True)
@click.option("--timeline", metavar="FILE", type=click.Path(), help="Write a Chrome trace (open it in Perfetto).")
@click.option("--listing", is_flag=True, help="Print the disassembly beside nodes and source lines.")
@click.option("--live", is_flag=True, help="Print the live ranges of the intermediates.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write the first island's program file.")
@_MACHINE
@_JSON
def report(
    path: str, graph_id: str | None, stage: str, softmax: str, timeline: str | None, listing: bool, live: bool,
    output: str | None, machine: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Compile a recorded graph for a machine and say what each op costs, and why."""
    import json

    from fxscope.targets.npu.program import to_bytes
    from fxscope.targets.npu.recorded import choices, lower_recorded
    from fxscope.targets.npu.report import live_chart, lowered_text, text
    from fxscope.targets.npu.report import report as make
    from fxscope.targets.npu.timeline import chrome_trace, merged

    where = _machine(machine)
    made = lower_recorded(path, graph_id, stage, where, softmax)
    islands: list[NpuExecutable] = list(made.executables.values())  # type: ignore[arg-type]
    reports = [make(island.compiled, island.timing, island.boundary_bytes) for island in islands]
    if timeline and islands:
        traces = [
            chrome_trace(island.compiled.program, island.timing, where, island=number)
            for number, island in enumerate(islands)
        ]
        Path(timeline).write_text(json.dumps(merged(traces)))
    if output and islands:
        Path(output).write_bytes(to_bytes(islands[0].compiled.program))
    if as_json:
        import msgspec

        _print_json(
            {
                "schema": SCHEMA,
                "command": "report",
                "machine": where.name,
                "coverage": made.coverage,
                "islands": [msgspec.to_builtins(found) for found in reports],
                "choices": choices(made, where),
            }
        )
        return
    click.echo(lowered_text(made))
    for number, (island, found) in enumerate(zip(islands, reports, strict=True)):
        click.echo(f"\nisland {number}\n{text(found)}")
        if live:
            click.echo("\n" + live_chart(found))
        if listing:
            click.echo("\n" + island.listings()[0].text)
    for choice in choices(made, where):
        click.echo("choice: " + choice["text"])


@command.command(
    epilog="\b\nExample:\n  fxscope npu sweep run.fxscope --graph 0/0 --set array.rows+array.cols=8,16,32 --set dram.bytes_per_cycle=4,16",
    short_help="What if array, memories or bandwidth were others.",
)
@click.argument("path", type=click.Path())
@options.graph
@options.stage
@click.option(
    "--set",
    "settings",
    multiple=True,
    required=True,
    metavar="KEY=V,V",
    help="Values of one number of the machine; KEY+KEY changes two together.",
)
@click.option("--plot", metavar="FILE", type=click.Path(), help="Write a bar chart (SVG).")
@_MACHINE
@_JSON
def sweep(
    path: str, graph_id: str | None, stage: str, settings: tuple[str, ...], plot: str | None, machine: str | None, as_json: bool
) -> None:  # fmt: skip
    """What if the array, the memories or the bandwidth were others: a table over every combination."""
    import msgspec

    from fxscope.targets.npu import sweep as sweeps
    from fxscope.targets.npu.recorded import islands_of

    where = _machine(machine)
    values = sweeps.parse_values(settings)
    sweeps.machines(where, values)  # a misspelt key costs nothing yet
    islands = islands_of(path, graph_id, stage, where)
    rows = sweeps.sweep(
        islands, where, values, lambda text: click.echo(text, err=True) if sys.stderr.isatty() else None
    )
    if plot:
        Path(plot).write_text(sweeps.svg(rows, where))
    if as_json:
        _print_json(
            {
                "schema": SCHEMA,
                "command": "sweep",
                "machine": where.name,
                "modelled": True,
                "rows": msgspec.to_builtins(rows),
            }
        )
        return
    click.echo(sweeps.text(rows, where))


@command.command(
    epilog="\b\nExample:\n  fxscope npu spec ethos-u65-512", short_help="A machine's numbers, or the instruction set."
)
@click.argument("machine", required=False)
@click.option("--isa", is_flag=True, help="The instruction set and the supported ops, as Markdown.")
@click.option("--op", "name", metavar="NAME", help="One instruction.")
@_JSON
def spec(machine: str | None, isa: bool, name: str | None, as_json: bool) -> None:
    """A machine's numbers with their sources, or the instruction set. Without an argument: the presets."""
    import msgspec

    from fxscope.errors import UsageError
    from fxscope.targets.npu.isa import BY_NAME
    from fxscope.targets.npu.machine import load, names
    from fxscope.targets.npu.spec import isa_markdown, machine_text, opcode_text

    if name is not None:
        if name not in BY_NAME:
            raise UsageError(f"no instruction {name!r}; known: {', '.join(BY_NAME)}")
        click.echo(opcode_text(BY_NAME[name]))
    elif isa:
        click.echo(isa_markdown(), nl=False)
    elif as_json:
        chosen = [load(machine)] if machine else [load(preset) for preset in names()]
        _print_json({"schema": SCHEMA, "command": "spec", "machines": msgspec.to_builtins(chosen)})
    elif machine:
        click.echo(machine_text(load(machine)))
    else:
        for preset in names():
            click.echo(f"{preset:<18} {load(preset).doc}")


def _machine(name: str | None) -> Machine:
    """The machine that an option, the environment or the default names."""
    import os

    from fxscope.targets.npu.machine import DEFAULT, load

    return load(name or os.environ.get("FXSCOPE_NPU") or DEFAULT)


def _from_text(source: str, machine: Machine, sizes: tuple[str, ...]) -> Program:
    from fxscope.errors import UnreadableError, UsageError
    from fxscope.targets.npu.assembly import assemble
    from fxscope.targets.npu.isa import REGIONS
    from fxscope.targets.npu.program import from_code, needed_regions

    regions = {}
    for size in sizes:
        region, equals, count = size.partition("=")
        if region not in REGIONS or not equals or not count.isdecimal():
            raise UsageError(f"--region {size}: write R=BYTES with R one of {', '.join(REGIONS)}")
        regions[region] = int(count)
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{source}: {getattr(error, 'strerror', None) or 'no text'}") from None
    program = from_code(assemble(text, source), machine.name, regions)
    if not regions:
        program.regions.update(needed_regions(program, machine))
    return program


def _print_json(document: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(document))


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``: what all commands share, and the parts of each."""
    import msgspec

    from fxscope.targets.npu.report import NpuReport
    from fxscope.targets.npu.sweep import SweepRow

    report_schema, sweep_schema = msgspec.json.schema(NpuReport), msgspec.json.schema(SweepRow)
    return {
        "type": "object",
        "required": ["schema", "command"],
        "properties": {
            "schema": {"const": SCHEMA},
            "command": {"enum": ["run", "report", "sweep", "spec"]},
            "machine": {"type": "string"},
            "islands": {"type": "array", "items": {"$ref": "#/$defs/NpuReport"}},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/SweepRow"}},
        },
        "$defs": {**report_schema["$defs"], **sweep_schema["$defs"]},
    }
