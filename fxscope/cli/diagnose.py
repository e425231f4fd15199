"""``fxscope diagnose``: what is wrong, in order of cost, with the fix."""

from __future__ import annotations

from typing import Any

import click

from fxscope.cli import newest
from fxscope.words import count


@click.command(
    epilog="\b\nExamples:\n  fxscope diagnose train-20260101-120000.fxscope\n  fxscope diagnose --json /tmp/traces"
)
@newest.path
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema diagnose).")
@click.option(
    "--measure",
    is_flag=True,
    help="Replay each graph, eager and compiled, and say after how many calls compiling pays (imports torch).",
)
@click.option(
    "--severity",
    type=click.Choice(["high", "medium", "low", "info"]),
    default="info",
    help="Show findings of this severity and worse.",
)
def command(path: str, as_json: bool, measure: bool, severity: str) -> None:
    """What is wrong, in order of cost, with the fix.

    PATH is a recording folder, a folder of TORCH_TRACE logs, or one log; .gz, .xz and .zst are read as they are.
    Without PATH: the newest recording in the current folder.
    """
    from fxscope.diagnosis.diagnose import diagnose
    from fxscope.diagnosis.findings import severity_rank, worst_first
    from fxscope.recording.recording import open_recording
    from fxscope.report.findings import DiagnoseDocument, print_findings, row

    recording = open_recording(path)
    findings = diagnose(recording)
    measured = None
    if measure:
        from fxscope.cli.measure import findings_of, measure_graphs

        measured = measure_graphs(recording, lambda text: click.echo(text, err=True))
        findings = worst_first(
            [found for found in findings if "not-amortised" not in found.ids] + findings_of(recording, measured)
        )
    findings = [found for found in findings if severity_rank(found.severity) <= severity_rank(severity)]
    if as_json:
        from fxscope.report.document import encode_document

        document = DiagnoseDocument(
            path=path, totals=recording.totals, findings=[row(found) for found in findings], measured=measured
        )
        click.echo(encode_document(document))
        return
    from fxscope.cli.report import stdout_console

    console = stdout_console()
    if findings:
        print_findings(console, findings)
    else:
        totals = recording.totals
        console.print(
            f"Nothing is wrong: {count(totals.graphs, 'graph')}, {count(totals.graph_breaks, 'graph break')}, "
            f"{count(totals.recompiles, 'recompile')}."
        )
    if measured is not None:
        from fxscope.cli.measure import print_measured

        print_measured(console, measured)


def json_schema() -> dict[str, Any]:
    """Schema of ``--json``."""
    from fxscope.report.findings import json_schema as make

    return make()
