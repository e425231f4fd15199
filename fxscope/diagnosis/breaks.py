"""Findings from graph breaks: one per line that its user can change, however many events and frames it made."""

from __future__ import annotations

from collections import defaultdict

from fxscope.diagnosis.breaks_join import join_breaks
from fxscope.diagnosis.causes import BreakCause, cause_of, in_library
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Evidence, Finding, Severity, kinds, severity_rank
from fxscope.diagnosis.fixes import change_of, fix_of, place_of
from fxscope.diagnosis.statement import code_at, whole_code
from fxscope.diagnosis.story import plain_function, resumed
from fxscope.recording.records import GraphBreak
from fxscope.source import short_path
from fxscope.words import count


def site_of(found: GraphBreak, cause: BreakCause) -> tuple[str, int]:
    """The line that breaks stand together under: a library's own line where its code is the cause of something else."""
    if in_library(found) and cause.ids[0] != "library-code":
        return found.file, found.line
    return place_of(found)[:2]


def findings(context: Context) -> list[Finding]:
    """One finding per breaking line and cause; torch's own deliberate breaks go by the user's call."""
    groups: dict[tuple[str, int, str], list[tuple[int, GraphBreak, BreakCause]]] = defaultdict(list)
    for index, found in enumerate(context.recording.graph_breaks):
        cause = cause_of(found)
        file, line = site_of(found, cause)
        groups[file, line, cause.ids[0]].append((index, found, cause))
    made = [((file, line), _finding(context, members)) for (file, line, _), members in groups.items()]
    return join_breaks(context, _merge_lines(made))


def _finding(context: Context, members: list[tuple[int, GraphBreak, BreakCause]]) -> Finding:
    members.sort(key=lambda member: (not member[1].skipped_frame, -member[1].count))
    _, found, cause = members[0]
    file, line, code = place_of(found)
    ids = list(dict.fromkeys(id_ for _, _, each in members for id_ in each.ids))
    if "frame-skipped" in ids:
        ids.remove("frame-skipped")
        ids.append("frame-skipped")
    events = sum(each.count for _, each, _ in members)
    # The user's own function around the line, also where the break lies in what it calls.
    around = next((each.function for each in reversed(found.stack) if (each.file, each.line) == (file, line)), "")
    function = plain_function(around or found.function)
    pieces = _pieces(context, [each for _, each, _ in members])
    lost = any("frame-skipped" in each.ids for _, _, each in members)
    skipped = any(each.skipped_frame for _, each, _ in members)
    change = change_of(found, cause, training=context.training)
    kind = kinds()[ids[0]]
    return Finding(
        ids=ids,
        category="failure" if kind.category == "failure" else "breaks",
        severity=_severity(ids, lost or (_covers_all(ids) and not context.recording.totals.graphs)),
        title=f"{found.kind or ids[0]}{f' at {found.site}' if in_library(found) else ''}: {count(events, 'break event')}"
        + (", the whole function runs eager" if skipped else ", the rest of the function runs eager" if lost else ""),
        file=file,
        line=line,
        function=function,
        code=whole_code(file, line, code) or code.strip() or code_at(file, line),
        cause=_cause_sentence(found, cause, lost, ids),
        fix=fix_of(found, cause),
        gain=_gain(lost, pieces, events) + (_WAIT if _waits(context, ids) else ""),
        verify=context.try_command(change) if change else context.diff_command(),
        evidence=[
            Evidence(
                kind="break",
                text=f"{each.site} {each.gb_id or ''} {each.kind}, {count(each.count, 'event')} in {', '.join(each.compile_ids[:6])}".replace(
                    "  ", " "
                ),
                compile_key=each.compile_keys[0] if each.compile_keys else "",
                index=index,
            )
            for index, each, _ in members
        ],
        cost=float(events) + (100.0 if lost else 0.0),
        change=change,
    )


