"""Recompiles gathered per code object, with what changed from entry to entry: the story behind a recompile finding."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import msgspec

from fxscope.diagnosis.closures import closed_over
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.guards import GuardCause, cause_of_guard
from fxscope.recording.records import FailedGuard, LimitHit, Recompile, ShapeEvent
from fxscope.recording.userline import is_user_file
from fxscope.source import SourceLine

_LOOP = re.compile(
    r"^\s*(async )?(for|while)\b|\bfor .+ in\b|\b(unbind|split|chunk|zip|enumerate|list|tuple|iter|map)\("
)
_OF_THE_CALL = frozenset({"dynamic-size", "size-zero-one", "grad-mode", "autocast", "train-eval", "none-or-tensor"})
_RESUME = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")


class Change(msgspec.Struct, kw_only=True):
    """Why one recompile happened.

    Attributes:
        index: Position in ``recording.recompiles``.
        ids: Finding ids, sharpened by the frame's whole story.
        line: The user's line that fixed a size, where the log says.
    """

    index: int
    recompile: Recompile
    guard: FailedGuard
    ids: tuple[str, ...]
    name: str
    dim: int | None = None
    line: SourceLine | None = None


class Frame(msgspec.Struct, kw_only=True):
    """One code object that was compiled more than once.

    Attributes:
        place: File and line that the user can change: the function, or the call into a library.
        places: All such places; more than one means that unrelated objects share the code.
        limit: The limit hit, None where it was not.
        strings: Names of containers whose items are known to be strings.
        values: The values that were guarded for, by name, in order, each once.
        refused: A recompile was refused.
    """

    function: str
    file: str
    line: int
    place: tuple[str, int]
    places: list[tuple[str, int]] = msgspec.field(default_factory=list)
    changes: list[Change] = msgspec.field(default_factory=list)
    limit: LimitHit | None = None
    limit_index: int = -1
    seconds: float = 0.0
    rank: int | None = None
    strings: frozenset[str] = frozenset()
    values: dict[str, list[str]] = msgspec.field(default_factory=dict)
    refused: bool = False

    @property
    def resumed(self) -> bool:
        """The frame resumes behind a graph break."""
        return bool(_RESUME.match(self.function))

    @property
    def name(self) -> str:
        """The function's name as its user knows it."""
        resumed = _RESUME.match(self.function)
        return resumed[1] if resumed else self.function

    def settle(self) -> None:
        """Fill ``values`` and ``refused`` from ``changes``, in one pass: a story may have ten thousand."""
        values: dict[str, dict[str, None]] = defaultdict(dict)
        for change in self.changes:
            if change.guard.expected is not None:
                values[change.name][change.guard.expected] = None
        self.values = {name: list(each) for name, each in values.items()}
        self.refused = any(change.recompile.outcome == "refused" for change in self.changes)

    @property
    def limited(self) -> bool:
        """The frame ran into the recompile limit."""
        return self.limit is not None or self.refused

    @property
    def storm(self) -> bool:
        """Recompiles that reach the limit, or that grow: five or more of one cause."""
        if self.limited:
            return True
        counts = Counter((change.ids[0], change.name, change.dim) for change in self.changes)
        return bool(counts) and max(counts.values()) >= 5


def frames(context: Context) -> list[Frame]:
    """Every code object with recompiles or a limit hit."""
    recording = context.recording
    found: dict[tuple[int | None, str, int, str], Frame] = {}
    users: dict[tuple[int | None, str, int, str], Counter[tuple[str, int]]] = defaultdict(Counter)

    def frame_of(rank: int | None, file: str, line: int, function: str) -> Frame:
        key = (rank, file, line, function)
        if key not in found:
            found[key] = Frame(function=function, file=file, line=line, place=(file, line), rank=rank)
        return found[key]

    for index, recompile in enumerate(recording.recompiles):
        frame = frame_of(recompile.rank, recompile.file, recompile.line, recompile.function)
        if is_user_file(recompile.file):
            users[recompile.rank, recompile.file, recompile.line, recompile.function][
                recompile.file, recompile.line
            ] += 1
        elif recompile.user_line:
            users[recompile.rank, recompile.file, recompile.line, recompile.function][
                recompile.user_file, recompile.user_line
            ] += 1
        guard = recompile.failed[0] if recompile.failed else FailedGuard(entry="", guard="")
        cause = cause_of_guard(guard, resumed=frame.resumed)
        frame.changes.append(
            Change(
                index=index,
                recompile=recompile,
                guard=guard,
                ids=cause.ids,
                name=closed_over(guard) or _container_name(cause),
                dim=cause.dim,
            )
        )
        compile_ = context.by_key.get(recompile.key)
        if compile_ is not None and compile_.seconds and recompile.outcome == "compiled":
            frame.seconds += compile_.seconds
    for index, hit in enumerate(recording.limit_hits):
        frame = frame_of(hit.rank, hit.file, hit.line, hit.function)
        frame.limit, frame.limit_index = hit, index
    for key, frame in found.items():
        frame.strings = frozenset(_of_strings(context, frame))
        if users[key]:
            frame.places = [place for place, _ in users[key].most_common()]
            frame.place = frame.places[0]
        _sharpen(context, frame)
        frame.settle()
    return list(found.values())


def _of_strings(context: Context, frame: Frame) -> set[str]:
    """Containers whose length changed and whose items some entry of the function compares with strings."""
    found: set[str] = set()
    looked: set[str] = set()
    for change in frame.changes:
        if change.ids[0] != "container-size" or change.name in looked or not change.guard.source:
            continue
        looked.add(change.name)
        compile_ = context.by_key.get(change.recompile.key)
        items = re.compile(rf"{re.escape(change.guard.source)}\[[^\]]+\] == '")
        waiting = list(context.recording.guards(compile_)) if compile_ is not None else []
        while waiting:
            guard = waiting.pop()
            if items.search(guard.expression):
                found.add(change.name)
                break
            waiting.extend(guard.children)
    return found


