"""``fxscope bundle``: pack one graph as a bug report."""

from __future__ import annotations

from pathlib import Path

import click

from fxscope.cli import options


@click.command("bundle", epilog="\b\nExample:\n  fxscope bundle train.fxscope --graph 0/1 -o issue.zip")
@click.argument("path", type=click.Path())
@options.required_graph
@options.stage
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("fxscope-bundle.zip"),
    show_default=True,
)
@click.option(
    "--keep",
    multiple=True,
    type=click.Choice(["source", "paths", "names", "hosts"]),
    help="Leave this as it is (repeatable); without it all four are removed.",
)
def command(path: str, graph_id: str, stage: str, output: Path, keep: tuple[str, ...]) -> None:
    """Pack one graph for an upstream issue.

    The zip file holds issue.md (failure, findings, versions, settings), repro.py (runs the graph alone), graph.txt and the
    scrubbed part of the log. Look at it once before you share it.
    """
    from fxscope.report.bundle import bundle
    from fxscope.report.scrub_rules import TOPICS

    names = bundle(path, graph_id, stage, output, frozenset(topic for topic in TOPICS if topic not in keep))
    click.echo(f"{output}: {', '.join(names)}", err=True)
    if "repro.py" not in names:
        click.echo("no repro.py: issue.md says why", err=True)
