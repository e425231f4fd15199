"""Torch's registry of graph breaks, each id with its cause family and advice. Tables: graph_breaks.json, advice.toml."""

from __future__ import annotations

import difflib
from functools import lru_cache
from pathlib import Path

import msgspec

from fxscope.diagnosis.findings import load_toml


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One id of the registry.

    Attributes:
        id: e.g. GB0170; "" for a break without one.
        title: Torch's title of the break.
        cause: Finding id of its cause family.
        advice: Key of the advice table.
    """

    id: str
    title: str
    cause: str
    advice: str


UNKNOWN = Entry(id="", title="", cause="unsupported-builtin", advice="unsupported")


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Every known id."""
    raw = msgspec.json.decode(
        (Path(__file__).parent / "graph_breaks.json").read_bytes(), type=dict[str, tuple[str, str, str]]
    )
    return {id_: Entry(id=id_, title=title, cause=cause, advice=advice) for id_, (title, cause, advice) in raw.items()}


@lru_cache(maxsize=1)
def _by_title() -> dict[str, Entry]:
    return {entry.title.lower(): entry for entry in entries().values()}


@lru_cache(maxsize=1024)
def lookup(gb_id: str | None, title: str) -> Entry:
    """The entry of an id, or of the nearest title for ids that this version does not know; ``UNKNOWN`` where none is near."""
    if gb_id and (found := entries().get(gb_id.upper())):
        return found
    lowered = title.strip().lower()
    if not lowered:
        return UNKNOWN
    if found := _by_title().get(lowered):
        return found
    for words, id_ in _OLD_TITLES:
        if words in lowered:
            return entries()[id_]
    near = difflib.get_close_matches(lowered, _by_title(), 1, 0.7)
    return _by_title()[near[0]] if near else UNKNOWN


# How versions before the registry worded the breaks that people meet most.
_OLD_TITLES = (
    ("generic_jump", "GB0170"),
    ("data dependent control flow", "GB0170"),
    ("dynamic control flow", "GB0170"),
    ("tensor.item", "GB0124"),
    ("data dependent operator", "GB0033"),
    ("dynamic shape operator", "GB0036"),
    ("logger not supported", "GB0291"),
    ("call_function builtin", "GB0059"),
    ("builtin: print", "GB0059"),
    ("call_method userdefinedobjectvariable", "GB0156"),
    ("'skip function", "GB0007"),
    ("skip function", "GB0007"),
    ("call to skipped function", "GB0007"),
    ("inlining disallowed", "GB0008"),
    ("in skip_files", "GB0008"),
    ("torch._dynamo.disable", "GB0098"),
    ("setup_with", "GB0142"),
    ("rnn", "GB0014"),
    ("tensor.backward", "GB0123"),
    ("graph break under genericcontextwrapping", "GB0066"),
)


@lru_cache(maxsize=1)
def _advice() -> dict[str, str]:
    return load_toml("advice.toml")["advice"]


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return {"name": "this call", "method": "info"}.get(key, "")


def advice(key: str, **names: str) -> str:
    """The text of one advice with the user's names in it.

    Args:
        key: Key of advice.toml.
        names: ``name``, ``code``, ``method``, ``detail``; what is missing reads neutral.
    """
    return _advice()[key].format_map(_Blank({name: text for name, text in names.items() if text})).strip()
