"""What one process compiled, small enough that a thousand of them fit in memory: the unit of every comparison of ranks."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.recording.metrics import number
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Artifact, Compile

_COLLECTIVE = re.compile(r"(?:torch\.ops\.)?_?(_?c10d_functional\.\w+)(?:\.\w+)?\(")
_NAMESPACE = b"c10d_functional"
_SCHEDULE = "inductor_collective_schedule"
_RUNTIME = "inductor_runtime_and_tensor_meta"
_EXECUTION = "graph_execution"


class RankCompile(msgspec.Struct, kw_only=True):
    """One attempt, as far as other ranks matter.

    Attributes:
        started: Unix seconds by that machine's clock.
        seconds: Wall-clock; 0.0 where the log has no metrics.
        reason: Text of the failed guard that made it compile again, "" for a first compile.
    """

    id: str
    function: str
    file: str
    line: int
    status: str
    started: float
    seconds: float
    reason: str = ""


class RankSummary(msgspec.Struct, kw_only=True):
    """One process of a run.

    Attributes:
        log: Path of its log.
        rank: None for a process that is no rank.
        host: Name of its machine, where our recorder told it.
        torch: Its own version of torch.
        cut: Its log is unreadable or ends in the middle of an event, so that what it lacks may have happened.
        closed: Whether its recorder told its end, which one that was killed or still runs has not; None where none of ours wrote.
        last: Unix seconds of the last event of its log.
        caches: ``"0/0 fx_graph miss"`` in order.
        collectives: ``(compile id, op)`` in the order of the schedules, waits included.
        missing_waits: Compile id to how many collectives no ``wait_tensor`` follows.
        execution: Order in which the graphs ran, where the program logged it.
        tensors: Compile id to a digest of the outputs' shapes, strides and dtypes.
        runtimes: Compile id to Inductor's own estimate of its run time, in nanoseconds: modelled, not measured.
        break_sites: ``"train.py:31 Data-dependent branching"`` to count.
        calls: Compile id to calls, where they were counted.
        call_seconds: Compile id to the sampled mean time of one call, where launches were timed: measured.
    """

    log: str
    rank: int | None
    process: int | None
    host: str | None = None
    torch: str | None = None
    cut: bool = False
    closed: bool | None = None
    last: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    events: int = 0
    compiles: list[RankCompile] = msgspec.field(default_factory=list)
    caches: list[str] = msgspec.field(default_factory=list)
    collectives: list[tuple[str, str]] = msgspec.field(default_factory=list)
    missing_waits: dict[str, int] = msgspec.field(default_factory=dict)
    execution: list[str] = msgspec.field(default_factory=list)
    tensors: dict[str, str] = msgspec.field(default_factory=dict)
    runtimes: dict[str, float] = msgspec.field(default_factory=dict)
    break_sites: dict[str, int] = msgspec.field(default_factory=dict)
    calls: dict[str, int] = msgspec.field(default_factory=dict)
    call_seconds: dict[str, float] = msgspec.field(default_factory=dict)
    recompiles: int = 0
    limit_hits: int = 0
    failures: int = 0
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def name(self) -> str:
        """``rank 3``, or ``process 4242`` for one that has no rank."""
        return f"rank {self.rank}" if self.rank is not None else f"process {self.process}"

    @property
    def bare_notes(self) -> list[str]:
        """The notes without the log's own path, which whoever prints them has said."""
        return [note.replace(f"{self.log}: ", "").replace(f"{self.log} ", "") for note in self.notes]


def summarize(recording: Recording) -> list[RankSummary]:
    """One summary per process that compiled, in order of rank."""
    writers = {process.prefix: (process, log) for process, log in recording.writers()}
    made: dict[str, RankSummary] = {}
    of_key: dict[str, RankSummary] = {}
    for compile_ in recording.compiles:
        prefix = compile_.key.removesuffix(compile_.id)
        if prefix not in made:
            process, log = writers[prefix]
            made[prefix] = RankSummary(
                log=log.source.path,
                rank=compile_.rank,
                process=compile_.process,
                host=process.host,
                torch=process.torch,
                cut=log.took_torn_tail,
                closed=process.closed,
                last=process.clock.unix(log.when(len(log) - 1)),
            )
        of_key[compile_.key] = made[prefix]
    reasons = {recompile.key: recompile for recompile in recording.recompiles}
    for compile_ in recording.compiles:
        summary = of_key[compile_.key]
        recompile = reasons.get(compile_.key)
        _add_compile(summary, compile_, recompile.failed[0].guard if recompile and recompile.failed else "")
    ids = {compile_.key: compile_.id for compile_ in recording.compiles}
    for cache in recording.cache_events:
        if cache.compile_key in of_key:
            of_key[cache.compile_key].caches.append(f"{ids[cache.compile_key]} {cache.cache} {cache.outcome}")
    for artifact in recording.artifacts:
        if artifact.name in (_SCHEDULE, _RUNTIME, _EXECUTION) and artifact.compile_key in of_key:
            _add_artifact(recording, of_key[artifact.compile_key], ids[artifact.compile_key], artifact)
    _collectives_from_graphs(recording, of_key)
    for row in recording.graph_breaks:
        for key in row.compile_keys:
            if key in of_key:
                text = f"{row.site} {row.kind}"
                of_key[key].break_sites[text] = of_key[key].break_sites.get(text, 0) + 1
    for failure in recording.failures:
        if failure.compile_key in of_key:
            of_key[failure.compile_key].failures += 1
    for summary in made.values():
        _count_missing_waits(summary)
        summary.events = recording.totals.events if len(made) == 1 else 0
        summary.notes = list(recording.session.notes) if len(made) == 1 else []
    return sorted(made.values(), key=lambda s: (s.rank is None, s.rank or 0, s.process or 0))


