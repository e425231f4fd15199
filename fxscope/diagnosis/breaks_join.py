"""Breaks at many lines of packages, told once per call of the user's: no line of them is the user's, and one change takes them all away."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Finding, kinds, severity_rank
from fxscope.diagnosis.fixes import told_to_package
from fxscope.diagnosis.registry import advice
from fxscope.recording.userline import is_torch_file, is_user_file
from fxscope.source import base_name, package_of
from fxscope.words import count

_FEW = 4  # fewer lines than this are told one by one
_NAMED = 6
_TOLD = 3  # things that a package could do which are told in full


def join_breaks(context: Context, found: list[tuple[tuple[str, int], Finding]]) -> list[Finding]:
    """Findings whose breaks lie in installed packages, reached by one line of the user's, as one.

    What a setting mends that can be tried stays by itself; what other settings mend is joined by setting.

    Args:
        context: The recording.
        found: Findings of breaks, each with the file and line of the break, in their order.
    """
    groups: dict[tuple[str, int, tuple[str, ...]], list[tuple[tuple[str, int], Finding]]] = defaultdict(list)
    for place, finding in found:
        of_package = finding.category == "breaks" and _in_package(place[0]) and (finding.file, finding.line) != place
        if of_package and not finding.change:
            groups[finding.file, finding.line, _settings(finding)].append((place, finding))
    joined = {id(finding): group for group in groups.values() if len(group) >= _FEW for _, finding in group}
    kept = []
    for _, finding in found:
        group = joined.get(id(finding))
        if group is None:
            kept.append(finding)
        elif group[0][1] is finding:
            kept.append(_one_of(context, group))
    return kept


def _settings(finding: Finding) -> tuple[str, ...]:
    """What can be set from outside, by the advice of a finding and of what was found at the same line."""
    begin, end = advice("not-yours-set", name="\0", setting="\1").partition("\0")[2].split("\1")
    return tuple(re.findall(f"{re.escape(begin)}(.+?){re.escape(end)}", finding.fix))


def _in_package(file: str) -> bool:
    return bool(file) and not is_user_file(file) and not is_torch_file(file)


def _one_of(context: Context, found: list[tuple[tuple[str, int], Finding]]) -> Finding:
    group = [finding for _, finding in found]
    package = ", ".join(name for name, _ in Counter(package_of(file) for (file, _), _ in found).most_common())
    places = [place for place, _ in found]
    first = min(group, key=lambda finding: severity_rank(finding.severity))
    causes = [id_ for id_, _ in Counter(finding.ids[0] for finding in group).most_common()]
    rest = [id_ for finding in group for id_ in finding.ids[1:] if id_ != "frame-skipped"]
    skipped = any("frame-skipped" in finding.ids for finding in group)
    evidence = [each for finding in group for each in finding.evidence]
    events = sum(context.recording.graph_breaks[each.index].count for each in evidence if each.kind == "break")
    first.ids = list(dict.fromkeys([*causes, *rest, *(["frame-skipped"] if skipped else [])]))
    first.title = f"{count(events, 'break event')} at {len(places)} lines of {package} that this call reaches" + (
        "; functions of it run eager" if skipped else ""
    )
    meanings = " ".join(f"{kinds()[id_].meaning.rstrip('.')}." for id_ in causes[:2])
    first.cause = f"{package} ({_listed(places)}): {meanings}" + (
        " Functions that Dynamo cannot resume run eager, whole or in part." if skipped else ""
    )
    settings = " and ".join(dict.fromkeys(_settings(first)))
    first.fix = "\n".join(
        [
            advice("not-yours-set" if settings else "not-yours", name=package, setting=settings),
            *_in_packages(found, context.path),
        ]
    )
    first.gain = f"{count(events, 'break event')} fewer, and what stays compiled is one graph (counted, not timed)"
    first.evidence = evidence
    first.cost = sum(finding.cost for finding in group)
    return first


def _in_packages(found: list[tuple[tuple[str, int], Finding]], path: str) -> list[str]:
    """What the packages themselves could do, each thing once with its lines, those with most lines first."""
    lines: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for place, finding in sorted(found, key=lambda each: each[0]):
        package = package_of(place[0])
        for text in told_to_package(finding.fix, package):
            lines[package, text].append(place)
    ordered = sorted(lines.items(), key=lambda item: -len(item[1]))
    told = [f"In {package} itself ({_listed(places)}): {text}" for (package, text), places in ordered[:_TOLD]]
    rest = sorted({place for _, places in ordered[_TOLD:] for place in places})
    return [*told, *([f"What to do at {_listed(rest)}: fxscope report --all {path}"] if rest else [])]


def _listed(places: list[tuple[str, int]]) -> str:
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return ", ".join(f"{base_name(file)}:{line}" for file, line in places[:_NAMED]) + more
