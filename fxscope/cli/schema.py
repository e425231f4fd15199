"""``fxscope schema``: the JSON Schema of a verb's ``--json`` output."""

from __future__ import annotations

import importlib
import json

import click

from fxscope.errors import UsageError


@click.command(epilog="Example: fxscope schema report > report.schema.json")
@click.argument("verb")
def command(verb: str) -> None:
    """Print the JSON Schema of a verb's --json output."""
    from fxscope.cli.main import VERBS

    if verb not in VERBS:
        raise UsageError(f"no verb {verb!r}; fxscope --help lists them")
    module = importlib.import_module(f"fxscope.cli.{'try_' if verb == 'try' else verb}")
    make = getattr(module, "json_schema", None)
    if make is None:
        raise UsageError(f"fxscope {verb} prints no JSON")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"fxscope {verb} --json", **make()}
    click.echo(json.dumps(schema, indent=1))
