"""Findings of third parties: entry points ``fxscope.findings``, each a function from a recording to findings."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from fxscope.diagnosis.findings import Finding

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording

GROUP = "fxscope.findings"


def plugin_findings(recording: Recording) -> list[Finding]:
    """What every installed plugin finds. One that raises is told as a finding; the others still speak."""
    found: list[Finding] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            made = list(entry.load()(recording))
            wrong = next((item for item in made if not isinstance(item, Finding)), None)
            if wrong is not None:
                raise TypeError(f"it gave {type(wrong).__name__}, not fxscope.diagnosis.findings.Finding")
            found += made
        except Exception as error:  # noqa: BLE001 - somebody else's code; what went wrong is shown
            found.append(
                Finding(
                    ids=["plugin-failed"],
                    category="failure",
                    severity="info",
                    title=f"the finding plugin '{entry.name}' failed: {type(error).__name__}: {error}",
                    cause=f"{entry.value} raised while it read this recording.",
                    fix="Update or uninstall the package that brings it.",
                )
            )
    return found
