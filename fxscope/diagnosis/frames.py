"""Recompiles gathered per code object, with what changed from entry to entry: the story behind a recompile finding."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from fxscope.diagnosis.closures import closed_over
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.guards import GuardCause, cause_of_guard
from fxscope.diagnosis.sharpen import sharpen
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.guards import flat
from fxscope.recording.records import FailedGuard
from fxscope.recording.userline import is_user_file


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
        sharpen(context, frame)
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
        guards = context.recording.guards(compile_) if compile_ is not None else []
        if any(items.search(guard.expression) for guard in flat(guards)):
            found.add(change.name)
    return found


def _container_name(cause: GuardCause) -> str:
    keys = re.match(r"^(?:list|set|tuple)?\(?dict\.keys\((.+?)\)\)?(?:\[\d+\])?$", cause.name)
    return keys[1] if keys else cause.name
