"""Writes the reference pages that come from the code: the commands and the JSON documents.

    python scripts/reference.py        # writes docs/reference_commands.md and docs/reference_json.md

The findings, the graph breaks and the NPU's instruction set have pages of their own, written by the rooms that own the tables
(docs/reference.md says how); tests hold all of them to the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fxscope.cli.main import VERBS, cli
from fxscope.cli.schema import schema_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH = 100  # columns of the help texts


def helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """``(name, help text)`` of a command and of all below it."""
    command._help_option = None  # click keeps the one of the first context, which in a test has been another
    context = click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            below = command.get_command(context, verb)
            assert below is not None
            yield from helps(below, verb, context)


def commands_page() -> str:
    """Every ``--help``, in the order of ``fxscope --help``."""
    more = "Shell completion and exit codes: [quick start](quick-start.md#at-the-command-line)."
    parts = [f"# Commands\n\nEvery `--help`, written by `python scripts/reference.py`. {more}\n"]
    for path, text in helps(cli, "fxscope"):
        parts.append(f"{'#' * (path.count(' ') + 1) if ' ' in path else '##'} {path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def type_text(schema: dict[str, Any], titles: dict[str, str]) -> str:
    """A field's type in words: ``list of BreakRow``, ``string or null``, ``"fxscope.report/1"``.

    Args:
        schema: The field's schema.
        titles: Heading of each record of this document.
    """
    if "$ref" in schema:
        title = titles[schema["$ref"].rsplit("/", 1)[1]]
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return ", ".join(f'`"{value}"`' for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(type_text(part, titles) for part in schema["anyOf"])
    kind = schema.get("type", "any value")
    if kind == "array":
        if "prefixItems" in schema:
            return "list: " + ", ".join(type_text(part, titles) for part in schema["prefixItems"])
        items = schema.get("items")
        return f"list of {type_text(items, titles)}" if items else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_text(schema['additionalProperties'], titles)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def fields(definition: dict[str, Any], titles: dict[str, str]) -> list[str]:
    """Table of a record's fields."""
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for name, field in definition.get("properties", {}).items():
        cells = (type_text(field, titles), marked(field.get("description", "")))
        rows.append(f"| `{name}` | {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return rows


def marked(text: str) -> str:
    """A docstring's text as Markdown on one line."""
    return re.sub(r"``([^`]*)``", r"`\1`", text).replace("\n", " ")


def json_page() -> str:
    """Every document's fields; a record that several documents share stands at the first."""
    lines = [
        "# JSON documents, field by field",
        "",
        "Written by `python scripts/reference.py` from what `fxscope schema VERB` prints; the rules and examples are in [JSON output](json.md).",
    ]
    said: dict[str, dict[str, Any]] = {}  # by heading
    for verb in VERBS:
        schema = schema_of(verb)
        if schema is None:
            continue
        records = {name: record for name, record in schema.get("$defs", {}).items() if "properties" in record}
        top = records[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
        # Two rooms may call different records by one name.
        titles = {
            name: name if said.get(name, record) == record else f"{name} of {verb}" for name, record in records.items()
        }
        titles |= {name: name for name in schema.get("$defs", {}) if name not in titles}
        lines += ["", f"## fxscope {verb}", "", *fields(top, titles)]
        for name, record in records.items():
            if record is top or titles[name] in said:
                continue
            said[titles[name]] = record
            summary = marked(record.get("description", "").split("\n")[0])
            lines += ["", f"### {titles[name]}", "", *([summary, ""] if summary else []), *fields(record, titles)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both pages."""
    (DOCS / "reference_commands.md").write_text(commands_page(), "utf-8")
    (DOCS / "reference_json.md").write_text(json_page(), "utf-8")


if __name__ == "__main__":
    main()
