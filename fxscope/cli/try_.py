"""``fxscope try``: run a program as it is and once per change, and show what each change did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fxscope.cli import options
from fxscope.cli.rerun import Rerunner, folder_of, program_of
from fxscope.cli.run import BACKEND, CONFIG, DYNAMIC, MODE, MODULE, TARGET, RunCommand
from fxscope.errors import UsageError

if TYPE_CHECKING:
    from fxscope.diagnosis.trial import Judged, Outcome

_EPILOG = """\b
Examples:
  fxscope try train.py --epochs 1
  fxscope try --what dynamic --what limit:64 --what config:allow_rnn=True train.py
Changes: disable, dynamic, no-dynamic, limit:N, mode:M, backend:B, config:NAME=VALUE,
  mark-dynamic:NAME[:DIM], mark-unbacked:NAME[:DIM].
"""
_MOST = 6  # changes proposed by findings that are tried without being asked for


@click.command(cls=RunCommand, epilog=_EPILOG, short_help="Re-run a program with one change at a time.")
@click.option(
    "--what",
    "whats",
    multiple=True,
    metavar="CHANGE",
    help="A change to try, repeatable. Default: what the findings of the first run propose.",
)
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(), help="Folder of the recordings. Default: ./<script>-try-<time>"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema try).")
@click.option("--timeout", type=options.Amount(above_zero=True), metavar="SECONDS", help="Stop a run after this long.")
@click.option("--time-launches", is_flag=True, help="Sample how long compiled calls take, for a step time.")
@BACKEND
@MODE
@DYNAMIC
@CONFIG
@MODULE
@TARGET
@click.pass_context
def command(
    ctx: click.Context,
    whats: tuple[str, ...],
    output: str | None,
    as_json: bool,
    timeout: float | None,
    time_launches: bool,
    backend: str | None,
    mode: str | None,
    dynamic: bool | None,
    settings: tuple[str, ...],
    module: str | None,
    target: tuple[str, ...],
) -> None:
    """Run TARGET once as it is and once per change, each in its own recording and with caches of its own, and compare.

    The table says for each change: better, same, worse, mixed, changed results, or fails. --backend, --mode, --dynamic and --config
    hold for every run, also for the one that is compared with.
    """
    from fxscope.cli.run import parse_settings
    from fxscope.diagnosis.trial import judge, output_difference, parse_change

    parse_settings(settings)  # a wrong one is told before anything runs
    if module is None and not target:
        raise UsageError("nothing to run: give a script, -m MODULE, or -- LAUNCHER ... (fxscope try --help)")
    changes = [parse_change(what) for what in whats]
    program = program_of(ctx, module, target)
    folder = folder_of(output, module or target[0], "try")
    always = ["--time-launches"] if time_launches else []
    always += [word for name, value in (("--backend", backend), ("--mode", mode)) if value for word in (name, value)]
    always += [] if dynamic is None else ["--dynamic" if dynamic else "--no-dynamic"]
    always += [word for setting in settings for word in ("--config", setting)]
    runner = Rerunner(folder, program, timeout, always)
    base = runner.run("as it is")
    if not changes:
        changes = [parse_change(what) for what in _proposed(base)]
        if not changes:
            click.echo(
                "no finding of this run proposes a change that can be tried without an edit (fxscope diagnose has the fixes)",
                err=True,
            )
    outcomes = [runner.run(change.name, change) for change in changes]
    reproducible = True
    if base.exit_code == 0 and any(
        each.exit_code == 0 and output_difference(base.output, each.output) for each in outcomes
    ):
        again = runner.run("as it is, again")
        reproducible = output_difference(base.output, again.output) is None
    judged = [judge(base, each, reproducible=reproducible) for each in outcomes]
    if as_json:
        from fxscope.report.document import encode_document

        click.echo(encode_document(_document(program, base, judged, reproducible)))
    else:
        _print_table(base, judged, reproducible)
        click.echo(f"recordings: {folder}", err=True)


def _proposed(base: Outcome) -> list[str]:
    """Changes that the findings of the first run propose, each once, worst finding first."""
    from fxscope.diagnosis.diagnose import diagnose
    from fxscope.errors import FxscopeError
    from fxscope.recording.recording import open_recording

    try:
        findings = diagnose(open_recording(base.recording))
    except FxscopeError:
        return []  # nothing was recorded; the table shows the failed run
    changes = [finding.change for finding in findings if finding.change and finding.severity != "info"]
    return list(dict.fromkeys(changes))[:_MOST]


def _print_table(base: Outcome, judged: list[Judged], reproducible: bool) -> None:
    from rich.table import Table

    from fxscope.cli.report import stdout_console
    from fxscope.report.safe import plain_line

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("change", overflow="fold", min_width=16)
    table.add_column("verdict", min_width=8)
    for name in ("graphs", "breaks", "recomp", "limit", "skip", "comp s", "run s"):
        table.add_column(name, justify="right", no_wrap=True)
    styles = {
        "better": "green",
        "worse": "red",
        "fails": "bold red",
        "changed results": "bold yellow",
        "mixed": "yellow",
    }

    def row(name: str, verdict: str, outcome: Outcome) -> None:
        numbers = (outcome.graphs, outcome.graph_breaks, outcome.recompiles, outcome.limit_hits, outcome.skipped)
        cells = [str(number) for number in numbers] + [f"{outcome.compile_seconds:.1f}", f"{outcome.seconds:.1f}"]
        table.add_row(name, verdict, *cells, style=styles.get(verdict, ""))

    row("as it is", "" if base.exit_code == 0 else f"exit {base.exit_code}", base)
    for each in judged:
        row(each.outcome.change, each.verdict, each.outcome)
    console = stdout_console()
    console.print(table)
    for each in judged:
        if each.reasons:
            console.print(f"{each.outcome.change}: {plain_line('; '.join(each.reasons))}")
    if not reproducible:
        console.print(
            "Two runs as it is print different numbers, so results were not compared: seed the program to compare them."
        )


def _document(program: list[str], base: Outcome, judged: list[Judged], reproducible: bool) -> dict[str, Any]:
    return {
        "schema": "fxscope.try/1",
        "program": program,
        "base": base,
        "changes": judged,
        "reproducible": reproducible,
    }


def json_schema() -> dict[str, Any]:
    """Schema of ``--json``."""
    import msgspec

    from fxscope.diagnosis.trial import Judged, Outcome

    (outcome, judged), components = msgspec.json.schema_components([Outcome, Judged], ref_template="#/$defs/{name}")
    return {
        "type": "object",
        "required": ["schema", "program", "base", "changes", "reproducible"],
        "properties": {
            "schema": {"const": "fxscope.try/1"},
            "program": {"type": "array", "items": {"type": "string"}},
            "base": outcome,
            "changes": {"type": "array", "items": judged},
            "reproducible": {"type": "boolean"},
        },
        "$defs": components,
    }