def _container_name(cause: GuardCause) -> str:
    keys = re.match(r"^(?:list|set|tuple)?\(?dict\.keys\((.+?)\)\)?(?:\[\d+\])?$", cause.name)
    return keys[1] if keys else cause.name


def _sharpen(context: Context, frame: Frame) -> None:
    """Tell dynamic sizes from sizes that cannot become dynamic, by what happened to the same size before."""
    if any(change.recompile.id.startswith("!") for change in frame.changes):
        for change in frame.changes:
            change.ids = ("compiled-autograd", *change.ids)
        return
    seen: Counter[tuple[str, int | None]] = Counter()
    disabled = any(change.guard.kind == "size" for change in frame.changes) and _dynamic_disabled(context, frame)
    for change in frame.changes:
        first, key = change.ids[0], (change.name, change.dim)
        if first in ("dynamic-size", "size-zero-one") and change.guard.kind == "size":
            if disabled:
                change.ids = ("dynamic-disabled",)
            elif first == "dynamic-size":
                _sharpen_size(context, change, seen[key])
        elif first == "shape-expression" or (
            change.guard.kind == "number" and seen[key] >= 1 and first.startswith("changing")
        ):
            _specialize(change, _specialized(context, change))
        seen[key] += 1
    _propagate(frame)
    _sharpen_shared(frame)


def _sharpen_size(context: Context, change: Change, before: int) -> None:
    fixed = _specialized(context, change)
    if fixed is not None:
        _specialize(change, fixed)
    elif before:
        change.ids = ("shape-expression", "dynamic-size")


def _sharpen_shared(frame: Frame) -> None:
    if len(set(frame.places)) > 1 and not is_user_file(frame.file):
        for change in frame.changes:
            # One module called from two lines recompiles for its arguments: nothing that it shares with another.
            if "shared-code" not in change.ids and change.ids[0] not in _OF_THE_CALL:
                change.ids = (*change.ids, "shared-code")
    elif re.fullmatch(r"_?(wrapper|wrapped\w*|inner|_fn|decorate_context|decorated)", frame.function) and is_user_file(
        frame.file
    ):
        for change in frame.changes:
            if change.ids[0] == "object-identity":
                change.ids = ("shared-code", "object-identity")


def _propagate(frame: Frame) -> None:
    """The first recompile of a size that the code fixes looks like any other; the later ones tell."""
    loops = {
        (change.name, change.dim): change
        for change in frame.changes
        if change.ids[0] in ("unrolled-loop", "shape-expression") and change.line
    }
    for change in frame.changes:
        later = loops.get((change.name, change.dim))
        if later is not None and change.ids[0] in ("dynamic-size", "changing-number", "changing-attribute"):
            change.ids, change.line = (later.ids[0], *(id_ for id_ in change.ids if id_ != later.ids[0])), later.line


def _dynamic_disabled(context: Context, frame: Frame) -> bool:
    for change in frame.changes:
        config = context.dynamo_config(context.by_key.get(change.recompile.key))
        if config:
            return config.get("automatic_dynamic_shapes") is False or config.get("dynamic_shapes") is False
    return False


def _specialized(context: Context, change: Change) -> ShapeEvent | None:
    """The event by which the entry that this change invalidated had its size (or number) fixed."""
    prefix = change.recompile.key[: len(change.recompile.key) - len(change.recompile.id)]
    events = context.shapes.get(prefix + change.guard.entry, [])
    source = change.guard.source or ""
    wanted = {source, f"{source}.size()[{change.dim}]"} if change.dim is not None else {source}
    guards = [event for event in events if event.kind == "guard" and event.line is not None]
    for event in events:
        if (
            event.kind == "specialization"
            and event.line is not None
            and any(part in wanted for part in _sources(event))
        ):
            return event
    if change.guard.kind == "shape":
        numbers = set(re.findall(r"\d+", re.sub(r"\[\d+\]", "", change.guard.guard)))
        symbols = [
            event.symbol for event in events if event.kind == "symbol" and source.startswith(event.source or "?")
        ]
        guards = [
            event
            for event in guards
            if any(re.search(rf"\b{re.escape(symbol)}\b", event.expression) for symbol in symbols)
        ]
        # Torch prints the guard with sources, the event with symbols: the numbers in both tell which event it was.
        return max(
            guards, key=lambda event: len(numbers & set(re.findall(r"(?<![a-z])\d+", event.expression))), default=None
        )
    return None


def _sources(event: ShapeEvent) -> list[str]:
    return re.findall(r"L\[[^,\s]+", event.source.replace('"', "'")) or [event.source]


def _specialize(change: Change, event: ShapeEvent | None) -> None:
    asked = change.guard.asked_file or ""
    near = event is None or (event.line is not None and event.line.file.endswith(asked.rpartition("/")[2]))
    if asked and near and change.guard.kind == "shape" and is_user_file(asked) and not asked.startswith("_dynamo/"):
        line = change.guard.asked_line or 0
        change.line = SourceLine(
            file=asked, line=line, code=event.line.code if event and event.line and event.line.line == line else ""
        )
    if event is None:
        return
    code = event.line.code if event.line else ""
    change.line = change.line or event.line
    lead = "unrolled-loop" if _LOOP.search(code) and event.kind == "specialization" else "shape-expression"
    if change.guard.kind == "number" and lead == "shape-expression":
        return  # a plain number stays what it was: the line that uses it as a shape says no more
    change.ids = (lead, *(id_ for id_ in change.ids if id_ != lead))
