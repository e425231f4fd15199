"""``fxscope diff``: two recordings compared."""

from __future__ import annotations

import re
from typing import Any

import click

from fxscope.cli.newest import newest_recording
from fxscope.errors import CheckFailed, UsageError
from fxscope.words import count

_CONDITIONS = ("new-breaks", "new-recompiles", "new-failures", "new-limit-hits", "changed-graphs", "slower")


@click.command(
    epilog="\b\nExample:\n  fxscope diff before.fxscope after.fxscope --fail-on new-breaks,new-recompiles,slower:10%"
)
@click.argument("first", type=click.Path())
@click.argument("second", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema diff).")
@click.option(
    "--fail-on",
    metavar="WHAT[,WHAT...]",
    help=f"Exit with 1 on: {', '.join(_CONDITIONS)} (slower:10% of compile time).",
)
@click.option("--all", "everything", is_flag=True, help="Show every changed node instead of the first 10 of a graph.")
def command(first: str, second: str | None, as_json: bool, fail_on: str | None, everything: bool) -> None:
    """Compare two recordings: breaks, recompiles, graphs, guards, caches, times.

    Without SECOND: the newest recording in the current folder, which must be newer than FIRST.
    """
    conditions = _conditions(fail_on)
    from fxscope.diagnosis.compare import compare
    from fxscope.recording.recording import open_recording

    before = open_recording(first)
    if second is None:
        second = newest_recording(apart_from=first)
    found = compare(before, open_recording(second))
    if as_json:
        from fxscope.report.document import encode_document

        click.echo(encode_document(found))
    else:
        _print(found, 1 << 30 if everything else 10)
    failed = [name for name, limit in conditions.items() if _failed(found, name, limit)]
    if failed:
        raise CheckFailed(f"{second}: {', '.join(failed)}")


def _conditions(text: str | None) -> dict[str, float]:
    """Condition -> allowed share of slowdown (0.1 for 10 %).

    Raises:
        UsageError: No condition, an unknown one, or a share that is no number.
    """
    found: dict[str, float] = {}
    for part in (text or "").split(","):
        name, _, limit = part.strip().partition(":")
        if not name:
            continue
        if name not in _CONDITIONS:
            raise UsageError(f"--fail-on {name}: unknown; there are {', '.join(_CONDITIONS)}")
        share = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", limit) if limit else None
        if limit and (share is None or name != "slower"):
            raise UsageError(f"--fail-on {part.strip()}: write slower:10% or slower:0.1")
        found[name] = float(share[1]) / (100 if share[2] else 1) if share else 0.1
    if text is not None and not found:
        raise UsageError(f"--fail-on is empty, so nothing would fail; there are {', '.join(_CONDITIONS)}")
    return found


def _failed(found: Any, name: str, limit: float) -> bool:
    before, after = found.totals
    if name == "new-breaks":
        return any(delta.change in ("new", "more") for delta in found.graph_breaks)
    if name == "new-recompiles":
        return any(delta.change in ("new", "more") for delta in found.recompiles)
    if name == "new-failures":
        return bool(after.failures > before.failures)
    if name == "new-limit-hits":
        return bool(after.limit_hits > before.limit_hits)
    if name == "changed-graphs":
        return bool(found.graphs)
    return bool(after.compile_seconds > before.compile_seconds * (1 + limit))


def _say(text: str) -> None:
    from fxscope.report.safe import plain_line

    click.echo(plain_line(text))


def _print(found: Any, most: int) -> None:
    before, after = found.totals
    for name in ("graphs", "graph_breaks", "break_sites", "recompiles", "limit_hits", "failures"):
        a, b = getattr(before, name), getattr(after, name)
        _say(f"{name.replace('_', ' '):16} {a:10} -> {b}{'' if a == b else '   *'}")
    _say(f"{'compile seconds':16} {before.compile_seconds:10.2f} -> {after.compile_seconds:.2f}")
    for title, values in (("versions", found.versions), ("settings", found.settings)):
        if values:
            click.echo(f"\n{title}:")
            for name, (a, b) in values.items():
                unset = "default" if values is found.settings else "unknown"
                a, b = (unset if value is None else value for value in (a, b))
                _say(f"  {name}: {a} -> {b}")
    _print_records(found)
    click.echo(f"\ngraphs: {found.same_graphs} the same, {len(found.graphs)} not")
    for group in _alike(found.graphs):
        if len(group) > 2:
            _print_group(group)
        else:
            for delta in group:
                _print_graph(delta, most)
    for name, parts in found.cache_keys.items():
        click.echo()
        _say(f"cache key of {name} differs:")
        for part in parts[:most]:
            _say(f"  {part[:300]}")


def _print_records(found: Any) -> None:
    if found.graph_breaks:
        click.echo("\ngraph breaks:")
    for delta in found.graph_breaks:
        what = delta.code or delta.cause
        _say(
            f"  {delta.change:6} {delta.site} in {delta.function}: {what} [{delta.cause}] {delta.before} -> {delta.after}"
        )
    if found.recompiles:
        click.echo("\nrecompiles:")
    for delta in found.recompiles:
        where = f"{delta.function} ({delta.file})"
        _say(f"  {delta.change:6} {where}: {delta.what} [{delta.cause}] {delta.before} -> {delta.after}")


def _alike(deltas: list[Any]) -> list[list[Any]]:
    """Graphs of one function that only one of the runs has, together: a function that recompiles has many."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for index, delta in enumerate(deltas):
        single = delta.change not in ("new", "gone") or delta.guards_added or delta.guards_removed
        groups.setdefault((index,) if single else (delta.change, delta.file, delta.function), []).append(delta)
    return list(groups.values())


def _print_group(group: list[Any]) -> None:
    first = group[0]
    keys = [delta.before or delta.after for delta in group]
    shown = ", ".join(keys[:3]) + (f", ... {keys[-1]}" if len(keys) > 3 else "")
    sizes = list(dict.fromkeys(delta.summary for delta in group))
    size = sizes[0] + " each" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    _say(f"  {first.change:7} {first.function} ({first.file}) {count(len(group), 'graph')} ({shown}): {size}")


def _print_graph(delta: Any, most: int) -> None:
    keys = f"{delta.before or '-'} -> {delta.after or '-'}"
    _say(f"  {delta.change:7} {delta.function} ({delta.file}) {keys}: {delta.summary}")
    for line in delta.lines[:most]:
        _say(f"            {line}")
    if len(delta.lines) > most:
        _say(f"            ... and {len(delta.lines) - most} more (--all)")
    for sign, guards in (("+", delta.guards_added), ("-", delta.guards_removed)):
        if guards:
            _say(f"          guards {sign} {', '.join(f'{number} {name}' for name, number in guards.items())}")


def json_schema() -> dict[str, Any]:
    """Schema of ``--json``."""
    import msgspec

    from fxscope.diagnosis.compare import Comparison

    return msgspec.json.schema(Comparison)
