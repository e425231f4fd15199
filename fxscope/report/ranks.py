"""The document that ``fxscope ranks --json`` prints."""

from __future__ import annotations

import msgspec

from fxscope.diagnosis.findings import Finding
from fxscope.recording.rank_summary import RankSummary


class RanksDocument(msgspec.Struct, kw_only=True):
    """Every process of a run, and what is wrong between its ranks."""

    schema: str = "fxscope.ranks/1"
    ranks: list[RankSummary]
    findings: list[Finding]
