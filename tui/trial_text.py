"""What ``fxscope try`` answered, in lines: a row per change, judged against the program as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .frames import seconds_text
from .spans import Cell
from .widgets.document import Block, heading

SIGNS = {
    "better": ("\u2714", "good"),
    "same": ("\u00b7", "dim"),
    "worse": ("\u25b2", "warn"),
    "mixed": ("\u25b3", "warn"),
    "changed results": ("\u2716", "bad"),
    "fails": ("\u2716", "bad"),
}
HEAD = "graphs  breaks  recompiles  limit  compiling       run"


def trial_blocks(document: Mapping[str, Any]) -> list[Block]:
    """A heading and a table."""
    program = " ".join(map(str, document.get("program", ())))
    lines: list[Cell] = [[(f"    {'change':<18}{HEAD}", "dim")], _row("as it is", document["base"], "", [])]
    for judged in document.get("changes", ()):
        outcome = judged["outcome"]
        lines.append(_row(str(outcome["change"]), outcome, str(judged["verdict"]), judged.get("reasons", ())))
    if not document.get("changes"):
        lines.append([("    nothing to try: no finding proposes a change", "dim")])
    if document.get("reproducible") is False:
        lines.append([("    the program prints something else each time: its output was not compared", "dim")])
    return [heading("TRIED", program), Block(lines, ("tried", 0), 26)]


def _row(name: str, outcome: Mapping[str, Any], verdict: str, reasons: Any) -> Cell:
    sign, style = SIGNS.get(verdict, (" ", ""))
    problem = str(outcome.get("problem") or "")
    words = "; ".join([verdict, *map(str, reasons)]) if verdict else ""
    return [
        (f"  {sign} ", style),
        (f"{name:<18}", "strong"),
        (f"{outcome['graphs']:>6}  {outcome['graph_breaks']:>6}  {outcome['recompiles']:>10}  ", ""),
        (f"{outcome['limit_hits']:>5}  ", "bad" if outcome["limit_hits"] else ""),
        (f"{seconds_text(outcome['compile_seconds']):>9}  {seconds_text(outcome['seconds']):>8}", ""),
        (f"   {words}", style),
        (f"   {problem}" if problem not in words else "", "bad"),
    ]
