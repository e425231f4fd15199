"""One finding where several ranks have the same: ranks run one program, so a fault in it shows on each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fxscope.recording.spans import spans

if TYPE_CHECKING:
    from fxscope.diagnosis.findings import Finding

_RANK = re.compile(r"^r(\d+):")


def join_ranks(found: list[Finding]) -> list[Finding]:
    """Findings that are equal but for the rank, told once, with the ranks in the title and all their evidence.

    The finding of the rank that lost most speaks for all, so its gain is that rank's.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in found:
        groups.setdefault((tuple(finding.ids), finding.title, finding.file, finding.line), []).append(finding)
    joined = []
    for same in groups.values():
        ranks = sorted({int(m[1]) for f in same for e in f.evidence if (m := _RANK.match(e.compile_key))})
        if len(same) == 1 or len(ranks) < 2:
            joined += same
            continue
        worst = max(same, key=lambda finding: finding.cost)
        worst.title += f" on ranks {spans(ranks)}"
        worst.evidence = [evidence for finding in same for evidence in finding.evidence]
        joined.append(worst)
    return joined
