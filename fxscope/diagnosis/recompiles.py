"""Findings from recompiles and from the recompile limit: one per code object and cause."""

from __future__ import annotations

import re
from collections import Counter

from fxscope.diagnosis.context import Context, short_seconds
from fxscope.diagnosis.findings import Evidence, Finding, Severity, kinds
from fxscope.diagnosis.fixes import not_yours
from fxscope.diagnosis.forbidden import join_forbidden
from fxscope.diagnosis.frames import frames
from fxscope.diagnosis.guards import name_of
from fxscope.diagnosis.remedies import remedy
from fxscope.diagnosis.remedies_size import Remedy
from fxscope.diagnosis.remedies_value import listed
from fxscope.diagnosis.sizes_join import join_sizes
from fxscope.diagnosis.statement import code_at
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.userline import is_torch_file, is_user_file
from fxscope.source import package_of
from fxscope.words import count

# One recompile of these kinds mends itself or is meant: a fact worth knowing, not a fault.
_BENIGN = frozenset({"dynamic-size", "changing-number", "train-eval", "grad-mode"})
_BY_NAME = frozenset({"changing-attribute", "changing-number", "changing-global", "container-size", "none-or-tensor"})
_MOST_EVIDENCE = 100  # records that stand for a story
_NOTABLE_SECONDS = 60.0  # a benign recompile that took longer is worth saving


def findings(context: Context) -> list[Finding]:
    """One finding per code object with recompiles, with all its causes; and those for recompiles that raised."""
    found = [_finding(context, frame) for frame in _merged(frames(context))]
    return join_forbidden(context, join_sizes(context, found))


def _merged(found: list[Frame]) -> list[Frame]:
    """A resumed frame recompiles for what its function did already: that is one story."""
    whole = {(frame.rank, frame.file, frame.name): frame for frame in found if not frame.resumed}
    kept = []
    for frame in found:
        first = whole.get((frame.rank, frame.file, frame.name))
        if frame.resumed and first is not None and frame.limit is None:
            told = {(change.ids[0], change.name) for change in first.changes}
            again = [change for change in frame.changes if (change.ids[0], change.name) in told]
            first.changes.extend(again)
            frame.changes = [change for change in frame.changes if (change.ids[0], change.name) not in told]
            first.settle()
            frame.settle()
            if not frame.changes:
                first.seconds += frame.seconds
                continue
        kept.append(frame)
    return kept


def lead_change(frame: Frame) -> Change | None:
    """The recompile that stands for the frame: of its most frequent cause, the last (its entry was the most general)."""
    if not frame.changes:
        return None
    lead, _ = Counter(change.ids[0] for change in frame.changes).most_common(1)[0]
    name, _ = Counter(change.name for change in frame.changes if change.ids[0] == lead).most_common(1)[0]
    return next(change for change in frame.changes if (change.ids[0], change.name) == (lead, name))


def ids_of(frame: Frame) -> list[str]:
    """Finding ids of a frame: what it is, then the causes by frequency, then the effect."""
    causes = [id_ for id_, _ in Counter(change.ids[0] for change in frame.changes).most_common()]
    causes += [id_ for change in frame.changes for id_ in change.ids[1:]]
    if "size-zero-one" in causes or "unrolled-loop" in causes:
        causes = [id_ for id_ in causes if id_ != "dynamic-size"]
    ids = (["recompile-storm"] if frame.storm else []) + causes + (["recompile-limit"] if frame.limited else [])
    return list(dict.fromkeys(ids))