def _covers_all(ids: list[str]) -> bool:
    """The break takes whatever it lies in out of the graphs: an operator's body, a function that is disabled."""
    return "higher-order-op" in ids[1:] or ids[0] == "disabled-function"


def _severity(ids: list[str], skipped: bool) -> Severity:
    if ids[0] == "library-code" and not skipped:
        return "low"
    if skipped:
        return "high"
    return kinds()[ids[0]].severity


def _cause_sentence(found: GraphBreak, cause: BreakCause, skipped: bool, ids: list[str]) -> str:
    meaning = kinds()[cause.ids[0]].meaning
    named = f" ({cause.callee.name})" if cause.callee.name and not cause.callee.name.startswith("aten._local") else ""
    text = meaning.rstrip(".") + named + "."
    if in_library(found):
        code = whole_code(found.file, found.line, found.code)
        text = f"{short_path(found.file)}:{found.line}{f' ({code})' if code else ''}: {text}"
    if "higher-order-op" in ids[1:] and not skipped:
        return (
            text
            + " It lies in the body of a higher-order operator, which cannot be cut: the whole operator runs eager."
        )
    if not skipped:
        return text + " Dynamo ends the graph there and starts another one behind it."
    if "in a for/while loop" in found.reason:
        return text + " The break is inside of a loop, where Dynamo cannot resume, so the whole function runs eager."
    if "GenericContextWrapping" in found.reason:
        return text + " The break is inside of a `with` block that cannot be resumed, so the whole function runs eager."
    if "cannot resume" in found.reason:
        return text + " Dynamo cannot resume behind it, so the rest of the function runs eager."
    return text + " Dynamo gives the whole function up; it runs eager."


def _pieces(context: Context, members: list[GraphBreak]) -> int:
    """Graphs that exist only because of these breaks: resumed frames at their lines."""
    lines = {(each.file, each.line) for each in members} | {(each.user_file, each.user_line) for each in members}
    return len(
        {
            (compile_.rank, compile_.process, compile_.id.rpartition("/")[0])
            for compile_ in context.recording.compiles
            if compile_.status in ("ok", "empty")
            and (behind := resumed(compile_.function))
            and (compile_.file, behind[1]) in lines
        }
    )


_WAIT = "; and the host no longer waits there for the device in every call"


def _waits(context: Context, ids: list[str]) -> bool:
    """The break reads a value from a device that runs behind the host."""
    reads = {"data-dependent-branch", "data-dependent-value", "dynamic-output-shape"}
    return bool(reads & set(ids)) and context.behind_the_host


def _gain(skipped: bool, pieces: int, events: int) -> str:
    if skipped:
        return "the whole function would be compiled instead of none of it (or instead of its first part only)"
    if pieces:
        return f"one graph instead of the {count(pieces + 1, 'piece')} that this break cuts, and fusion across the line (counted, not timed)"
    return f"{count(events, 'break event')} fewer, and fusion across the line (counted, not timed)"


def _merge_lines(made: list[tuple[tuple[str, int], Finding]]) -> list[tuple[tuple[str, int], Finding]]:
    """Two causes at one line are one finding: mending the first reveals the second."""
    by_line: dict[tuple[str, int], Finding] = {}
    alone = []
    for site, finding in sorted(made, key=lambda each: -each[1].cost):
        first = by_line.get(site)
        if not site[1]:
            alone.append((site, finding))
            continue
        if first is None:
            by_line[site] = finding
            continue
        skipped = "frame-skipped" in first.ids + finding.ids
        first.ids = [id_ for id_ in dict.fromkeys(first.ids + finding.ids) if id_ != "frame-skipped"] + (
            ["frame-skipped"] if skipped else []
        )
        first.evidence.extend(finding.evidence)
        first.cost += finding.cost
        if severity_rank(finding.severity) < severity_rank(first.severity):
            first.severity = finding.severity
        if finding.fix not in first.fix:
            first.fix += f"\nThen, at the same line ({finding.ids[0]}): {finding.fix}"
    return [*by_line.items(), *alone]
