"""``fxscope report``: what happened in a recording."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from fxscope.cli import newest


@click.command(
    epilog="\b\nExamples:\n  fxscope report train-20260101-120000.fxscope\n  fxscope report --json /tmp/traces | jq .totals"
)
@newest.path
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document (fxscope schema report).")
@click.option("--html", "html_file", metavar="FILE", type=click.Path(), help="Write one self-contained HTML page.")
@click.option("--all", "everything", is_flag=True, help="Show every row instead of the first 20 of a section.")
def command(path: str, as_json: bool, html_file: str | None, everything: bool) -> None:
    """What happened: frames, graphs, breaks, recompiles, failures, compile time.

    PATH is a recording folder, a folder of TORCH_TRACE logs, or one log; .gz, .xz and .zst are read as they are.
    Without PATH: the newest recording in the current folder.
    """
    from fxscope.recording.recording import open_recording

    recording = open_recording(path)
    explain(recording)
    if html_file is not None:
        from fxscope.report.html import write_html

        size = write_html(recording, html_file)
        click.echo(f"wrote {html_file} ({size / 1e6:.1f} MB)", err=True)
    if as_json:
        from fxscope.report.document import encode_document, report_document

        write_text(encode_document(report_document(recording)) + "\n")
    elif html_file is None:
        from fxscope.report.terminal import print_report

        print_report(recording, stdout_console(), everything=everything)


def explain(recording: Any) -> None:
    """Fill in cause and fix of breaks and recompiles, where there are any."""
    if not recording.graph_breaks and not recording.recompiles:
        return
    from fxscope.diagnosis.diagnose import explain_records

    explain_records(recording)


def stdout_console() -> Any:
    """A rich console on standard output that reads no markup, keeps plain pipes plain and never fails on its encoding."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            _reader_left()

    _forgive_encoding()
    return Output(markup=False, highlight=False, emoji=False)


def write_text(text: str) -> None:
    """Write to standard output whatever its encoding, as long as somebody reads it."""
    _forgive_encoding()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _reader_left()


def _forgive_encoding() -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _reader_left() -> NoReturn:
    """``| head`` has enough: no error of ours, and nothing more to say."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``."""
    import msgspec

    from fxscope.report.document import ReportDocument

    return msgspec.json.schema(ReportDocument)
