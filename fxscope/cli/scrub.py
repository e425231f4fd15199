"""``fxscope scrub``: copy a log without what is private."""

from __future__ import annotations

from pathlib import Path

import click

from fxscope.words import count


@click.command(
    "scrub",
    epilog="\b\nExample:\n  fxscope scrub train.fxscope shared.fxscope --keep names   # then look at it before you share it",
)
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--keep",
    multiple=True,
    type=click.Choice(["source", "paths", "names", "hosts"]),
    help="Leave this as it is (repeatable); without it, source text, paths, names and hosts are all removed.",
)
def command(source: str, out: Path, keep: tuple[str, ...]) -> None:
    """Copy a recording or log without source text, paths, the program's names and hosts.

    OUT is a new folder; of one log it may be a new file whose name ends in .log.

    The same name or path gets the same stand-in everywhere and every payload's hash is made anew, so the copy reads, diagnoses
    and compares like the original. The program's own output and saved tensors are not copied. Shapes, dtypes, ops and numbers
    stay: they are what the log is about.
    """
    from fxscope.report.scrub import scrub
    from fxscope.report.scrub_rules import TOPICS

    hide = frozenset(topic for topic in TOPICS if topic not in keep)
    done = scrub(source, out, hide)
    click.echo(f"{out}: {count(done.events, 'event')} in {count(len(done.logs), 'log')}", err=True)
    if done.skipped:
        click.echo(f"left out: {count(done.skipped, 'line')} that could not be read as events", err=True)
    click.echo("removed: " + (", ".join(sorted(hide)) or "nothing") + "; look at it once before you share it", err=True)
