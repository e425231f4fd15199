"""``fxscope artifacts``: the payloads of a log as files."""

from __future__ import annotations

import click

from fxscope.words import count


@click.command(epilog="\b\nExample:\n  fxscope artifacts -o out train.fxscope")
@click.argument("path", type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(),
    help="Where to write; default: PATH's name with .artifacts, here.",
)
def command(path: str, output: str | None) -> None:
    """Write graphs, generated code, guards and every other artifact of a log out as files, a folder per compile."""
    from pathlib import Path

    from fxscope.recording.recording import open_recording
    from fxscope.report.files import write_artifacts

    recording = open_recording(path)
    folder = Path(output) if output else Path(Path(path).name.split(".", 1)[0] + ".artifacts")
    number, size = write_artifacts(recording, folder)
    click.echo(f"wrote {count(number, 'file')} ({size / 1e6:.1f} MB) below {folder}", err=True)
