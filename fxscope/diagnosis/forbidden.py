"""Recompiles that raised because the program forbids them: fullgraph at the limit, error_on_recompile, the stance fail_on_recompile."""

from __future__ import annotations

import re

from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Evidence, Finding, kinds
from fxscope.diagnosis.guards import cause_of_guard
from fxscope.diagnosis.remedies import remedy
from fxscope.diagnosis.statement import code_at
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.recompiles import parse_reason
from fxscope.recording.records import FailedGuard, Failure, Recompile

_RAISED = {
    "RecompileError": "recompile-error",
    "FailOnRecompileLimitHit": "fullgraph-error",
    "RecompileLimitExceeded": "recompile-error",
    "CacheLimitExceeded": "recompile-error",
}
_STANCE = "Detected recompile when torch.compile stance is 'fail_on_recompile'"
_WHERE = re.compile(
    r"Recompiling function (?P<function>\S+) in (?P<file>.+?):(?P<line>\d+)\s|"
    r"filename: '(?P<file2>.+?)', function name: '(?P<function2>.+?)', line number: (?P<line2>\d+)"
)


def is_forbidden(failure: Failure) -> bool:
    """The failure is a recompile that was not allowed: its story is told with the recompiles."""
    return failure.type in _RAISED or failure.message.startswith(_STANCE)


def join_forbidden(context: Context, found: list[Finding]) -> list[Finding]:
    """Findings of recompiles with those that raised: the end of a function's story, or a finding of its own.

    Args:
        context: The recording.
        found: Findings of recompiles; those that ended in an exception are changed in place.
    """
    alone: dict[tuple[str, str, str, int], Finding] = {}
    ended: set[tuple[str, int]] = set()  # a program that catches the exception and goes on meets it again and again
    for index, failure in enumerate(context.recording.failures):
        if not is_forbidden(failure):
            continue
        evidence = Evidence(
            kind="failure", text=f"{failure.id} {failure.type}".strip(), compile_key=failure.compile_key, index=index
        )
        story = next(
            (each for each in found if failure.compile_key in {part.compile_key for part in each.evidence} - {""}),
            None,
        )
        if story is None:
            finding = _alone(context, failure, evidence)
            told = alone.setdefault((failure.type, finding.function, finding.file, finding.line), finding)
            if told is not finding:
                told.evidence.append(evidence)
            continue
        story.evidence.append(evidence)
        if (failure.type, id(story)) in ended:
            continue
        ended.add((failure.type, id(story)))
        if _id_of(failure) not in story.ids:
            story.ids.append(_id_of(failure))
        story.severity = "high"
        story.title += f"; {failure.type} ended the call"
        story.cause += f" {_why(failure)}"
        story.gain = "the program runs"
        story.cost += 1000.0
    return [*found, *alone.values()]


def _id_of(failure: Failure) -> str:
    return _RAISED.get(failure.type, "recompile-error")


def _why(failure: Failure) -> str:
    if failure.type == "FailOnRecompileLimitHit":
        return "fullgraph=True forbids calls to run eager behind the limit, so FailOnRecompileLimitHit was raised."
    if failure.message.startswith(_STANCE):
        return "torch.compiler.set_stance('fail_on_recompile') was in force, so the recompile raised."
    return f"torch._dynamo.config.error_on_recompile was on (or a limit is an error), so {failure.type} was raised."


def _alone(context: Context, failure: Failure, evidence: Evidence) -> Finding:
    """A recompile that left no record but the exception's text."""
    guard = guard_in(failure.message)
    cause = cause_of_guard(guard)
    where = _WHERE.search(failure.message)
    places = where.groupdict() if where is not None else {}
    file = places.get("file") or places.get("file2") or failure.file
    line = int(places.get("line") or places.get("line2") or failure.line)
    line = line or guard.asked_line or 0  # torch 2.11 says 0
    function = places.get("function") or places.get("function2") or ""
    change = Change(
        index=-1,
        recompile=Recompile(id=failure.id, key=failure.compile_key),
        guard=guard,
        ids=cause.ids,
        name=cause.name,
        dim=cause.dim,
    )
    frame = Frame(function=function, file=file, line=line, place=(file, line), changes=[change])
    frame.settle()
    advice = remedy(cause.ids[0], frame, change)
    asked = f" (asked for at {guard.asked_file}:{guard.asked_line})" if guard.asked_line else ""
    return Finding(
        ids=[*cause.ids, "recompile-error"],
        category="recompiles",
        severity="high",
        title=f"A recompile of {function or 'a function'} was forbidden: {cause.name or guard.guard[:80]}",
        file=file,
        line=line,
        function=function,
        code=code_at(file, line),
        cause=f"{_why(failure)} {kinds()[cause.ids[0]].meaning} The guard that failed: {guard.guard[:140]}{asked}.",
        fix=advice.fix,
        gain="the program runs",
        verify=context.try_command(advice.change) if advice.change else context.check_command("--max-recompiles 0"),
        evidence=[evidence],
        cost=1000.0,
        change=advice.change,
    )


def guard_in(message: str) -> FailedGuard:
    """The first failed guard that the text of such an exception names.

    Args:
        message: ``... triggered by the following guard failure(s):`` and one line ``- 0/0: guard  # code  # file:line in f`` each.
    """
    lines = [line.strip().removeprefix("- ") for line in message.partition("guard failure(s):")[2].splitlines()]
    lines = [line for line in lines if line.strip()]
    if not lines:
        return FailedGuard(entry="", guard="")
    stack = []
    for line in lines[1:]:
        if re.match(r"!?\d+(/\d+)+: ", line):
            break  # the next entry's reason
        stack.append(line)
    return parse_reason("\n".join([lines[0], *stack]))
