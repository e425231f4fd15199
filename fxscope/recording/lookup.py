"""Finding a compile by the id that a user types, and one of its graphs by stage and number."""

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


def parse_stage(text: str, index: int = 0) -> tuple[str, int]:
    """Stage and number of a graph as ``--stage`` takes them: ``forward#1`` is the second graph of its stage.

    DDP, for one, splits a compile into several graphs of one stage.

    Args:
        text: A stage, with or without ``#`` and a number.
        index: The number where ``text`` has none.

    Raises:
        UsageError: What follows ``#`` is no number.
    """
    stage, mark, number = text.partition("#")
    if mark and not number.isdecimal():
        raise UsageError(f"stage {text}: after # comes which of several graphs of that stage, from 0, e.g. {stage}#1")
    return stage, int(number) if mark else index


def stage_name(stage: str, index: int) -> str:
    """How a graph's stage and number are written; ``parse_stage`` reads it."""
    return f"{stage}#{index}" if index else stage


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
