"""``fxscope schema``: the JSON Schema of a verb's ``--json`` output."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import click

from fxscope.cli.main import VERBS, module_of
from fxscope.errors import UsageError

_FIELD = re.compile(r"^ {4}(\w+): ")


def schema_of(verb: str) -> dict[str, Any] | None:
    """JSON Schema (draft 2020-12) of what a verb prints with ``--json``; None where it prints no JSON."""
    make = getattr(importlib.import_module(module_of(verb)), "json_schema", None)
    if make is None:
        return None
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"fxscope {verb} --json", **make()}
    for definition in (schema, *schema.get("$defs", {}).values()):
        _describe_fields(definition)
    return schema


def _describe_fields(definition: dict[str, Any]) -> None:
    """Give each property the sentence that the Attributes section of its record's docstring has for it."""
    text, _, attributes = definition.get("description", "").partition("\n\nAttributes:\n")
    if not attributes:
        return
    definition["description"] = text
    field = ""
    for line in attributes.split("\n"):
        start = _FIELD.match(line)
        if start:
            field, line = start[1], line[start.end() :]
        elif not line.startswith(" " * 8):
            break
        if field in definition["properties"]:
            described = definition["properties"][field]
            described["description"] = f"{described.get('description', '')} {line.strip()}".strip()


@click.command(epilog="\b\nExample:\n  fxscope schema report > report.schema.json")
@click.argument("verb", shell_complete=lambda ctx, param, start: [verb for verb in VERBS if verb.startswith(start)])
def command(verb: str) -> None:
    """Print the JSON Schema of a verb's --json output."""
    if verb not in VERBS:
        raise UsageError(f"no verb {verb!r}; fxscope --help lists them")
    schema = schema_of(verb)
    if schema is None:
        with_json = ", ".join(name for name in VERBS if schema_of(name))
        raise UsageError(f"fxscope {verb} prints no JSON; these do: {with_json}")
    click.echo(json.dumps(schema, indent=1))