def _finding(context: Context, frame: Frame) -> Finding:
    ids = ids_of(frame)
    change = lead_change(frame)
    file, line = frame.place
    compiled = sum(1 for each in frame.changes if each.recompile.outcome == "compiled")
    severity = _severity(ids, frame, compiled)
    remedies = [remedy(id_, frame, _of(frame, id_, name)) for id_, name in _causes(frame)]
    lead = remedies[0] if remedies else None
    verify = ""
    if severity != "info":
        verify = context.try_command(lead.change) if lead and lead.change else context.diff_command()
    return Finding(
        ids=ids,
        category="recompiles",
        severity=severity,
        title=_title(frame, change, compiled),
        file=file,
        line=line,
        function=frame.caller or frame.name,
        code=code_at(file, line) or (change.line.code.strip() if change and change.line and not frame.resumed else ""),
        cause=_cause(context, frame, change),
        fix=_beyond_reach(frame, severity, lead)
        + ("\n".join(dict.fromkeys(each.fix for each in remedies)) or kinds()["recompile-limit"].meaning),
        gain=_gain(frame, compiled),
        verify=verify,
        evidence=_evidence(frame),
        cost=frame.seconds + compiled + (50.0 if frame.limited else 0.0),
        change=lead.change if lead else "",
    )


def _beyond_reach(frame: Frame, severity: Severity, lead: Remedy | None) -> str:
    """What can be done from outside where a package's own code calls its own function with arguments that nobody else gives."""
    of_package = frame.inner or (bool(frame.changes) and frame.changes[0].name.startswith("self."))
    # The log shortens a path; a line of the user's that asked is one of the file that the call stands in.
    asked = {change.guard.asked_file for change in frame.changes if change.guard.asked_file}
    own = is_user_file(frame.file) or any(frame.place[0].replace("\\", "/").endswith(file) for file in asked)
    as_it_should_be = severity in ("info", "low") or (lead is not None and "as it should be" in lead.fix)
    if as_it_should_be or own or is_torch_file(frame.file) or not of_package:
        return ""
    return not_yours(package_of(frame.file), lead.change if lead else "") + " "


def _causes(frame: Frame) -> list[tuple[str, str]]:
    """The most frequent causes; of values each name by itself, as each has a remedy of its own ("" for all names)."""
    counted = Counter(
        (change.ids[0], change.name if change.ids[0] in _BY_NAME else "") for change in frame.changes
    ).most_common(3)
    ids = {id_ for (id_, _), _ in counted}
    hidden = {"dynamic-size"} if len(ids) > 1 and ids & {"size-zero-one", "unrolled-loop"} else set()
    return [pair for pair, _ in counted if pair[0] not in hidden]


def _of(frame: Frame, id_: str, name: str) -> Change:
    """A recompile of one cause; one that knows its line where there is one."""
    changes = [change for change in frame.changes if change.ids[0] == id_ and name in ("", change.name)]
    return next((change for change in changes if change.line is not None), changes[0])


def _severity(ids: list[str], frame: Frame, compiled: int) -> Severity:
    if frame.storm:
        return "high"
    if ids and ids[0] == "dynamic-disabled":
        return "medium"
    # Training and evaluation have a graph each, so one cause may come once in each.
    once = Counter((change.what, change.ids[1:]) for change in frame.changes)
    crossing = {"break-value"} if all(change.ids[0] != "break-value" for change in frame.changes) else set()
    if set(ids) <= _BENIGN | crossing and max(once.values(), default=0) <= 1:
        return "low" if frame.seconds >= _NOTABLE_SECONDS else "info"
    if set(ids) <= {"train-eval", "grad-mode"}:
        return "info"
    severity: Severity = kinds()[ids[0]].severity if ids else "low"
    if compiled <= 1 and severity in ("medium", "high"):
        return "low"
    return severity


def _title(frame: Frame, change: Change | None, compiled: int) -> str:
    times = count(compiled, "recompile")
    name = frame.name if is_user_file(frame.file) else f"{frame.name} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})"
    if change is None:
        return f"{name}: the recompile limit was reached"
    values = frame.values.get(change.name, [])
    what = f"{change.name} " if change.name else ""
    shown = f": {what}{f'({listed(values)})' if len(values) > 1 else ''}".rstrip(": ")
    limit = ", then the limit: later variants run eager" if frame.limited else ""
    return f"{times} of {name}{shown.rstrip()}{limit}"


