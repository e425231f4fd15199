"""What only the whole story of a frame tells: a size that the code fixes again, one that was never allowed to change, a race of threads."""

from __future__ import annotations

import math
import re

from fxscope.diagnosis.context import Context
from fxscope.diagnosis.guards import TWO_SIZES, guarded_source, name_of
from fxscope.diagnosis.loops import loop_around
from fxscope.diagnosis.owner import is_enum, own_constant
from fxscope.diagnosis.program import files_of, static_marks
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.guards import flat
from fxscope.recording.records import ShapeEvent
from fxscope.recording.userline import is_torch_file, is_user_file
from fxscope.source import SourceLine

_LOOP = re.compile(
    r"^\s*(async )?(for|while)\b|\bfor .+ in\b|\b(unbind|split|chunk|zip|enumerate|list|tuple|iter|map)\("
)
_OF_THE_CALL = frozenset({"dynamic-size", "size-zero-one", "grad-mode", "autocast", "train-eval", "none-or-tensor"})
_CLASS = re.compile(r"type=<class '(?:[\w.]*\.)?(\w+)'>")
_LOOKED_AT = 2  # recompiles of a frame whose new entry's guards are read to see what the value has become


def sharpen(context: Context, frame: Frame) -> None:
    """Correct the ids of a frame's changes by its whole story, in place.

    Args:
        context: The recording.
        frame: A frame with all its changes in order; ``values`` need not be filled.
    """
    if any(change.recompile.id.startswith("!") for change in frame.changes):
        for change in frame.changes:
            change.ids = ("compiled-autograd", *change.ids)
        return
    _sharpen_guards(context, frame)
    first_of: dict[tuple[str, int | None, str], str] = {}
    disabled = any(change.guard.kind == "size" for change in frame.changes) and _dynamic_disabled(context, frame)
    for change in frame.changes:
        first, key = change.ids[0], change.what[1:]
        again = key in first_of and _entry_number(change.guard.entry) >= _entry_number(first_of[key])
        if first in ("dynamic-size", "size-zero-one") and change.guard.kind == "size":
            if disabled:
                change.ids = ("dynamic-disabled",)
            elif first == "dynamic-size":
                _sharpen_size(context, frame, change, again=again)
        elif first == "shape-expression" or (change.guard.kind == "number" and again and first.startswith("changing")):
            _specialize(frame, change, _specialized(context, change))
        first_of.setdefault(key, change.recompile.id)
    _sharpen_tied(frame)
    _propagate(frame)
    _sharpen_shared(frame)


def _entry_number(id_: str) -> float:
    """Which entry of its code object a compile id is: an entry older than the first change of a size could not know that it changes.

    A log that does not tell the entry means the newest.
    """
    found = re.search(r"/(\d+)", id_)
    return int(found[1]) if found else math.inf


def _sharpen_size(context: Context, frame: Frame, change: Change, *, again: bool) -> None:
    fixed = _specialized(context, change)
    if fixed is not None:
        _specialize(frame, change, fixed)
    elif again:
        change.ids = ("dynamic-disabled",) if _marked_static(context, change) else ("shape-expression", "dynamic-size")


def _marked_static(context: Context, change: Change) -> bool:
    """A size that changed again and is still no symbol, in a program that makes symbols or marks sizes static."""
    entry = change.recompile.key[: len(change.recompile.key) - len(change.recompile.id)] + change.guard.entry
    wanted = f"{change.guard.source}.size()[{change.dim}]"
    if any(event.kind == "symbol" and event.source == wanted for event in context.shapes.get(entry, [])):
        return False
    return any(static_marks(file) for file in files_of(context))


def _sharpen_guards(context: Context, frame: Frame) -> None:
    """What a guard means in this program: by its text, by the threads, and by what the new entry found in its place."""
    enums: dict[str, bool] = {}
    constants: dict[str, bool] = {}  # by name: a story may have ten thousand changes of one attribute
    for number, change in enumerate(frame.changes):
        guard, lead, looks = change.guard, change.ids[0], number < _LOOKED_AT
        if guard.guard.startswith("Unexpected recompilation"):
            if _in_thread(context, change):
                change.ids = ("thread-race",)
        elif lead == "object-identity" and (kind := _CLASS.search(guard.guard)):
            if kind[1] not in enums:
                files = (frame.file, guard.asked_file or "", *files_of(context))
                enums[kind[1]] = any(is_enum(file, kind[1]) for file in files)
            if enums[kind[1]]:
                change.ids = ("changing-number", "object-identity")
        elif lead == "changing-attribute":
            if change.name not in constants:
                constants[change.name] = own_constant(frame, change)
            if constants[change.name]:
                change.ids = ("shared-code", *(id_ for id_ in change.ids if id_ != "shared-code"))
        elif looks and guard.kind == "number":
            if _tensor_sizes(context, change, guarded_source(guard)) is not None:
                change.ids = ("tensor-type",)
        elif looks and (sizes := TWO_SIZES.match(guard.guard)):
            _two_sizes(context, change, ((sizes[1], int(sizes[2])), (sizes[3], int(sizes[4]))))


