"""``fxscope ranks``: compare the processes of a distributed run, on one machine or on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fxscope.diagnosis.findings import Finding
    from fxscope.recording.rank_summary import RankSummary


_MOST_NOTES = 20


@click.command(
    "ranks",
    epilog="\b\nExample:\n  fxscope ranks s3://logs/run7/ --workers 8 --parquet run7.parquet",
)
@click.argument("path", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes on this machine that read logs.")
@click.option("--scheduler", metavar="URL", help="Dask scheduler (tcp://host:8786) whose workers read the logs.")
@click.option(
    "--parquet", type=click.Path(dir_okay=False), help="Also write one row per compile, for Spark, DuckDB or pandas."
)
@click.option("--all", "everything", is_flag=True, help="One line for each process, even where many are alike.")
def command(
    path: str, as_json: bool, workers: int, scheduler: str | None, parquet: str | None, everything: bool
) -> None:
    """Compare the ranks of a distributed run.

    Finds compiles that only some ranks made, or made at other times while the rest waited; graph breaks, cache misses,
    collectives, execution order and tensor shapes that differ; and waits that are missing.

    PATH is a recording, a folder of logs or an fsspec URL; it may hold a thousand logs.
    """
    from fxscope.diagnosis.ranks import compare_ranks
    from fxscope.recording.many import summarize_all, write_parquet

    summaries = summarize_all(path, workers=workers, scheduler=scheduler)
    findings = compare_ranks(summaries, path)
    if parquet:
        rows = write_parquet(summaries, parquet)
        click.echo(f"{parquet}: {rows} rows", err=True)
    if as_json:
        from fxscope.diagnosis.rank_runs import rank_notes
        from fxscope.report.document import encode_document
        from fxscope.report.ranks import RanksDocument

        document = RanksDocument(ranks=summaries, findings=findings, notes=rank_notes(summaries))
        click.echo(encode_document(document))
    else:
        _print(summaries, findings, everything)


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``."""
    import msgspec

    from fxscope.report.ranks import RanksDocument

    return msgspec.json.schema(RanksDocument)


def _print(summaries: list[RankSummary], findings: list[Finding], everything: bool) -> None:
    import shutil
    import textwrap

    from fxscope.report.ranks import note_lines, rank_rows, rank_table
    from fxscope.report.safe import plain_line

    width = max(40, shutil.get_terminal_size((100, 24)).columns)

    def write(text: str, lead: str, **style: bool) -> None:
        wrapped = textwrap.wrap(plain_line(text), width - 1, initial_indent=lead, subsequent_indent=" " * len(lead))
        click.echo(click.style("\n".join(wrapped), **style))

    for line in rank_table(rank_rows(summaries), everything=everything):
        click.echo(line)
    notes = note_lines(summaries)
    shown = len(notes) if everything else _MOST_NOTES
    for note in notes[:shown]:
        write(note, "", dim=True)
    if len(notes) > shown:
        write(f"… {len(notes) - shown} more notes: --all shows them", "", dim=True)
    click.echo()
    if not findings:
        ranks = {summary.rank for summary in summaries if summary.rank is not None}
        click.echo("The ranks agree." if len(ranks) > 1 else "Fewer than two ranks: nothing to compare.")
    for finding in findings:
        write(finding.title, f"{finding.severity:>6}  ", bold=True)
        write(finding.cause, " " * 8)
        for label, text in (("gain  ", finding.gain), ("fix   ", finding.fix)):
            if text:
                write(text, " " * 8 + label)
        for evidence in finding.evidence:
            write(evidence.text, " " * 8 + "- ", dim=True)
