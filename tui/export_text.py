"""What torch.export logged, in lines: what it had to assume, what it asked, and where, as the report says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .frames import site
from .spans import Cell, Span
from .widgets.document import Block, heading

if TYPE_CHECKING:
    from fxscope.recording.export import ExportIssue, ExportReport

STEPS = 12  # of how an expression came about


def ordered(export: ExportReport) -> list[ExportIssue]:
    """What was assumed, then what was only asked."""
    return sorted(export.issues, key=lambda issue: issue.kind == "guard")


def export_blocks(export: ExportReport) -> list[Block]:
    """A block per question; its key is ``("export", number)`` in the order of ``ordered``."""
    programs, questions = len(export.programs), len(export.issues)
    counts = f"{programs} program{'s' * (programs != 1)}, {questions} open question{'s' * (questions != 1)}"
    blocks = [heading("EXPORT", f"{counts}; enter shows the program")]
    if not questions:
        blocks.append(Block([[("  \u2714 ", "good"), ("nothing was assumed", "")]], ("export", 0)))
    for number, issue in enumerate(ordered(export)):
        assumed = issue.kind != "guard"
        head: list[Span] = [("  \u25b2 " if assumed else "  \u00b7 ", "warn" if assumed else "dim")]
        head += [(f"{issue.kind}  ", "dim"), (issue.expression or issue.op, "strong")]
        head.append((f" was {issue.result}" if issue.result else "", ""))
        head.append((f"  \u00d7{issue.count}" if issue.count > 1 else "", "dim"))
        lines: list[Cell] = [head]
        if issue.line is not None:
            where = site(issue.line.file, issue.line.line)
            lines.append([("      ", ""), (where, "name"), (f"  {issue.line.code.strip()}", "string")])
        if issue.reason:
            lines.append([("      ", ""), (issue.reason, "")])
        if assumed and issue.variables:
            values = ", ".join(f"{name} = {value}" for name, value in issue.variables.items())
            lines.append([("      with  ", "dim"), (values, "")])
        if assumed and issue.history:
            made = " \u2192 ".join(
                f"{step.method}({', '.join(step.arguments)}) = {step.result}" for step in issue.history[:STEPS]
            )
            more = len(issue.history) - STEPS
            lines.append([("      from  ", "dim"), (made, ""), (f" \u2026 {more} more steps" * (more > 0), "dim")])
        blocks.append(Block(lines, ("export", number), 12))
    return blocks
