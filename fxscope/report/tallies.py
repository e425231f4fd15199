"""What the reports count over all compiles: cache lookups, seconds by phase, and whether anything was exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fxscope.recording.export import ExportReport
    from fxscope.recording.recording import Recording


_EXPORT = ("exported_program", "propagate_real_tensors_provenance", "missing_fake_kernel", "mismatched_fake_kernel")


class CacheRow(msgspec.Struct, kw_only=True):
    """How often a cache was looked into, with what outcome and why."""

    cache: str
    outcome: str
    reason: str | None
    count: int


def export_of(recording: Recording) -> ExportReport | None:
    """What torch.export logged; None where nothing was exported."""
    if not any(recording.count(kind) for kind in _EXPORT):
        return None
    from fxscope.recording.export import read_export  # few logs are of an export

    return read_export(recording)


def cache_rows(recording: Recording) -> list[CacheRow]:
    """Cache lookups counted by cache, outcome and reason, most frequent first."""
    counts: dict[tuple[str, str, str | None], int] = {}
    for event in recording.cache_events:
        key = (event.cache, event.outcome, event.reason)
        counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -item[1]))
    return [CacheRow(cache=key[0], outcome=key[1], reason=key[2], count=count) for key, count in ordered]


def phase_seconds(recording: Recording) -> dict[str, float]:
    """Seconds of all attempts by phase, largest first."""
    sums: dict[str, float] = {}
    for row in recording.compiles:
        for name, value in row.phases.items():
            sums[name] = sums.get(name, 0.0) + value
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
