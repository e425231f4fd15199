"""The report as one self-contained HTML page: no network, everything from the log escaped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.errors import MissingError, UsageError
from fxscope.recording.guards import flat
from fxscope.recording.spans import spans
from fxscope.report.blocks import blocks
from fxscope.report.columns import FEW_RANKS, same_on_ranks
from fxscope.report.safe import plain, plain_line
from fxscope.report.summary import seconds, summary_line
from fxscope.report.tallies import cache_rows, export_of, phase_seconds
from fxscope.report.terminal import describe_guard, describe_step, short_path
from fxscope.report.timeline import make_timeline
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile, Guard

BUDGET = 3_500_000  # characters of graphs, code and guards on one page
# What is worth its place first.
_ORDER = (
    "dynamo",
    "guards",
    "forward",
    "inference",
    "backward",
    "joint",
    "forward.post_grad",
    "backward.post_grad",
    "pre_grad",
    "forward.code",
    "backward.code",
    "symbolic shapes",
    "metrics",
)


class Text(msgspec.Struct, kw_only=True):
    """One folded text of a compile; ``text`` is None where the page has no room for it."""

    title: str
    size: int
    text: str | None


class Entry(msgspec.Struct, kw_only=True):
    """One compile with its texts; ``key`` is its own, or says on how many ranks it is the same."""

    key: str
    row: Any
    texts: list[Text]


def write_html(recording: Recording, file: str | Path) -> int:
    """Write the page; its size in bytes.

    Raises:
        MissingError: jinja2 is not installed.
        UsageError: The file cannot be written.
    """
    page = render_html(recording).encode("utf-8", "replace")
    try:
        Path(file).write_bytes(page)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return len(page)


def render_html(recording: Recording) -> str:
    """The page as text.

    Raises:
        MissingError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingError("report --html needs jinja2: pip install 'fxscope[html]'") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: plain(value) if isinstance(value, str) else value,
    )
    environment.filters.update(count=count, seconds=seconds, short=short_path, plain=plain, line=plain_line)
    environment.filters.update(step=lambda step: plain_line(describe_step(step)))
    entries, left_out = _entries(recording)
    phases = phase_seconds(recording)
    export = export_of(recording)
    return environment.get_template("report.html.j2").render(
        session=recording.session,
        facts=_facts(recording),
        totals=recording.totals,
        summary=summary_line(recording),
        findings=recording.diagnose(),
        breaks=recording.graph_breaks,
        recompiles=[(row, [describe_guard(failed) for failed in row.failed]) for row in recording.recompiles],
        limit_hits=recording.limit_hits,
        failures=recording.failures,
        caches=cache_rows(recording),
        phases=[(name, value, value / (sum(phases.values()) or 1.0)) for name, value in phases.items()],
        entries=entries,
        left_out=left_out,
        timeline=make_timeline(recording),
        unknown=recording.unknown_events(),
        export=export,
        blocks=list(blocks(recording, stacks=True)),
        programs=[plain(recording.text(event)[:BUDGET]) for event in export.programs[:4]] if export else [],
    )


def _facts(recording: Recording) -> list[str]:
    session = recording.session
    facts = [f"torch {session.torch}" if session.torch else "", f"python {session.python}" if session.python else ""]
    facts += [f"{session.processes} processes"] if session.processes > 1 else []
    facts += [f"rank{'s' if len(session.ranks) > 1 else ''} {spans(session.ranks)}"] if session.ranks else []
    facts += [f"exit code {session.exit_code}"] if session.exit_code is not None else []
    return [plain_line(fact) for fact in (*facts, *session.devices) if fact]


def _entries(recording: Recording) -> tuple[list[Entry], int]:
    """Compiles with as many of their texts as the budget allows, and how many texts it did not."""
    wanted: list[tuple[int, Compile, str, int, int]] = []
    made = {
        "guards": lambda row: _guard_lines(recording.guards(row)),
        "metrics": lambda row: _metric_lines(row.metrics),
    }
    shapes = _shape_lines(recording)
    made["symbolic shapes"] = lambda row: "\n".join(shapes[row.key])
    rows = [(row.key, row) for row in recording.compiles]
    if len(recording.session.ranks) > FEW_RANKS:
        rows = same_on_ranks(recording.compiles)
    for _, row in rows:
        wanted += [
            (
                _ORDER.index(text.stage),
                row,
                text.stage + (f" [{text.index}]" if text.index else ""),
                text.size,
                text.event,
            )
            for text in row.graphs
            if text.stage in _ORDER
        ]
        for title, present in (
            ("guards", row.guards),
            ("symbolic shapes", row.key in shapes),
            ("metrics", row.metrics),
        ):
            if present:
                wanted.append((_ORDER.index(title), row, title, 0, -1))
    wanted.sort(key=lambda item: item[0])
    texts: dict[str, list[tuple[int, Text]]] = {}
    spent = left_out = 0
    for order, row, title, size, event in wanted:
        text: str | None = None
        if spent + size <= BUDGET:
            text = plain(recording.text(event) if event >= 0 else made[title](row))
            size = len(text)
            if spent + size > BUDGET:
                text = None
        if text is None:
            left_out += 1
        else:
            spent += size
        texts.setdefault(row.key, []).append((order, Text(title=title, size=size, text=text)))
    entries = [Entry(key=key, row=row, texts=[text for _, text in texts.get(row.key, [])]) for key, row in rows]
    return entries, left_out


def _metric_lines(metrics: dict[str, Any]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in metrics.items())


def _shape_lines(recording: Recording) -> dict[str, list[str]]:
    """Symbolic sizes made, fixed and guarded, by the compile that they belong to."""
    lines: dict[str, list[str]] = {}
    for event in recording.shape_events:
        parts = [
            event.kind,
            event.symbol,
            event.expression,
            event.source and f"from {event.source}",
            event.value and f"= {event.value}",
        ]
        where = f"  # {event.line.site} {event.line.code}" if event.line else ""
        reason = f" ({event.reason})" if event.reason else ""
        lines.setdefault(event.compile_key, []).append(" ".join(part for part in parts if part) + reason + where)
    return lines


def _guard_lines(guards: list[Guard]) -> str:
    """The checks of a tree, one a line, with the line that asked."""
    lines = []
    for guard in flat(guards):
        if guard.type:
            asked = f"  # {guard.asked.site} {guard.asked.code}" if guard.asked else ""
            lines.append(f"{guard.type:<20} {guard.expression}{asked}")
    return "\n".join(lines)
