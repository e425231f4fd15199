"""Findings from graph breaks: one per line that its user can change, however many events and frames it made."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from fxscope.diagnosis.ahead import advice_ahead, ahead
from fxscope.diagnosis.causes import BreakCause, cause_of, in_library
from fxscope.diagnosis.context import Context, count
from fxscope.diagnosis.findings import Evidence, Finding, Severity, kinds
from fxscope.diagnosis.registry import advice
from fxscope.diagnosis.rewrites import is_for_people, rewrite
from fxscope.diagnosis.statement import Statement, code_at, statement_at
from fxscope.recording.records import GraphBreak

_RESUME = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")
# What a change of settings can do without an edit, by advice key.
_CHANGES = {
    "scalar": "config:capture_scalar_outputs=True",
    "tolist-float": "config:capture_scalar_outputs=True",
    "output-shape": "config:capture_dynamic_output_shape_ops=True",
    "rnn": "config:allow_rnn=True",
    "backward-hook": "config:compiled_autograd=True",
    "numpy-config": "config:trace_numpy=True",
}
_SETTINGS = {
    "scalar": "capture_scalar_outputs",
    "tolist-float": "capture_scalar_outputs",
    "output-shape": "capture_dynamic_output_shape_ops",
}
_SPLITS = re.compile(r"\b(split|tensor_split|unbind|repeat_interleave|as_strided|zip)\b|\brange\(|\.tolist\(")


def place_of(found: GraphBreak) -> tuple[str, int, str]:
    """File, line and code of the line that the user can change."""
    if found.user_line:
        return found.user_file, found.user_line, found.user_code or found.code
    return found.file, found.line, found.code


def site_of(found: GraphBreak, cause: BreakCause) -> tuple[str, int]:
    """The line that breaks stand together under: a library's own line where its code is the cause of something else."""
    if in_library(found) and cause.ids[0] != "library-code":
        return found.file, found.line
    return place_of(found)[:2]


def fix_of(found: GraphBreak, cause: BreakCause) -> str:
    """The advice for one break, in the user's names, with before and after where the line can be rewritten."""
    file, line, code = place_of(found)
    name = cause.callee.name
    method = name.rpartition(".")[2] if cause.advice == "logging" else ""
    detail = " ".join(found.explanation.split())[:300]
    statement = None if in_library(found) else statement_at(file, line, code)
    key = (
        "print"
        if cause.advice in ("scalar", "tolist-float") and statement is not None and is_for_people(statement)
        else cause.advice
    )
    parts = [advice(key, name=f"`{name}`" if name else "", code=code, method=method, detail=detail)]
    if key in ("scalar", "output-shape", "tolist-float") and host_split(statement):
        parts = [_SPLIT_ADVICE if statement is None or "bincount" in statement.text else _ragged(statement)]
    elif key in ("scalar", "tolist-float") and statement is not None and (values := _looped_over(statement)):
        told = (
            f"The loop takes the values of {values} to the host one by one, and unrolls for every number of them. Index with the whole tensor instead: "
            f"x[{values}] (or torch.index_select, torch.gather) gives all rows at once, and what the body does to one row, torch operations do to all of them "
            "(torch.vmap where it is a function of its own). Torch's hint (capture_scalar_outputs) does not help: the number of rounds stays unknown."
        )
        parts = [told, f"The line: {code}"]
    elif not in_library(found):
        changed = rewrite(key, statement)
        if changed is not None:
            parts.append(changed.text())
        elif code:
            parts.append(f"The line: {code}")
        if key in ("scalar", "output-shape", "tolist-float"):
            trouble = ahead(file, line, statement)
            if trouble is not None and statement is not None:
                parts[1:] = [advice_ahead(file, statement, trouble, _SETTINGS[key])]
            else:
                parts.append(_about_the_hint(key, code or code_at(file, line)))
    if "context-manager" in cause.ids[1:]:
        parts.append(advice("context-break"))
    elif "frame-skipped" in cause.ids and "in a for/while loop" in found.reason:
        parts.append(advice("loop-break"))
    if in_library(found):
        parts.append(
            f"The break lies in {found.file}:{found.line} ({found.code.strip() or found.function}); yours is {code.strip() or 'the call'}."
        )
    return "\n".join(part for part in parts if part)


# Tried on the pattern counts = bincount(e).tolist(); split(x, counts): the first setting of torch's hints moves the break to
# the conversion, both together raise GuardOnDataDependentSymNode.
_SPLIT_ADVICE = """The counts go to the host to cut a tensor into pieces. Torch's hints (capture_dynamic_output_shape_ops, capture_scalar_outputs) do not \
help here: the first moves the break on, both together fail with GuardOnDataDependentSymNode. Keep the work dense, over all rows at once:
before:
    counts = torch.bincount(index, minlength=E).tolist()
    parts = torch.split(x, counts)
    y = torch.cat([part @ w for part, w in zip(parts, weights)])
after:
    choice = torch.nn.functional.one_hot(index, E).to(x.dtype)
    y = torch.einsum("td,edf,te->tf", x, weights, choice)
(the rows stay in their order; it computes every row for every group, which for few groups is cheaper than the break)"""