def _add_compile(summary: RankSummary, compile_: Compile, reason: str) -> None:
    seconds = compile_.seconds or 0.0
    summary.compiles.append(
        RankCompile(
            id=compile_.id,
            function=compile_.function,
            file=compile_.file,
            line=compile_.line,
            status=compile_.status,
            started=compile_.started,
            seconds=seconds,
            reason=reason,
        )
    )
    if compile_.started:
        summary.started = min(summary.started or compile_.started, compile_.started)
        summary.ended = max(summary.ended, compile_.started + seconds)
    if reason and compile_.status != "limit":
        summary.recompiles += 1
    summary.limit_hits += compile_.status == "limit"
    if compile_.calls is not None:
        summary.calls[compile_.id] = compile_.calls
    if compile_.call_seconds is not None:
        summary.call_seconds[compile_.id] = compile_.call_seconds


def _add_artifact(recording: Recording, summary: RankSummary, id_: str, artifact: Artifact) -> None:
    try:
        payload = decode_json(recording.text(artifact.event).encode())
    except BadEnvelope as error:
        summary.notes.append(f"{id_}: {artifact.name} cannot be read: {error}")
        return
    if artifact.name == _SCHEDULE and isinstance(payload, list):
        summary.collectives += [(id_, _short(str(op))) for op in payload]
    elif artifact.name == _EXECUTION and isinstance(payload, dict):
        summary.execution += [str(_graph_name(step)) for step in _list(payload.get("graph_execution_order"))]
    elif artifact.name == _RUNTIME and isinstance(payload, dict):
        import hashlib  # few programs log this

        ops = [op for op in _list(payload.get("ops")) if isinstance(op, dict)]
        digest = hashlib.sha256(msgspec.json.encode([op.get("outputs") for op in ops])).hexdigest()[:12]
        summary.tensors[id_] = digest
        summary.runtimes[id_] = sum(number(op.get("estimated_runtime_ns")) or 0.0 for op in ops)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _graph_name(step: Any) -> Any:
    return step.get("compile_id", step.get("graph_id", step)) if isinstance(step, dict) else step


def _short(op: str) -> str:
    """``torch.ops._c10d_functional.all_reduce_.default`` -> ``all_reduce_``."""
    parts = op.removeprefix("torch.ops.").split(".")
    return parts[1] if len(parts) > 1 else op


def _collectives_from_graphs(recording: Recording, of_key: dict[str, RankSummary]) -> None:
    """Read the order of collectives off the printed graphs of compiles for which Inductor logged no schedule."""
    scheduled = {a.compile_key for a in recording.artifacts if a.name == _SCHEDULE}
    for compile_ in recording.compiles:
        if compile_.key in scheduled or (compile_.status == "unfinished" and of_key[compile_.key].cut):
            continue
        graphs = [g for g in compile_.graphs if g.stage.endswith("post_grad")]
        graphs = graphs or [g for g in compile_.graphs if g.stage in ("forward", "backward", "inference")]
        for graph in graphs or [g for g in compile_.graphs if g.stage == "dynamo"]:
            # Searching for the pattern itself costs as much as reading the whole log.
            if recording.mentions(graph.event, _NAMESPACE):
                ops = _COLLECTIVE.findall(recording.text(graph.event))
                of_key[compile_.key].collectives += [(compile_.id, op.split(".")[-1]) for op in ops]


def _count_missing_waits(summary: RankSummary) -> None:
    started: Counter[str] = Counter()
    waited: Counter[str] = Counter()
    for id_, op in summary.collectives:
        (waited if op == "wait_tensor" else started)[id_] += 1
    summary.missing_waits = {id_: count - waited[id_] for id_, count in started.items() if count > waited[id_]}
