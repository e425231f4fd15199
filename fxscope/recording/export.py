"""What torch.export and draft export logged: decisions that depend on data, guards, fake kernels that are missing or wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fxscope.errors import UsageError
from fxscope.recording.userline import deepest_user_line
from fxscope.source import SourceLine

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording

IssueKind = Literal["data-dependent", "guard", "missing-fake-kernel", "mismatched-fake-kernel"]
_KINDS: dict[str, IssueKind] = {
    "propagate_real_tensors_provenance": "data-dependent",
    "guard_added": "guard",
    "missing_fake_kernel": "missing-fake-kernel",
    "mismatched_fake_kernel": "mismatched-fake-kernel",
}
_MOST_STEPS = 64  # of one expression's history; a loop could make it endless


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """How one symbolic expression was made.

    Attributes:
        method: e.g. ``neg``, ``int_floordiv``; ``symbol`` where an unbacked symbol was created.
        line: The user's line that made it.
    """

    method: str
    result: str
    arguments: tuple[str, ...] = ()
    line: SourceLine | None = None


class ExportIssue(msgspec.Struct, kw_only=True):
    """One thing that an export had to assume or could not know.

    Attributes:
        expression: The condition, e.g. ``Eq((((-u0)//3)) + 5, 0)``; "" for fake kernels.
        result: What real tensors decided, for a data-dependent one.
        op: The custom op, for fake kernels.
        line: The user's line.
        variables: Local variables of that line, as text, where the log has them.
        sources: Symbol to the input that it is the size of.
        history: How the expression came about, oldest first.
        count: How often the same line asked the same.
    """

    kind: IssueKind
    expression: str = ""
    result: str = ""
    op: str = ""
    reason: str = ""
    line: SourceLine | None = None
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    history: list[Step] = msgspec.field(default_factory=list)
    count: int = 1


class ExportReport(msgspec.Struct, kw_only=True):
    """An export, as far as the log tells.

    Attributes:
        issues: Each once, in order of first sight.
        programs: Numbers of the events whose payload is a printed ExportedProgram (``Recording.text``).
    """

    issues: list[ExportIssue] = msgspec.field(default_factory=list)
    programs: list[int] = msgspec.field(default_factory=list)


def read_export(recording: Recording) -> ExportReport | None:
    """What an export logged; None where the recording holds none (``guard_added`` alone belongs to torch.compile)."""
    if not any(recording.count(name) for name in _EXPORT_ONLY):
        return None
    wanted = [(number, name) for number, name in recording.events() if name in _WANTED]
    report = ExportReport()
    steps: dict[int, tuple[Step, tuple[int, ...]]] = {}
    seen: dict[tuple[Any, ...], ExportIssue] = {}
    for number, name in wanted:
        if name == "exported_program":
            report.programs.append(number)
            continue
        try:
            value = recording.event(number).value
        except UsageError:
            continue  # a broken event; the reader's notes count it
        if not isinstance(value, dict):
            continue
        line = _user_line(recording, number, value)
        if name == "create_unbacked_symbol":
            symbol, node = str(value.get("symbol")), _integer(value.get("node_id"))
            steps[node] = (Step(method="symbol", result=symbol, line=line), ())
        elif name == "expression_created":
            step = Step(
                method=str(value.get("method")),
                result=str(value.get("result")),
                arguments=tuple(map(str, value.get("arguments") or ())),
                line=line,
            )
            steps[_integer(value.get("result_id"))] = (step, tuple(map(_integer, value.get("argument_ids") or ())))
        else:
            issue = _issue(_KINDS[name], value, line)
            key = (issue.kind, issue.expression, issue.op, issue.reason, line and (line.file, line.line))
            if key in seen:
                seen[key].count += 1
                continue
            seen[key] = issue
            issue.history = _history(_integer(value.get("expr_node_id")), steps)
            report.issues.append(issue)
    return report


_EXPORT_ONLY = frozenset(
    {"exported_program", "propagate_real_tensors_provenance", "missing_fake_kernel", "mismatched_fake_kernel"}
)
_WANTED = _EXPORT_ONLY | {"guard_added", "expression_created", "create_unbacked_symbol"}


def _issue(kind: IssueKind, value: dict[str, Any], line: SourceLine | None) -> ExportIssue:
    frame = value.get("frame_locals")
    frame = frame if isinstance(frame, dict) else {}
    if frame.get("loc") and line is not None and not line.code:
        line = msgspec.structs.replace(line, code=str(frame["loc"]))
    variables = frame.get("locals")
    named = [item for item in (frame.get("symbols"), value.get("symbol_to_sources")) if isinstance(item, dict)]
    sources = {key: text for item in named for key, text in item.items()}
    return ExportIssue(
        kind=kind,
        expression=str(value.get("expr") or ""),
        result=str(value.get("result") or ""),
        op=str(value.get("op") or ""),
        reason=str(value.get("reason") or ""),
        line=line,
        variables={str(k): str(v) for k, v in variables.items()} if isinstance(variables, dict) else {},
        sources={str(k): str(v) for k, v in sources.items()},
    )


def _user_line(recording: Recording, number: int, value: dict[str, Any]) -> SourceLine | None:
    """The line that asked: the end of the user's stack or, in events without one, where the whole stack meets ``frame_locals``."""
    if asked := recording.stack(number, value.get("user_stack")):
        return asked[-1]
    stack = recording.stack(number, value.get("stack"))
    frame = value.get("frame_locals")
    code = frame.get("loc") if isinstance(frame, dict) else None
    return next((line for line in reversed(stack) if code and line.code == code), None) or deepest_user_line(stack)


def _history(node: int, steps: dict[int, tuple[Step, tuple[int, ...]]]) -> list[Step]:
    found: list[Step] = []
    todo = [node]
    done: set[int] = set()
    while todo and len(found) < _MOST_STEPS:
        here = todo.pop()
        if here in done or here not in steps:
            continue
        done.add(here)
        step, parents = steps[here]
        found.append(step)
        todo += parents
    return found[::-1]


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else -1