def _ragged(statement: Statement) -> str:
    """Pieces of given lengths: a reduction over them is an index_add. Tried with lengths that vary from call to call."""
    call = next(
        (
            node
            for node in ast.walk(statement.node)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.split" and len(node.args) >= 2
        ),
        None,
    )
    x = ast.unparse(call.args[0]) if call is not None else "x"
    lengths = re.sub(r"\.tolist\(\)$", "", ast.unparse(call.args[1])) if call is not None else "lengths"
    return f"""The lengths go to the host to cut a tensor into pieces, and each set of lengths would be another graph. Torch's hint (capture_scalar_outputs) only moves the \
trouble on: shapes known from data alone, and GuardOnDataDependentSymNode where they decide. Keep the rows together and say which piece each belongs to:
before:
    parts = torch.split({x}, {lengths}.tolist())
    y = torch.stack([part.mean(0) for part in parts])
after:
    piece = torch.repeat_interleave({lengths}, output_size={x}.shape[0])  # 0 0 0 1 1 2 ...
    y = {x}.new_zeros({lengths}.shape[0], *{x}.shape[1:]).index_add(0, piece, {x})
    y = y / {lengths}.clamp(min=1).reshape(-1, *[1] * ({x}.dim() - 1))
(a sum needs no division, a maximum is scatter_reduce with "amax"; or split outside of the compiled function)"""


def _looped_over(statement: Statement) -> str:
    """What a ``for`` over ``x.tolist()`` takes its values from, "" for any other statement."""
    if not isinstance(statement.node, (ast.For, ast.AsyncFor)):
        return ""
    values = re.search(r"([\w.\[\]]+)\.tolist\(\)", ast.unparse(statement.node.iter))
    return values[1] if values else ""


def host_split(statement: Statement | None) -> bool:
    """The statement brings counts to the host by which the next one cuts a tensor."""
    if statement is None:
        return False
    here, then = statement.text, ast.unparse(statement.after) if statement.after is not None else ""
    return bool(
        re.search(r"\.(tolist|item)\(", here) and re.search(r"\b(split|tensor_split|split_with_sizes)\(", then + here)
    )


def _about_the_hint(key: str, code: str) -> str:
    """What torch's own hint (a setting) does on this kind of line."""
    if key == "output-shape":
        if ".tolist" in code or ".item" in code:
            return "Torch's hint alone is not enough here: with capture_dynamic_output_shape_ops the break moves on to the conversion to Python numbers."
        return "With the setting, code that decides by the unknown size (if, reshape, split) can fail with GuardOnDataDependentSymNode; try it with the command below."
    if _SPLITS.search(code):
        return (
            "Torch's hint (capture_scalar_outputs) helps only while the numbers are not used as shapes: torch.split, range or "
            "reshape by them can end in GuardOnDataDependentSymNode. Prefer a mask or a one-hot product over all rows; add torch._check(n >= 0) where it stays."
        )
    return ""


def _change(found: GraphBreak, cause: BreakCause) -> str:
    """What can be tried without an edit; "" where it was tried on this pattern and does not help."""
    file, line, code = place_of(found)
    statement = None if in_library(found) else statement_at(file, line, code)
    if statement is not None and (
        is_for_people(statement)
        or host_split(statement)
        or _looped_over(statement)
        or (cause.advice in _SETTINGS and ahead(file, line, statement) is not None)
    ):
        return ""
    return _CHANGES.get(cause.advice, "")


def findings(context: Context) -> list[Finding]:
    """One finding per breaking line and cause; torch's own deliberate breaks go by the user's call."""
    groups: dict[tuple[str, int, str], list[tuple[int, GraphBreak, BreakCause]]] = defaultdict(list)
    for index, found in enumerate(context.recording.graph_breaks):
        cause = cause_of(found)
        file, line = site_of(found, cause)
        groups[file, line, cause.ids[0]].append((index, found, cause))
    made = [((file, line), _finding(context, members)) for (file, line, _), members in groups.items()]
    return _merge_lines(made)


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
    change = _change(found, cause)
    kind = kinds()[ids[0]]
    return Finding(
        ids=ids,
        category="failure" if kind.category == "failure" else "breaks",
        severity=_severity(ids, lost),
        title=f"{found.kind or ids[0]}{f' at {found.site}' if in_library(found) else ''}: {count(events, 'break event')}"
        + (", the whole function runs eager" if skipped else ", the rest of the function runs eager" if lost else ""),
        file=file,
        line=line,
        function=function,
        code=code.strip() or code_at(file, line),
        cause=_cause_sentence(found, cause, lost),
        fix=fix_of(found, cause),
        gain=_gain(lost, pieces, events) + (_WAIT if _waits(context, ids) else ""),
        verify=context.try_command(change) if change else context.check_command("--max-graph-breaks 0"),
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


def _severity(ids: list[str], skipped: bool) -> Severity:
    if ids[0] == "library-code" and not skipped:
        return "low"
    if skipped:
        return "high"
    return kinds()[ids[0]].severity


def plain_function(function: str) -> str:
    """The user's name of a resumed function."""
    resumed = _RESUME.match(function)
    return resumed[1] if resumed else function


def _cause_sentence(found: GraphBreak, cause: BreakCause, skipped: bool) -> str:
    meaning = kinds()[cause.ids[0]].meaning
    named = f" ({cause.callee.name})" if cause.callee.name and not cause.callee.name.startswith("aten._local") else ""
    text = meaning.rstrip(".") + named + "."
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
            and (resumed := _RESUME.match(compile_.function))
            and (compile_.file, int(resumed[2])) in lines
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


def _merge_lines(made: list[tuple[tuple[str, int], Finding]]) -> list[Finding]:
    """Two causes at one line are one finding: mending the first reveals the second."""
    by_line: dict[tuple[str, int], Finding] = {}
    alone = []
    for site, finding in sorted(made, key=lambda each: -each[1].cost):
        first = by_line.get(site)
        if not site[1]:
            alone.append(finding)
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
        if finding.fix not in first.fix:
            first.fix += f"\nThen, at the same line ({finding.ids[0]}): {finding.fix}"
    return [*by_line.values(), *alone]
