"""``fxscope index``: keep the index of large logs beside them, so that they open faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


class KeptIndexRow(msgspec.Struct, kw_only=True):
    """One log.

    Attributes:
        kept_at: Where its index lies.
        events: Events of the log.
        log_bytes: Size of the log, unpacked; ``index_bytes`` of its index.
    """

    log: str
    kept_at: str
    events: int
    log_bytes: int
    index_bytes: int


class IndexDocument(msgspec.Struct, kw_only=True):
    """What ``fxscope index --json`` prints."""

    schema: Literal["fxscope.index/1"] = "fxscope.index/1"
    logs: list[KeptIndexRow]


@click.command("index", epilog="\b\nExample:\n  fxscope index /logs/run7")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(path: str, as_json: bool) -> None:
    """Keep the index of a log, or of every log of a folder, beside it.

    It lies in a folder .fxscope-index, or in the user's cache where the log's folder cannot be written or is remote. It is checked
    before each use: one of a log that was changed, cut or replaced is left aside and made anew, one of a log that grew is extended.
    Delete the folder to be rid of it.
    """
    import os

    from fxscope.report.document import encode_document
    from fxscope.report.safe import plain_line

    rows = []
    for log, kept_at, events, size in _keep(path):
        rows.append(
            KeptIndexRow(log=log, kept_at=kept_at, events=events, log_bytes=size, index_bytes=os.stat(kept_at).st_size)
        )
        if not as_json:
            row = rows[-1]
            click.echo(plain_line(f"{log}: {events} events, index of {row.index_bytes / 1e3:,.0f} kB in {kept_at}"))
    if as_json:
        click.echo(encode_document(IndexDocument(logs=rows)))


def _keep(path: str) -> Iterator[tuple[str, str, int, int]]:
    from fxscope.errors import UnreadableError, UsageError
    from fxscope.trace.bytesource import ByteSource
    from fxscope.trace.folder import find_logs
    from fxscope.trace.index import LogIndex, Nobody
    from fxscope.trace.keep import resume, save

    logs = find_logs(path)
    if not logs:
        raise UnreadableError(f"{path}: no trace log in it")
    for log in logs:
        index = LogIndex(ByteSource(log))
        resume(index, Nobody())
        index.scan(Nobody(), final=True)
        if not len(index) and len(logs) == 1:
            raise UnreadableError(f"{log}: holds no trace events, so there is nothing to keep")
        try:
            kept_at = save(index)
        except OSError as error:
            raise UsageError(f"cannot keep the index of {log}: {error.strerror or error} ({error.filename})") from error
        yield log, str(kept_at), len(index), len(index.source)
        index.source.close()


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``."""
    return msgspec.json.schema(IndexDocument)
