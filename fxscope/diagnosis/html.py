"""Findings as an HTML fragment for notebooks: no scripts, no resources, everything escaped."""

from __future__ import annotations

from html import escape

from fxscope.diagnosis.findings import Finding
from fxscope.recording.records import Totals
from fxscope.words import count

_COLOURS = {"high": "#b3261e", "medium": "#8a5a00", "low": "#3b6939", "info": "#555555"}


def findings_table(findings: list[Finding], totals: Totals | None = None) -> str:
    """One table; a healthy run is one sentence."""
    head = ""
    if totals is not None:
        head = (
            f"<p>{count(totals.graphs, 'graph')}, {count(totals.graph_breaks, 'graph break')}, {count(totals.recompiles, 'recompile')}, "
            f"{totals.compile_seconds:.1f} s of compiling</p>"
        )
    if not findings:
        return head + "<p>Nothing is wrong.</p>"
    rows = "".join(_row(finding) for finding in findings)
    return f"{head}<table><thead><tr><th>severity</th><th>where</th><th>what</th><th>fix</th></tr></thead><tbody>{rows}</tbody></table>"


def _row(finding: Finding) -> str:
    where = escape(finding.site) + (f"<br><code>{escape(finding.code)}</code>" if finding.code else "")
    what = (
        f"<b>{escape(finding.title)}</b><br>{escape(finding.cause)}<br><small>{escape(', '.join(finding.ids))}</small>"
    )
    return (
        f'<tr><td style="color:{_COLOURS[finding.severity]}">{finding.severity}</td><td>{where}</td><td style="text-align:left">{what}</td>'
        f'<td style="text-align:left"><pre style="white-space:pre-wrap">{escape(finding.fix)}</pre></td></tr>'
    )
