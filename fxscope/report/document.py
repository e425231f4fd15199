"""The JSON of ``fxscope report --json``: what scripts rely on, as typed records from which its schema is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from fxscope.recording.export import ExportReport
from fxscope.recording.provenance import Provenance, has_provenance, read_provenance
from fxscope.recording.records import FailedGuard, Session, Totals
from fxscope.recording.vllm import VllmCompile, read_vllm
from fxscope.report.ranks import RanksReport, ranks_report
from fxscope.report.safe import escape_json
from fxscope.report.tallies import CacheRow, cache_rows, export_of, phase_seconds

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording

_Row = TypeVar("_Row", bound=msgspec.Struct)


class CompileRow(msgspec.Struct, kw_only=True):
    """One attempt of one compile. ``line`` is the function's first line."""

    id: str
    key: str
    attempt: int
    rank: int | None
    process: int | None
    function: str
    file: str
    line: int
    status: Literal["ok", "empty", "restarted", "failed", "skipped", "limit", "unfinished"]
    nodes: int | None
    guards: int | None
    seconds: float | None
    phases: dict[str, float]
    stages: list[str]
    calls: int | None
    call_seconds: float | None
    caches: dict[str, str]
    backend: str | None
    failure: str | None
    restart_reason: str | None
    started: float
    user_file: str
    user_line: int


class BreakRow(msgspec.Struct, kw_only=True):
    """All breaks of one kind at one line."""

    site: str
    file: str
    line: int
    function: str
    code: str
    gb_id: str | None
    kind: str
    count: int
    compile_ids: list[str]
    compile_keys: list[str]
    user_file: str
    user_line: int
    user_code: str
    reason: str
    explanation: str
    hints: list[str]
    skipped_frame: bool
    cause: str | None
    fix: str | None


class RecompileRow(msgspec.Struct, kw_only=True):
    """One recompile record of the log. ``line`` is the function's first line; ``pgo`` what automatic dynamism marks as dynamic from it on."""

    id: str
    key: str
    rank: int | None
    function: str
    file: str
    line: int
    user_file: str
    user_line: int
    outcome: Literal["compiled", "refused"]
    failed: list[FailedGuard]
    cause: str | None
    fix: str | None
    pgo: list[str]


class LimitRow(msgspec.Struct, kw_only=True):
    """A frame that ran into the recompile limit."""

    id: str
    rank: int | None
    function: str
    file: str
    line: int
    limit: str
    value: int | None


class FailureRow(msgspec.Struct, kw_only=True):
    """A compile that raised."""

    id: str
    key: str
    rank: int | None
    phase: Literal["dynamo", "backend", "backward", "fullgraph", "constraint"]
    type: str
    message: str
    file: str
    line: int


class ProvenanceRow(msgspec.Struct, kw_only=True):
    """Which kernels of one compile came from which nodes, both ways.

    Attributes:
        maps: One for each piece of generated code.
    """

    key: str
    maps: list[Provenance]


class LinkRow(msgspec.Struct, kw_only=True):
    """A link that the program logged."""

    id: str | None
    name: str
    url: str


class ReportDocument(msgspec.Struct, kw_only=True):
    """Everything that ``fxscope report`` shows."""

    schema: Literal["fxscope.report/1"] = "fxscope.report/1"
    session: Session
    totals: Totals
    compiles: list[CompileRow]
    graph_breaks: list[BreakRow]
    recompiles: list[RecompileRow]
    limit_hits: list[LimitRow]
    failures: list[FailureRow]
    caches: list[CacheRow]
    phases: dict[str, float]  # seconds of all compiles by phase
    unknown_events: dict[str, int]
    export: ExportReport | None  # what torch.export logged; null where nothing was exported
    ranks: RanksReport | None  # what differs between ranks; null where there are fewer than two
    provenance: list[ProvenanceRow]
    vllm: list[VllmCompile]
    links: list[LinkRow]


def report_document(recording: Recording) -> ReportDocument:
    """What ``fxscope report --json`` prints, of one recording."""
    return ReportDocument(
        session=recording.session,
        totals=recording.totals,
        compiles=[_take(row, CompileRow) for row in recording.compiles],
        graph_breaks=[_take(row, BreakRow) for row in recording.graph_breaks],
        recompiles=[_take(row, RecompileRow) for row in recording.recompiles],
        limit_hits=[_take(row, LimitRow) for row in recording.limit_hits],
        failures=[_take(row, FailureRow, key=row.compile_key) for row in recording.failures],
        caches=cache_rows(recording),
        phases=phase_seconds(recording),
        unknown_events=recording.unknown_events(),
        export=export_of(recording),
        ranks=ranks_report(recording),
        provenance=provenance_rows(recording),
        vllm=read_vllm(recording),
        links=link_rows(recording),
    )


def provenance_rows(recording: Recording) -> list[ProvenanceRow]:
    """The maps of every compile that has any."""
    keys = has_provenance(recording)
    rows = [
        ProvenanceRow(key=row.key, maps=read_provenance(recording, row))
        for row in recording.compiles
        if row.key in keys
    ]
    return [row for row in rows if row.maps]


def link_rows(recording: Recording) -> list[LinkRow]:
    """What ``link`` events name."""
    rows = []
    for artifact in recording.artifacts:
        if artifact.name.startswith("link"):
            event = recording.event(artifact.event)
            if event.name == "link" and isinstance(event.value, dict):
                name, url = str(event.value.get("name") or "link"), str(event.value.get("url") or "")
                rows.append(LinkRow(id=artifact.compile_key, name=name, url=url))
    return rows


def encode_document(document: msgspec.Struct | dict[str, Any]) -> str:
    """A document as indented JSON that is harmless to print; text that no output can encode is escaped."""
    try:
        raw = msgspec.json.encode(document)
    except UnicodeEncodeError:
        import json

        built: dict[str, Any] = msgspec.to_builtins(document)
        return json.dumps(built, indent=1, ensure_ascii=True)
    return escape_json(msgspec.json.format(raw, indent=1).decode())


def _take(row: Any, kind: type[_Row], **more: Any) -> _Row:
    """A row of ``kind`` from the fields of the same name."""
    own = {name: getattr(row, name) for name in kind.__struct_fields__ if name not in more}
    return kind(**own, **more)
