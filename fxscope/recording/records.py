"""Records of what happened in a recorded program: plain data, no behaviour beyond naming.

Compile ids are strings in PyTorch's own notation: ``0/1`` (frame/compile), ``0/1_1`` (a restarted attempt), ``!2/0/1``
(under compiled autograd), ``0/0#2`` (the id's second use after ``torch._dynamo.reset()``). ``key`` puts ``r1:`` (rank)
or, where several processes share a rank, ``p4242:`` before it, so that it is unique within one recording.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fxscope.source import SourceLine

# "unfinished": the log ends, or so far ends, before the attempt does.
CompileStatus = Literal["ok", "empty", "restarted", "failed", "skipped", "limit", "unfinished"]
Stage = Literal[
    "dynamo",
    "pre_grad",
    "joint",
    "forward",
    "backward",
    "inference",
    "forward.post_grad",
    "backward.post_grad",
    "forward.code",
    "backward.code",
]
STAGES: tuple[str, ...] = Stage.__args__  # type: ignore[attr-defined]


class Session(msgspec.Struct, kw_only=True):
    """The program that ran, as far as the log and ``session.json`` know it.

    Attributes:
        started: Unix seconds of the first event, 0.0 where unknown.
        ended: Unix seconds of the last event.
        state: ``live`` while a writer holds the recording, ``ended`` when it said so, ``unknown`` for foreign logs.
        exit_code: What the program exited with; None while it runs or where nobody knows.
        config: Settings of torch._dynamo and torch._inductor that differ from their defaults, by full name.
        options: What ``fxscope run`` was asked to do beyond watching: ``backend``, ``mode``, ``dynamic``, ``config``, ...
    """

    path: str
    argv: list[str] = msgspec.field(default_factory=list)
    cwd: str | None = None
    torch: str | None = None
    python: str | None = None
    exit_code: int | None = None
    processes: int = 0
    ranks: list[int] = msgspec.field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0
    state: Literal["live", "ended", "unknown"] = "unknown"
    devices: list[str] = msgspec.field(default_factory=list)
    backend: str | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)  # what the reader skipped or could not know, one line each


class GraphText(msgspec.Struct, kw_only=True):
    """One graph (or generated code) of a compile, as printed; the text stays on disk until asked for.

    Attributes:
        stage: One of STAGES.
        name: The event or artifact that carried it.
        index: Which of several texts of the same stage (0-based), e.g. a DDP split child.
        size: Bytes of the text.
    """

    compile_key: str
    stage: str
    name: str
    index: int = 0
    size: int = 0
    event: int = -1  # number of the event in the recording; Recording.text(event) loads it


class Compile(msgspec.Struct, kw_only=True):
    """One attempt to compile one frame.

    Attributes:
        line: First line of the function that was compiled.
        stack: The user's stack at the compile, outermost first.
        nodes: Nodes of the Dynamo graph; None where no graph was made.
        guards: Number of guards of the entry; None where none were logged.
        seconds: Wall-clock seconds of the whole attempt (backend included); None where the log has no metrics.
        phases: Seconds by phase: ``dynamo``, ``aot``, ``inductor``, ``backward`` and what else the log names; disjoint.
        calls: Calls of the compiled entry; None where no counter ran.
        call_seconds: Sampled mean seconds of one call (forward), where launches were timed.
        failure: First line of what went wrong, for status failed, skipped or limit.
        started: Unix seconds.
        metrics: The ``compilation_metrics`` of the log, without its nulls, stacks and the dumps of whole configurations
            (``Recording.metrics`` reads those).
    """

    id: str
    key: str
    attempt: int = 0
    rank: int | None = None
    process: int | None = None
    function: str = ""
    file: str = ""
    line: int = 0
    status: CompileStatus = "ok"
    stack: tuple[SourceLine, ...] = ()
    nodes: int | None = None
    guards: int | None = None
    seconds: float | None = None
    phases: dict[str, float] = msgspec.field(default_factory=dict)
    stages: list[str] = msgspec.field(default_factory=list)
    calls: int | None = None
    call_seconds: float | None = None
    caches: dict[str, str] = msgspec.field(default_factory=dict)  # "fx_graph" / "aot_autograd" -> hit | miss | bypass
    backend: str | None = None
    failure: str | None = None
    restart_reason: str | None = None
    started: float = 0.0
    graphs: list[GraphText] = msgspec.field(default_factory=list)
    inputs: list[dict[str, Any]] = msgspec.field(default_factory=list)  # from fxscope.graph, where we recorded
    metrics: dict[str, Any] = msgspec.field(default_factory=dict)
    user_file: str = (
        ""  # the deepest line of the user's own program: the function itself, or what called into a library
    )
    user_line: int = 0
    user_code: str = ""


class Guard(msgspec.Struct, kw_only=True):
    """One guard of a compiled entry; ``children`` makes the tree of guard managers.

    Attributes:
        type: Dynamo's name, e.g. TENSOR_MATCH, EQUALS_MATCH, DICT_LENGTH; "" for a manager without a check of its own.
        expression: The check as Python text.
        source: What is checked, e.g. ``L['x'].size()[0]``.
        asked: The user's line that asked for it, where the log says.
    """

    type: str
    expression: str
    source: str = ""
    asked: SourceLine | None = None
    depth: int = 0
    children: list[Guard] = msgspec.field(default_factory=list)


class GraphBreak(msgspec.Struct, kw_only=True):
    """All breaks of one kind at one source line.

    Attributes:
        line: The line that broke (may lie in a library); ``user_line`` is the deepest line of the user's own program.
        gb_id: Id in torch's registry of graph breaks, e.g. GB0170; None in older logs.
        kind: Title of the registry entry or of the exception.
        count: Break events at this site, suppressed duplicates, restarts and resumed frames included.
        skipped_frame: The whole frame was given up, not only split.
        stack: The user's stack of the event with most of the user's own lines on it, outermost first.
    """

    site: str
    file: str
    line: int
    function: str = ""
    code: str = ""
    gb_id: str | None = None
    kind: str = ""
    count: int = 1
    compile_ids: list[str] = msgspec.field(default_factory=list)
    compile_keys: list[str] = msgspec.field(default_factory=list)
    user_file: str = ""
    user_line: int = 0
    user_code: str = ""
    reason: str = ""
    explanation: str = ""
    context: str = ""
    hints: list[str] = msgspec.field(default_factory=list)
    skipped_frame: bool = False
    stack: tuple[SourceLine, ...] = ()
    cause: str | None = None
    fix: str | None = None
    events: list[int] = msgspec.field(default_factory=list)


class FailedGuard(msgspec.Struct, kw_only=True):
    """Why one cache entry did not match a call.

    Attributes:
        entry: Id of the cache entry whose guard failed.
        guard: The text as logged.
        source: What was checked, e.g. ``L['x']``.
        kind: size, stride, dtype, device, number, string, none, type, length, keys, identity, grad_mode, global_state, ...
    """

    entry: str
    guard: str
    source: str | None = None
    kind: str = "other"
    expected: str | None = None
    actual: str | None = None
    asked_file: str | None = None
    asked_line: int | None = None
    index: int | None = None  # the dimension, for a size or a stride


class Recompile(msgspec.Struct, kw_only=True):
    """One recompile record of the log: an attempt caused by failed guards.

    Attributes:
        pgo: What automatic dynamism (PGO) marks as dynamic from this compile on: ``L['x'].size()[0]: 4 -> 6``.
    """

    id: str
    key: str
    rank: int | None = None
    function: str = ""
    file: str = ""
    line: int = 0
    outcome: Literal["compiled", "refused"] = "compiled"
    failed: list[FailedGuard] = msgspec.field(default_factory=list)
    cause: str | None = None
    fix: str | None = None
    pgo: list[str] = msgspec.field(default_factory=list)
    started: float = 0.0
    user_file: str = ""  # the user's module or call site where `file` is torch's own wrapper
    user_line: int = 0


class LimitHit(msgspec.Struct, kw_only=True):
    """The recompile limit (or the accumulated one) stopped a frame from being compiled again."""

    function: str
    file: str
    line: int
    limit: str = "recompile_limit"
    value: int | None = None
    id: str = ""
    rank: int | None = None
    started: float = 0.0


class Failure(msgspec.Struct, kw_only=True):
    """A compile that raised: in Dynamo, in the backend, in the backward, by fullgraph or by a constraint."""

    id: str
    phase: Literal["dynamo", "backend", "backward", "fullgraph", "constraint"]
    type: str
    message: str
    file: str = ""
    line: int = 0
    rank: int | None = None
    stack: tuple[SourceLine, ...] = ()
    compile_key: str = ""


class Artifact(msgspec.Struct, kw_only=True):
    """Anything else that an event carried."""

    name: str
    encoding: str
    compile_key: str | None
    size: int
    event: int


class CallTimes(msgspec.Struct, kw_only=True):
    """Sampled times of one compiled callable (seconds), where launches were timed.

    Attributes:
        clock: ``host`` or ``device`` (device events).
    """

    samples: int = 0
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    clock: str = "host"


class Launch(msgspec.Struct, kw_only=True):
    """How often one compiled entry ran, as counted last. A running total of the process, flushed every second or two.

    Attributes:
        graph: Number of the graph in its process, as in ``fxscope.graph``.
        process: Who called; another process than the one that compiled where a forked child did. 0 where unknown.
        at: Unix seconds of the count.
    """

    compile_key: str
    graph: int
    calls: int
    process: int = 0
    at: float = 0.0
    forward: CallTimes | None = None
    backward: CallTimes | None = None


class CacheEvent(msgspec.Struct, kw_only=True):
    """One look into a compile cache.

    Attributes:
        cache: ``fx_graph``, ``aot_autograd``, ``precompile`` or ``dynamo``.
        reason: Why it was bypassed or missed, where the log says.
    """

    cache: str
    outcome: str  # hit | miss | bypass
    reason: str | None
    compile_key: str | None
    event: int


class ShapeEvent(msgspec.Struct, kw_only=True):
    """A symbolic size made, fixed or guarded.

    Attributes:
        kind: ``symbol`` (created), ``specialization`` (fixed to a value) or ``guard``.
        symbol: e.g. ``s77``; "" for a guard.
        source: e.g. ``L['x'].size()[0]``; "" for a guard.
        value: The hint of a new symbol, or the value that it was fixed to.
        expression: Of a guard, e.g. ``Eq(s77, 3)``.
        line: The user's line that caused it.
        reason: As logged, for a specialization.
    """

    kind: Literal["symbol", "specialization", "guard"]
    compile_key: str
    symbol: str = ""
    source: str = ""
    value: str = ""
    expression: str = ""
    line: SourceLine | None = None
    reason: str = ""


class Totals(msgspec.Struct, kw_only=True):
    """The counts that every front door shows. ``compile_seconds`` is wall-clock."""

    frames: int = 0
    compiles: int = 0
    graphs: int = 0
    graph_breaks: int = 0
    break_sites: int = 0
    recompiles: int = 0
    limit_hits: int = 0
    failures: int = 0
    compile_seconds: float = 0.0
    events: int = 0
    unknown_events: int = 0
