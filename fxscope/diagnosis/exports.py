"""What torch.export had to assume: conditions on data that it decided for the example inputs, fake kernels missing or wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.recording.export import ExportIssue, read_export

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


def export_findings(recording: Recording) -> list[Finding] | None:
    """Findings about an export; None where nothing was exported. Guards that the program asked for itself are none."""
    report = read_export(recording)
    if report is None:
        return None
    return [
        _assumed(issue) if issue.kind == "data-dependent" else _kernel(issue)
        for issue in report.issues
        if issue.kind != "guard"
    ]


def _assumed(issue: ExportIssue) -> Finding:
    holds = issue.result.strip().lower() != "false"
    condition = issue.expression if holds else f"not ({issue.expression})"
    history = [f"{step.result} = {step.method}({', '.join(step.arguments)})" for step in issue.history]
    return _finding(
        issue,
        "export-data-dependent",
        f"export decided that {issue.expression} is {issue.result or 'true'}",
        f"The condition {issue.expression} depends on data, so the export took the answer of the example inputs; the program that it "
        "made is wrong where the answer is another.",
        f"Where it always holds, say so before the line: torch._check({condition}), in terms of your own variables. Where it "
        "does not, replace the branch by torch.cond or torch.where.",
        [f"made by {step}" for step in history],
    )


def _kernel(issue: ExportIssue) -> Finding:
    missing = issue.kind == "missing-fake-kernel"
    return _finding(
        issue,
        "export-fake-kernel",
        f"{issue.op} has {'no' if missing else 'a wrong'} fake kernel",
        (
            f"Export needs to know what {issue.op} returns without running it, and ran it instead"
            if missing
            else f"What the fake kernel of {issue.op} says differs from what the operator returned"
        )
        + (f": {issue.reason}." if issue.reason else "."),
        f'{"Register" if missing else "Correct"} it: @torch.library.register_fake("{_qualified(issue.op)}"), which returns empty tensors of the '
        "right shape, dtype, device and strides.",
        [],
    )


def _qualified(op: str) -> str:
    """``my::sort`` of ``my.sort.default``."""
    parts = op.removeprefix("torch.ops.").split(".")
    return op if "::" in op or len(parts) < 2 else f"{parts[0]}::{parts[1]}"


def _finding(issue: ExportIssue, id_: str, title: str, cause: str, fix: str, notes: list[str]) -> Finding:
    line = issue.line
    notes = [f"with {name} = {value}" for name, value in issue.variables.items()] + notes
    return Finding(
        ids=[id_],
        category="wrong",
        severity="medium",
        title=title + (f" at {line.site}" if line else ""),
        file=line.file if line else "",
        line=line.line if line else 0,
        function=line.function if line else "",
        code=line.code if line else "",
        cause=cause,
        fix=fix,
        evidence=[Evidence(kind="note", text=note) for note in notes],
        cost=float(issue.count),
    )
