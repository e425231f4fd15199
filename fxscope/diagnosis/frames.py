"""Recompiles gathered per code object, with what changed from entry to entry: the story behind a recompile finding."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import msgspec

from fxscope.diagnosis.closures import closed_over
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.guards import GuardCause, cause_of_guard
from fxscope.diagnosis.sharpen import sharpen
from fxscope.diagnosis.story import Change, Frame, code_of, plain_function
from fxscope.recording.guards import flat
from fxscope.recording.records import Compile, FailedGuard, Recompile
from fxscope.recording.userline import is_torch_file, is_user_file
from fxscope.source import base_name

# What tells calls of one kind from those of another, and what changes between calls of one kind.
_OF_A_KIND = frozenset({"container-size", "none-or-tensor", "train-eval", "grad-mode", "autocast"})
_WITHIN_A_KIND = frozenset(
    {"dynamic-size", "size-zero-one", "shape-expression", "changing-number", "changing-attribute"}
)
_ENTRIES_READ = 64  # of a story of ten thousand entries each record names them all


def frames(context: Context) -> list[Frame]:
    """Every code object with recompiles or a limit hit."""
    recording = context.recording
    found: dict[tuple[int | None, str, int, str], Frame] = {}
    users: dict[tuple[int | None, str, int, str], Counter[tuple[str, int]]] = defaultdict(Counter)
    uses: dict[str, int] = defaultdict(lambda: 1)  # of each code object, so far

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
        guard, cause = _nearest(recompile, resumed=frame.resumed)
        code, use = code_of(recompile), recompile.id.partition("#")[2]
        uses[code] = max(uses[code], int(use) if use.isdecimal() else 1)
        frame.changes.append(
            Change(
                index=index,
                use=uses[code],
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
        if compile_ is not None and not is_user_file(compile_.file):
            _place_in_library(frame, compile_)
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


def _nearest(recompile: Recompile, *, resumed: bool) -> tuple[FailedGuard, GuardCause]:
    """Why a recompile happened: what failed in the newest entry, or in an older one that was made for calls of the same kind.

    Where calls of two kinds alternate (prefill and decode, training and evaluation), the newest entry is of the other kind, and what
    failed there only says so; in the entry of its own kind something else failed, and that is why this call has no graph.
    """
    first = recompile.failed[0] if recompile.failed else FailedGuard(entry="", guard="")
    cause = cause_of_guard(first, resumed=resumed)
    kind = cause.ids[0]
    if kind in _OF_A_KIND:
        for guard in recompile.failed[1:_ENTRIES_READ]:
            within = cause_of_guard(guard, resumed=resumed)
            if within.ids[0] in _WITHIN_A_KIND:
                return guard, msgspec.structs.replace(within, ids=tuple(dict.fromkeys((*within.ids, kind))))
    return first, cause


def _place_in_library(frame: Frame, compile_: Compile) -> None:
    """Who calls a library's function: the user's function around the last line of the user's, and whether other library code lies between.

    What is compiled itself is called by Dynamo's wrapper and nothing else; behind a graph break torch leaves the library's frames out of
    some stacks, and then only the lines of ``torch.nn`` in between say that the call came from somewhere else.
    """
    # Torch's own wrapper of what is compiled: its arguments are those of the call.
    direct = is_torch_file(compile_.file)
    for number, line in enumerate(reversed(compile_.stack[:-1])):
        if is_user_file(line.file):
            # A script's own lines and a lambda have no name: the library's function has one.
            frame.caller = "" if line.function.startswith("<") else plain_function(line.function)
            return
        if base_name(line.file) == "eval_frame.py":
            direct = direct or number == 0
            frame.inner = frame.inner or not direct
        elif not is_torch_file(line.file):
            frame.inner = True


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
