"""``fxscope events``: the raw events of a log."""

from __future__ import annotations

from typing import Any

import click


@click.command(epilog="\b\nExample:\n  fxscope events --type dynamo_graph_break_reason --payload train.fxscope")
@click.argument("path", type=click.Path())
@click.option("--type", "kind", metavar="T", help="Only events of this type, or artifacts of this name.")
@click.option("--id", "graph_id", metavar="ID", help="Only events of this compile, e.g. 0/1 or r1:0/0_1.")
@click.option("--payload", is_flag=True, help="Print envelope and payload below each event.")
@click.option("--json", "as_json", is_flag=True, help="Print the events, envelopes and payloads as one JSON document.")
def command(path: str, kind: str | None, graph_id: str | None, payload: bool, as_json: bool) -> None:
    """List the raw events of a log, in its order."""
    import sys

    import msgspec

    from fxscope.cli.report import write_text
    from fxscope.recording.recording import open_recording
    from fxscope.report.eventlist import event_lines, event_rows
    from fxscope.report.safe import escape_json, plain_line

    recording = open_recording(path)
    if graph_id is not None and not graph_id.startswith("!"):
        recording.find(graph_id)  # says which ids there are, where this is none
    rows = event_rows(recording, kind=kind, graph_id=graph_id, payloads=payload or as_json)
    if not as_json:
        found = False
        for row in rows:
            found = True
            write_text(event_lines(row, payload=payload) + "\n")
        if not found and kind is not None:
            of = f" of compile {graph_id}" if graph_id else ""
            types = sorted({name for _, name in recording.events()})
            click.echo(
                f"no event of type {plain_line(kind)}{of}; types here: {plain_line(', '.join(types)) or 'none'}",
                err=True,
            )
        return
    # Row by row, so that the payloads of a large log are never in memory together.
    write_text('{"schema": "fxscope.events/1", "events": [')
    before = "\n"
    for row in rows:
        write_text(before + escape_json(msgspec.json.encode(row).decode()))
        before = ",\n"
    write_text("\n]}\n")
    sys.stdout.flush()


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``."""
    import msgspec

    from fxscope.report.eventlist import EventsDocument

    return msgspec.json.schema(EventsDocument)
