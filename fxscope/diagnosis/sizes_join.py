"""Sizes that changed once and are dynamic since (and gradients that are there since), told once per call of the user's: behind graph breaks every piece has a recompile of its own."""

from __future__ import annotations

from collections import defaultdict

from fxscope.diagnosis.context import Context, short_seconds
from fxscope.diagnosis.findings import Finding
from fxscope.diagnosis.story import plain_function
from fxscope.recording.userline import is_user_file
from fxscope.words import count

_FEW = 3  # fewer findings than this are told one by one
_SIZES = frozenset({"dynamic-size", "changing-number", "break-value"})
_GRADIENTS = frozenset({"grad-mode"})
_NAMED = 4


def join_sizes(context: Context, found: list[Finding]) -> list[Finding]:
    """Benign recompiles of library functions for sizes, and for gradients, at one line of the user's, as one finding of each.

    Args:
        context: The recording.
        found: Findings of recompiles, a function each.
    """
    groups: dict[tuple[str, int, frozenset[str]], list[Finding]] = defaultdict(list)
    for finding in found:
        kind = next((each for each in (_SIZES, _GRADIENTS) if set(finding.ids) <= each), None)
        if kind is not None and finding.severity == "info" and _in_library(context, finding):
            groups[finding.file, finding.line, kind].append(finding)
    joined = {id(each): group for group in groups.values() if len(group) >= _FEW for each in group}
    kept = []
    for finding in found:
        group = joined.get(id(finding))
        if group is None:
            kept.append(finding)
        elif group[0] is finding:
            kept.append(_one_of(context, group))
    return kept


def _in_library(context: Context, finding: Finding) -> bool:
    rows = [context.recording.recompiles[each.index] for each in finding.evidence if each.kind == "recompile"]
    return bool(rows) and not any(is_user_file(row.file) for row in rows)


def _one_of(context: Context, group: list[Finding]) -> Finding:
    evidence = [each for finding in group for each in finding.evidence]
    rows = [context.recording.recompiles[each.index] for each in evidence if each.kind == "recompile"]
    names = list(dict.fromkeys(plain_function(row.function) for row in rows))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    seconds = sum(compile_.seconds or 0.0 for row in rows if (compile_ := context.by_key.get(row.key)) is not None)
    first = group[0]
    first.ids = list(dict.fromkeys(id_ for finding in group for id_ in finding.ids))
    why = "gradients in some calls" if first.ids == ["grad-mode"] else "sizes that became dynamic"
    first.title = f"{count(len(rows), 'recompile')} of {len(group)} functions that one call reaches: {why}"
    functions = f"each function behind a graph break ({', '.join(names[:_NAMED])}{more}) was compiled once more"
    if first.ids == ["grad-mode"]:
        first.cause = f"Tensors that this call hands on need gradients in some calls and not in others, so {functions}; nothing more will come of it."
        first.fix = "Nothing is to be done: two graphs of each are the least. Every graph break less is one function less that recompiles."
    else:
        first.cause = (
            f"Sizes of what this call is given changed, so {functions}, "
            "with symbolic sizes; from then on they are dynamic, and nothing more will come of it."
        )
        first.fix = (
            "torch.compile(..., dynamic=True) saves these recompiles, or torch._dynamo.mark_dynamic on the arguments whose sizes change, before the first call. "
            "Every graph break less is one function less that recompiles."
        )
        first.change = "dynamic"
    first.gain = f"{count(len(rows), 'graph')} fewer; {short_seconds(seconds)} of compile time (measured)"
    first.evidence = evidence
    first.cost = sum(finding.cost for finding in group)
    return first
