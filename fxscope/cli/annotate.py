"""``fxscope annotate``: the source with breaks, guards and recompiles in its margin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fxscope.errors import UsageError


@click.command(
    epilog="\b\nExamples:\n  fxscope annotate run.fxscope model.py\n  fxscope annotate run.fxscope --html margin.html"
)
@click.argument("path", type=click.Path())
@click.argument("file", required=False)
@click.option(
    "--html", "html_file", metavar="FILE", type=click.Path(), help="Write one self-contained HTML page instead."
)
@click.option("--whole", is_flag=True, help="Show whole files, not only the lines around a mark.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema annotate).")
def command(path: str, file: str | None, html_file: str | None, whole: bool, as_json: bool) -> None:
    """The source with failures (F), breaks (B), recompiles (R), guards (G), compile time and calls in its margin.

    FILE is the end of a path; without it every file of the program that has a mark is shown. Files of libraries are shown
    when they are named.
    """
    from fxscope.recording.recording import open_recording
    from fxscope.report.annotate import annotate, html, print_files

    files = annotate(open_recording(path), file)
    if file is not None and not files:
        known = ", ".join(each.path for each in annotate(open_recording(path))[:5])
        raise UsageError(f"nothing happened in a file named {file}; there is {known or 'no marked file'}")
    if html_file is not None:
        Path(html_file).write_text(html(files, f"fxscope: {path}"), encoding="utf-8", errors="backslashreplace")
        click.echo(f"wrote {html_file}", err=True)
        return
    if as_json:
        from fxscope.report.document import encode_document

        click.echo(encode_document({"schema": "fxscope.annotate/1", "path": path, "files": files}))
        return
    from fxscope.cli.report import stdout_console

    console = stdout_console()
    if not files:
        console.print("Nothing of the program's own source is marked.")
    print_files(files, console, whole=whole)


def json_schema() -> dict[str, Any]:
    """Schema of ``--json``."""
    import msgspec

    from fxscope.report.annotate import SourceFile

    (file,), components = msgspec.json.schema_components([SourceFile], ref_template="#/$defs/{name}")
    return {
        "type": "object",
        "required": ["schema", "path", "files"],
        "properties": {
            "schema": {"const": "fxscope.annotate/1"},
            "path": {"type": "string"},
            "files": {"type": "array", "items": file},
        },
        "$defs": components,
    }