def _cause(context: Context, frame: Frame, change: Change | None) -> str:
    parts = []
    if change is not None:
        parts.append(kinds()[change.ids[0]].meaning)
        asked = change.line or None
        guard = change.guard.guard.split("  #")[0].strip()
        if len(guard) > 140:
            guard = guard[:140] + "..."
        parts.append(
            f"The guard that failed: {guard}"
            + (
                f" (asked for at {asked.site})"
                if asked
                else f" (asked for at line {change.guard.asked_line})"
                if change.guard.asked_line and is_user_file(change.guard.asked_file or "")
                else ""
            )
            + "."
        )
    if frame.limited:
        hit = frame.limit
        number = f" ({hit.value})" if hit is not None and hit.value else ""
        parts.append(
            f"The {hit.limit if hit else 'recompile limit'}{number} was reached: entries compiled before are still used, calls that match none run eager, "
            f"with what they call. {_eager_calls(context, frame)}"
        )
    return " ".join(parts)


def _eager_calls(context: Context, frame: Frame) -> str:
    """Since which call, and for how many, where the recorder could know."""
    known = context.eager_calls.get((frame.file, frame.line))
    if known is None:
        return "How many calls that were is not in the log."
    since = f"That was call {known.before + 1}" if known.before is not None else "Since then"
    if known.eager is not None:
        return f"{since}{'; since then' if known.before is not None else ''} {count(known.eager, 'call')} ran eager (counted)."
    if known.counting:
        return f"{since}{'; no call was seen to run eager since' if known.before is not None else ' no call was seen to run eager'}."
    python = context.recording.session.python or "this Python"
    why = f"how many ran eager since cannot be known (sys.monitoring needs Python 3.12; this was {python})."
    return f"{since}; {why}" if known.before is not None else why[0].upper() + why[1:]


def _gain(frame: Frame, compiled: int) -> str:
    seconds = f"{short_seconds(frame.seconds)} of compile time (measured)" if frame.seconds >= 0.05 else ""
    limit = "the calls behind the limit run compiled instead of eager" if frame.limited else ""
    mixed = len({change.ids[0] for change in frame.changes}) > 1
    graphs = f"{'up to ' if mixed else ''}{count(compiled, 'graph')} fewer" if compiled else ""
    return "; ".join(part for part in (graphs, seconds, limit) if part)


def _by_pgo(change: Change) -> str:
    """What torch's profile of this run decided in a recompile."""
    names: dict[str, None] = {}
    for each in change.recompile.pgo:
        source = each.partition(": ")[0]
        dim = re.search(r"\.(size|stride)\(\)(?:\[(\d+)\])?$", source)
        which = "" if dim is None else f" ({dim[1]} {dim[2]})" if dim[2] else f" (every {dim[1]})"
        names[name_of(source) + which] = None
    return f" (PGO marks as dynamic: {', '.join(names)})" if names else ""


def _evidence(frame: Frame) -> list[Evidence]:
    shown = frame.changes[:_MOST_EVIDENCE]
    found = [
        Evidence(
            kind="recompile",
            text=f"{change.recompile.id} {'refused' if change.recompile.outcome == 'refused' else 'compiled'}: "
            + (f"{change.guard.entry}: {change.guard.guard[:160]}" if change.guard.guard else "no reason in the log")
            + _by_pgo(change),
            compile_key=change.recompile.key,
            index=change.index,
        )
        for change in shown
    ]
    if len(shown) < len(frame.changes):
        found.append(
            Evidence(kind="note", text=f"{len(frame.changes) - len(shown)} more recompiles of the same function")
        )
    if frame.limit is not None:
        found.append(
            Evidence(
                kind="limit", text=f"{frame.limit.limit} {frame.limit.value or ''}".strip(), index=frame.limit_index
            )
        )
    return found
