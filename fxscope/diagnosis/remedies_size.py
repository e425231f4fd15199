"""Remedies for recompiles by size."""

from __future__ import annotations

import re

import msgspec

from fxscope.diagnosis.guards import CROSSING, MARKED, TWO_SIZES
from fxscope.diagnosis.program import static_marks
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.records import FailedGuard
from fxscope.source import short_path


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """Advice for one cause.

    Attributes:
        fix: For people.
        change: What ``fxscope try --what`` can do without an edit, "" for nothing.
    """

    fix: str
    change: str = ""


def argument_of(name: str) -> str:
    """What the user can write for an argument: its name, its key as a keyword, an item of it; "x" for what has none."""
    name = re.sub(r"^kwargs\['(\w+)'\]", r"\1", name)
    return name if re.fullmatch(r"[A-Za-z_]\w*(\.\w+|\[\d+\]|\['\w+'\])*", name) else "x"


def _shrank(guard: FailedGuard) -> bool:
    """Both sizes are known, and the new one is smaller."""
    sizes = [text for text in (guard.actual, guard.expected) if text is not None and re.fullmatch(r"\d{1,18}", text)]
    return len(sizes) == 2 and int(sizes[0]) < int(sizes[1])


def dynamic_size(frame: Frame, change: Change) -> Remedy:
    """A size that became dynamic."""
    name, dim = change.name or "x", change.dim if change.dim is not None else 0
    argument = argument_of(name)
    sizes = f"{change.guard.expected} -> {change.guard.actual}"
    if MARKED.search(change.guard.guard):
        return Remedy(
            fix=(
                f"{change.name or 'A tensor'} is marked (mark_dynamic, mark_unbacked, mark_static) in some calls and not in others, which is a graph each: mark it before every call, "
                "the first one as well, or in none."
            )
        )
    if TWO_SIZES.match(change.guard.guard):
        return Remedy(
            fix=(
                f"No line asks for {change.guard.guard}: the two sizes were equal in the first call, so torch gave them one symbol (duck sizing), and a call where they differ is "
                "another graph, once. To save it make the first call with sizes that differ, or torch.fx.experimental._config.use_duck_shape = False."
            )
        )
    if "___from_numpy" in (change.guard.source or ""):
        return Remedy(
            fix=(
                f"Size {dim} of {name} changed ({sizes}) and is dynamic from then on. torch.compile(..., dynamic=True) saves this recompile; "
                f"so does a tensor, marked: {argument} = torch.from_numpy({argument}); torch._dynamo.mark_dynamic({argument}, {dim})."
            ),
            change="dynamic",
        )
    if name.startswith(CROSSING):
        return Remedy(
            fix=(
                f"Size {dim} of {name} changed ({sizes}) and is dynamic from then on: nothing more will come of it. Without the break there is no such guard; "
                "torch.compile(..., dynamic=True) saves this recompile."
            ),
            change="dynamic",
        )
    if frame.inner:
        return Remedy(
            fix=(
                f"Size {dim} of {name} changed ({sizes}) and is dynamic from then on: nothing more will come of it. {name} belongs to {frame.name} in "
                f"{short_path(frame.file)}, which your line reaches through other library code; torch.compile(..., dynamic=True) saves this recompile."
            ),
            change="dynamic",
        )
    last = " A smaller last batch is avoided by DataLoader(drop_last=True) or padding."
    last = last if dim == 0 and _shrank(change.guard) else ""
    return Remedy(
        fix=(
            f"Size {dim} of {name} changed ({sizes}) and is dynamic from then on. To save this recompile say so before the first call: "
            f"torch._dynamo.mark_dynamic({argument}, {dim}), or torch.compile(..., dynamic=True).{last}"
        ),
        change="dynamic",
    )


def dynamic_disabled(frame: Frame, change: Change) -> Remedy:
    """Sizes that change while dynamic shapes are off."""
    name, dim = change.name or "x", change.dim
    marks = static_marks(frame.place[0])
    if marks:
        return Remedy(
            fix=(
                f"Size {dim} of {name} changes ({change.guard.expected} -> {change.guard.actual}, ...), but it is marked static: take {marks[0].text} (line {marks[0].line}) away. "
                "Then it costs one recompile and is dynamic; mark_dynamic in its place saves that one as well."
            )
        )
    return Remedy(
        fix=(
            f"Size {dim} of {name} changes ({change.guard.expected} -> {change.guard.actual}, ...) while dynamic shapes are off. "
            "before:\n    torch.compile(f, dynamic=False)\nafter:\n    torch.compile(f)\n"
            "(dynamic=None: one recompile, then one graph for all sizes), or keep the size fixed: pad, or write into a buffer allocated once (a static cache)."
        ),
        change="dynamic",
    )


def size_zero_one(frame: Frame, change: Change) -> Remedy:
    """Sizes 0 and 1."""
    name = change.name or "x"
    dim = change.dim
    if dim is None:
        found = re.search(r"\[([0-9]{1,9})\]\s*$", change.guard.source or change.guard.guard)
        dim = int(found[1]) if found else 0
    argument = argument_of(name)
    if frame.inner:
        return Remedy(
            fix=(
                f"Sizes 0 and 1 of {name} are compiled apart, even where the size is dynamic. {name} belongs to {frame.name} in {short_path(frame.file)}, which your line "
                "reaches through other library code: the one graph more is as it should be."
            )
        )
    return Remedy(
        fix=(
            f"Sizes 0 and 1 of {name} are compiled apart, even where the size is dynamic. For one graph over all sizes: "
            f"torch._dynamo.decorators.mark_unbacked({argument}, {dim}) before the call (of every argument with that size), or skip empty and pad single-row batches. "
            "Where both cases are usual (prefill and decode), the one graph more is as it should be."
        )
    )


def shape_expression(frame: Frame, change: Change) -> Remedy:
    """A decision over sizes."""
    where = (
        f"{change.line.site}: {change.line.code.strip()}"
        if change.line and change.line.code
        else change.line.site
        if change.line
        else ""
    )
    guard = change.guard.guard.split("  #")[0].strip()
    if change.guard.kind == "size":
        guard = f"{change.name}.shape[{change.dim}] == {change.guard.expected}"
    return Remedy(
        fix=(
            f"The code asks whether {guard}{f' ({where})' if where else ''}, and each answer is a graph. Make the answer always the same: pad the size to a multiple "
            "or to a few buckets, take the size from x.shape instead of a number, or move the choice outside of the compiled function. "
            "If it always holds, torch._check(condition) before it states so."
        )
    )


def unrolled_loop(frame: Frame, change: Change) -> Remedy:
    """A loop whose trip count changes."""
    code = change.line.code.strip() if change.line else ""
    counted = change.name if change.guard.kind != "size" else f"{change.name}.shape[{change.dim}]"
    return Remedy(
        fix=(
            f"The loop{f' `{code}`' if code else ''} is unrolled, so each value of {counted} is a graph of its own. Replace it by one tensor operation over "
            "the whole axis (sum, cumsum, matmul, torch.vmap), by torch._higher_order_ops.scan, or compile the body of the loop "
            "and leave the loop outside; or pad to one length."
        )
    )
