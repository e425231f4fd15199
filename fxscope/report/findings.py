"""Findings for a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fxscope.diagnosis.findings import Category, Evidence, Finding, Severity
from fxscope.recording.records import Totals
from fxscope.report.safe import plain, plain_line

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"high": "bold red", "medium": "yellow", "low": "cyan", "info": "dim"}
_EVIDENCE = 6  # lines of evidence under one finding


class FindingRow(msgspec.Struct, kw_only=True):
    """One finding; ``cost`` orders findings of one severity, ``change`` is what ``fxscope try --what`` can try."""

    ids: list[str]
    category: Category
    severity: Severity
    title: str
    site: str
    file: str
    line: int
    function: str
    code: str
    cause: str
    fix: str
    gain: str
    verify: str
    evidence: list[Evidence]
    cost: float
    change: str


class Measured(msgspec.Struct, kw_only=True):
    """What ``--measure`` found for one graph.

    Attributes:
        eager_ms: Median of one call, run node by node; None where it could not run (then ``problem`` says why).
        compiled_ms: Median of one call of the compiled graph.
        compile_seconds: What compiling it cost in the recorded run.
        pays_after: Calls after which compiling paid, None where it never does.
    """

    id: str
    function: str
    eager_ms: float | None = None
    compiled_ms: float | None = None
    compile_seconds: float | None = None
    calls: int | None = None
    pays_after: int | None = None
    problem: str | None = None


class DiagnoseDocument(msgspec.Struct, kw_only=True):
    """``fxscope diagnose --json``."""

    schema: Literal["fxscope.diagnose/1"] = "fxscope.diagnose/1"
    path: str
    totals: Totals
    findings: list[FindingRow]
    measured: list[Measured] | None = None


def row(finding: Finding) -> FindingRow:
    """One finding as the JSON has it."""
    fields = {name: getattr(finding, name) for name in FindingRow.__struct_fields__ if name != "site"}
    return FindingRow(site=finding.site, **fields)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the document."""
    return msgspec.json.schema(DiagnoseDocument)


def print_findings(console: Console, findings: list[Finding], *, evidence: bool = True) -> None:
    """Each finding as a block: where, what, why, the fix, what it gains and how to check it."""
    from rich.text import Text

    def indented(label: str, text: str, style: str = "") -> None:
        if text:
            body = Text(f"{label}: " if label else "", style="bold").append(
                Text(plain(text), style=style or "not bold")
            )
            # Wrapped by hand: a Padding would fill lines up with blanks, which a reader of a pipe copies along.
            for line in body.wrap(console, max(20, console.width - 2)):
                line.rstrip()
                console.print(Text("  ").append(line), soft_wrap=True)

    for number, finding in enumerate(findings, 1):
        if number > 1:
            console.print()
        head = Text(f"{number}. ").append(finding.severity.upper(), style=_STYLES[finding.severity])
        head.append("  ").append(plain_line(finding.title), style="bold")
        console.print(head)
        where = f"{finding.site}" + (f" in {finding.function}" if finding.function else "")
        if finding.file:
            indented("where", where + (f"    {finding.code}" if finding.code else ""))
        indented("ids", ", ".join(finding.ids), "dim")
        indented("cause", finding.cause)
        indented("fix", finding.fix)
        indented("gain", finding.gain)
        if finding.verify:  # one line, however long: it is there to be copied
            console.print(
                Text("  verify: ", style="bold").append(plain_line(finding.verify), style="not bold cyan"),
                soft_wrap=True,
            )
        if evidence and finding.evidence:
            shown = [each.text for each in finding.evidence[:_EVIDENCE]]
            more = len(finding.evidence) - len(shown)
            indented("evidence", "\n".join(shown) + (f"\n... and {more} more (--json has all)" if more else ""), "dim")