def _two_sizes(context: Context, change: Change, sizes: tuple[tuple[str, int], ...]) -> None:
    """Two sizes that were the same are not any more: one of them is 1 (or 0) now, or they only happened to be the same."""
    for name, dim in sizes:
        found = _tensor_sizes(context, change, f"L['{name}']" if name.isidentifier() else name)
        if found is not None and found[dim : dim + 1] and found[dim] in ("0", "1"):
            change.ids, change.name, change.dim = ("size-zero-one", "shape-expression"), name_of(name), dim
            return
    if not change.guard.asked_line:
        change.ids = ("dynamic-size", "shape-expression")  # no line asked: sizes that are equal at first share a symbol


def _in_thread(context: Context, change: Change) -> bool:
    """A thread of the program made this compile."""
    compile_ = context.by_key.get(change.recompile.key)
    return compile_ is not None and any(line.file.endswith("threading.py") for line in compile_.stack)


def _tensor_sizes(context: Context, change: Change, source: str) -> list[str] | None:
    """Sizes (``None`` for a dynamic one) that the new entry guards of a tensor at ``source``; None where there is none."""
    compile_ = context.by_key.get(change.recompile.key)
    for guard in flat(context.recording.guards(compile_) if compile_ is not None else []):
        if guard.type == "TENSOR_MATCH" and guard.source == source:
            sizes = re.search(r"\bsize=\[([^\]]*)\]", guard.expression)
            return [size.strip() for size in sizes[1].split(",")] if sizes else []
    return None


def _sharpen_tied(frame: Frame) -> None:
    """A size that was fixed because another, not yet dynamic, had to be the same: once both are dynamic nothing more comes of it."""
    last = {change.what[1:]: number for number, change in enumerate(frame.changes)}
    for number, change in enumerate(frame.changes):
        own = f"{change.guard.source}.size()[{change.dim}]"
        sizes = f": {change.guard.expected} -> {change.guard.actual}"  # the other has the same sizes, or it is not why
        others = [each for each in change.recompile.pgo if ".size()" in each and each.endswith(sizes)]
        if (
            change.ids[0] == "shape-expression"
            and change.guard.kind == "size"
            and number == last[change.what[1:]]
            and others
            and not any(each.startswith(own) for each in change.recompile.pgo)
        ):
            change.ids, change.line = ("dynamic-size",), None


def _sharpen_shared(frame: Frame) -> None:
    if len(set(frame.places)) > 1 and not is_user_file(frame.file):
        for change in frame.changes:
            # One module called from two lines recompiles for its arguments: nothing that it shares with another.
            if "shared-code" not in change.ids and change.ids[0] not in _OF_THE_CALL:
                # Torch's own wrapper of modules that are compiled one by one: another size is another module's.
                wrapper = is_torch_file(frame.file) and frame.function == "inner"
                other = wrapper and change.ids[0] == "shape-expression"
                change.ids = ("shared-code", *change.ids) if other else (*change.ids, "shared-code")
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
    static = {(change.name, change.dim) for change in frame.changes if change.ids[0] == "dynamic-disabled"}
    for change in frame.changes:
        if (change.name, change.dim) in static and change.ids[0] == "dynamic-size":
            change.ids = ("dynamic-disabled",)
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
    source = guarded_source(change.guard)
    wanted = {source, f"{source}.size()[{change.dim}]"} if change.dim is not None else {source}
    guards = [event for event in events if event.kind == "guard" and event.line is not None]
    for event in events:
        if (
            event.kind == "specialization"
            and event.line is not None
            and any(part in wanted for part in _sources(event))
        ):
            return event
    if change.guard.kind == "number":
        symbols = [event.symbol for event in events if event.kind == "symbol" and event.source == source]
        return next(
            (
                event
                for event in guards
                for symbol in symbols
                if re.match(rf"Eq\(.*\b{re.escape(symbol)}\b", event.expression)
            ),
            None,
        )
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


def _specialize(frame: Frame, change: Change, event: ShapeEvent | None) -> None:
    asked = change.guard.asked_file or ""
    near = event is None or (event.line is not None and event.line.file.endswith(asked.rpartition("/")[2]))
    if asked and near and change.guard.kind == "shape" and is_user_file(asked) and not asked.startswith("_dynamo/"):
        line = change.guard.asked_line or 0
        change.line = SourceLine(
            file=asked, line=line, code=event.line.code if event and event.line and event.line.line == line else ""
        )
    if event is None:
        return
    change.line = change.line or event.line
    lead = "shape-expression"
    if event.kind == "specialization" and event.line is not None:
        loop = event.line if _LOOP.search(event.line.code) else loop_around(frame, change, event.line)
        if loop is not None:
            lead, change.line = "unrolled-loop", loop
    if change.guard.kind == "number" and lead == "shape-expression":
        return  # a plain number stays what it was; the line says where it is used as a constant
    change.ids = (lead, *(id_ for id_ in change.ids if id_ != lead))
