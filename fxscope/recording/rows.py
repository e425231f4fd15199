"""Rows of breaks and recompiles, from the artifacts that tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.recording.breaks import BreakText, parse_break
from fxscope.recording.process import without_attempt
from fxscope.recording.recompiles import parse_reason, read_reasons
from fxscope.recording.records import GraphBreak, Recompile
from fxscope.recording.state import State, inherit
from fxscope.recording.userline import deepest_user_line, is_user_file
from fxscope.source import SourceLine, base_name

if TYPE_CHECKING:
    from fxscope.recording.process import Attempt, Process
    from fxscope.trace.index import Event, LogIndex


def take_break(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """One break event: a new row, or one more of its site and kind."""
    attempt = state.attempt(process, event)
    text = parse_break(index.text(event.number))
    state.break_events += 1
    if attempt is not None:
        attempt.breaks += 1
        if not text.file:
            text.file, text.line, text.function = attempt.record.file, attempt.record.line, attempt.record.function
    row = state.breaks.get((text.file, text.line, text.kind))
    if row is None and (text.duplicate or not text.kind):
        row = state.break_at.get((text.file, text.line))
    if row is None:
        row = _new_break(state, text)
    else:
        row.count += 1
        row.skipped_frame = row.skipped_frame or text.skipped_frame
        _set_user_line(row, text)
    row.events.append(number)
    if attempt is not None:
        record = attempt.record
        first = row.events[0]
        for kind, name, names in (
            ("id", without_attempt(record.id), row.compile_ids),
            ("key", record.key, row.compile_keys),
        ):
            if (first, kind, name) not in state.break_in:
                state.break_in.add((first, kind, name))
                names.append(name)


def _new_break(state: State, text: BreakText) -> GraphBreak:
    row = GraphBreak(
        site=f"{base_name(text.file)}:{text.line}",
        file=text.file,
        line=text.line,
        function=text.function,
        code=text.code,
        gb_id=text.gb_id,
        kind=text.kind,
        reason=text.reason,
        explanation=text.explanation,
        context=text.context,
        hints=text.hints,
        skipped_frame=text.skipped_frame,
        stack=text.stack,
        user_file=text.file,
        user_line=text.line,
        user_code=text.code,
    )
    _set_user_line(row, text)
    state.breaks[text.file, text.line, text.kind] = row
    state.break_at.setdefault((text.file, text.line), row)
    return row


def _set_user_line(row: GraphBreak, text: BreakText) -> None:
    """The innermost line of the user's own program: a frame that begins in a library knows it all, that of the user's only its caller."""
    own = deepest_user_line(text.stack)
    if own is None or is_user_file(row.file):
        return
    first = row.stack is text.stack
    if first or _own_lines(text.stack) > _own_lines(row.stack):
        row.user_file, row.user_line, row.user_code, row.stack = own.file, own.line, own.code, text.stack


def _own_lines(stack: tuple[SourceLine, ...]) -> int:
    return sum(is_user_file(line.file) for line in stack)


def take_recompile(state: State, process: Process, number: int, event: Event, index: LogIndex) -> None:
    """Why no cache entry matched; comes before the compile that it causes, or alone where that is refused."""
    attempt = state.attempt(process, event, begin=True)
    if attempt is None:
        return
    record = attempt.record
    recompile = Recompile(id=without_attempt(record.id), key=record.key, rank=process.rank)
    process.date(recompile, event.when)
    for reason in read_reasons(index.text(event.number)):
        failed = parse_reason(reason)
        if failed.asked_file:
            failed.asked_file = process.full_path(failed.asked_file)
        failed.entry = process.entry_in_use(failed.entry)
        recompile.failed.append(failed)
    state.recompiles.append(recompile)
    state.recompile_of[record.key] = recompile
    inherit(process, event, record)
    name_recompile(state, attempt, recompile)


def name_recompile(state: State, attempt: Attempt, recompile: Recompile | None = None) -> None:
    """Give a recompile the name and place of its frame, once they are known."""
    record = attempt.record
    recompile = recompile or state.recompile_of.get(record.key)
    if recompile is None:
        return
    recompile.function, recompile.file, recompile.line = record.function, record.file, record.line
    recompile.user_file, recompile.user_line = record.user_file, record.user_line
