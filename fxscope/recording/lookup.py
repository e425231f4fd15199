"""Finding a compile by the id that a user types, and one of its graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.errors import UsageError

if TYPE_CHECKING:
    from fxscope.recording.records import Compile, GraphText
    from fxscope.recording.state import State


def find_compile(state: State, graph_id: str, where: str) -> Compile:
    """The compile that ``--graph`` names: a key or an id; without an attempt, the id's last one.

    Raises:
        UsageError: No such id; the message names the nearest ones.
    """
    wanted = graph_id.strip()
    slots = state.slot_of
    keys = [wanted] if ":" in wanted else [*(p.prefix + wanted for p in state.processes.values())]
    for key in keys:
        if key in slots:
            last = slots[key].last
            if last is not None:
                return last.record
        base, hash_, use = key.partition("#")
        stem, _, number = base.rpartition("_")
        if stem + hash_ + use in slots and number.isascii() and number.isdigit():
            attempt = slots[stem + hash_ + use].attempts.get(int(number))
            if attempt is not None:
                return attempt.record
    import difflib

    names = [record.key for record in state.compiles[:2000]]
    near = difflib.get_close_matches(wanted, names, 5, 0.3) or names[:5]
    hint = f"; there are {', '.join(near)}" + (" ..." if len(state.compiles) > len(near) else "") if near else ""
    raise UsageError(f"no compile {wanted!r} in {where}{hint or ': nothing was compiled'}")


def find_text(compile_: Compile, stage: str, index: int) -> GraphText:
    """The printed graph of one stage.

    Raises:
        UsageError: That compile has no such stage; the message lists those it has.
    """
    texts = {text.index: text for text in reversed(compile_.graphs) if text.stage == stage}
    if index in texts:
        return texts[index]
    if texts:
        raise UsageError(f"{compile_.key} has stage {stage} of index {', '.join(map(str, sorted(texts)))}, not {index}")
    has = ", ".join(compile_.stages) or "none"
    raise UsageError(f"{compile_.key} has no stage {stage!r}; it has: {has}")
