"""``fxscope stages``: run a program with one more stage of the compiler at a time, and say which one changes its results."""

from __future__ import annotations

from typing import Any, Literal

import click
import msgspec

from fxscope.cli import options
from fxscope.cli.rerun import Rerunner, folder_of, program_of
from fxscope.cli.run import MODULE, TARGET, RunCommand
from fxscope.diagnosis.stages import AS_IT_IS, BY_DESIGN, LADDER, REFERENCE, Conclusion, Rung, Step, compare, conclude
from fxscope.diagnosis.trial import Outcome, output_difference, parse_change
from fxscope.errors import UsageError


class StagesDocument(msgspec.Struct, kw_only=True):
    """What ``fxscope stages --json`` prints.

    Attributes:
        program: As for ``fxscope run``.
        reference: The run without torch.compile.
        stages: A row for each stage that was run; the stages between are left out where the program as it is prints the same.
    """

    schema: Literal["fxscope.stages/1"] = "fxscope.stages/1"
    program: list[str]
    reference: Outcome
    stages: list[Step]
    conclusion: Conclusion


@click.command(
    cls=RunCommand,
    epilog="\b\nExamples:\n  fxscope stages infer.py\n  fxscope stages --json -m package.module",
    short_help="Say which stage of the compiler changes a program's results.",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(),
    help="Folder of the recordings. Default: ./<script>-stages-<time>",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema stages).")
@click.option("--timeout", type=options.Amount(above_zero=True), metavar="SECONDS", help="Stop a run after this long.")
@MODULE
@TARGET
@click.pass_context
def command(
    ctx: click.Context,
    output: str | None,
    as_json: bool,
    timeout: float | None,
    module: str | None,
    target: tuple[str, ...],
) -> None:
    """Compiled code computes something else? Run TARGET without torch.compile and with one more stage of it at a time.

    What the program prints is compared (numbers within 1e-3), so let it print what matters and seed it. Where it prints the same with
    and without torch.compile, two runs are all. Exit code 1 where the results change or cannot be compared.
    """
    if module is None and not target:
        raise UsageError("nothing to run: give a script, -m MODULE, or -- LAUNCHER ... (fxscope stages --help)")
    program = program_of(ctx, module, target)
    runner = Rerunner(folder_of(output, module or target[0], "stages"), program, timeout)
    document = climb(runner, program)
    if as_json:
        from fxscope.report.document import encode_document

        click.echo(encode_document(document))
    else:
        _print(document)
        click.echo(f"recordings: {runner.folder}", err=True)
    ctx.exit(int(any(step.result != "same" for step in document.stages)))


def climb(runner: Rerunner, program: list[str]) -> StagesDocument:
    """Run the rungs that are needed."""
    reference = runner.run(REFERENCE, parse_change(REFERENCE))

    def step(rung: Rung) -> Step:
        change = None if rung.change == AS_IT_IS else parse_change(rung.change)
        return compare(rung, reference, runner.run(rung.change, change))

    steps, by_design, reproducible = [step(LADDER[-1])], list[Step](), True
    if steps[0].result != "same":
        again = runner.run("disable, again", parse_change(REFERENCE))
        reproducible = again.exit_code == reference.exit_code and not output_difference(reference.output, again.output)
        if reproducible:
            steps[:0] = [step(rung) for rung in LADDER[1:-1]]
            if steps[-1].result == "changed" and steps[-2].result == "same":
                by_design = [step(rung) for rung in BY_DESIGN]
    conclusion = conclude(steps, by_design, reproducible=reproducible)
    return StagesDocument(program=program, reference=reference, stages=[*steps, *by_design], conclusion=conclusion)


def _print(document: StagesDocument) -> None:
    from rich.table import Table

    from fxscope.cli.report import stdout_console
    from fxscope.report.safe import plain_line

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("stage", overflow="fold")
    table.add_column("run", no_wrap=True)
    table.add_column("result", no_wrap=True)
    styles = {"changed": "bold yellow", "fails": "bold red", "same": "green"}
    reference, conclusion = document.reference, document.conclusion
    ended = "reference" if reference.exit_code == 0 else f"reference (exit {reference.exit_code})"
    table.add_row(LADDER[0].adds, REFERENCE, ended)
    for each in document.stages:
        table.add_row(each.adds, each.outcome.change, each.result, style=styles[each.result])
    console = stdout_console()
    console.print(table)
    for each in document.stages:
        if each.detail:
            console.print(plain_line(f"{each.outcome.change}: {each.detail}"))
    console.print(plain_line(conclusion.sentence), style="bold")
    if conclusion.advice:
        console.print(plain_line(conclusion.advice))


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``."""
    return msgspec.json.schema(StagesDocument)
