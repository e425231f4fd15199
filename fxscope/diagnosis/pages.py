"""Two pages of the documentation, made from the tables: ``python -m fxscope.diagnosis.pages docs``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from fxscope.diagnosis.findings import kinds
from fxscope.diagnosis.registry import advice, entries

_CATEGORIES = {
    "recompiles": "Recompiles",
    "breaks": "Graph breaks",
    "failure": "Failures",
    "nothing-compiled": "Nothing compiled",
    "wrong": "Silently wrong",
    "cost": "Cost",
}


def findings_page() -> str:
    """Every finding id, by category."""
    lines = [
        "# Findings",
        "",
        "Every finding of `fxscope diagnose` carries ids: what it is, then its causes and effects. The severity is that of a",
        "finding which the id leads; the evidence can raise or lower it (one benign recompile is `info`, a storm is `high`).",
        "A healthy program has no finding above `info`. This page is made from `fxscope/diagnosis/findings.toml`.",
    ]
    for category, title in _CATEGORIES.items():
        lines += ["", f"## {title}", "", "| id | severity | what it means |", "|---|---|---|"]
        lines += [
            f"| `{kind.id}` | {kind.severity} | {kind.meaning} |"
            for kind in kinds().values()
            if kind.category == category
        ]
    return "\n".join(lines) + "\n"


def graph_breaks_page() -> str:
    """Every id of torch's registry of graph breaks, with its cause family and advice."""
    table = entries()
    lines = [
        "# Graph breaks",
        "",
        f"Torch's registries know {len(table)} kinds of graph break (torch 2.11 to 2.15). Each has a cause family, which is a finding id",
        "([findings](findings.md)), and an advice. What a break names (the function, the operator) and where it lies sharpen the",
        "cause: a skipped function that is `time.perf_counter` is `clock`, one that lies in an installed package is `library-code`.",
        "Where the user's line can be rewritten, the finding shows it before and after.",
        "An id that a newer torch adds takes the cause of the entry whose title is nearest.",
        "This page is made from `fxscope/diagnosis/graph_breaks.json` and `advice.toml`.",
        "",
        "| cause family | ids |",
        "|---|---|",
    ]
    lines += [
        f"| `{cause}` | {number} |" for cause, number in Counter(entry.cause for entry in table.values()).most_common()
    ]
    lines += ["", "## Every id", "", "| id | title | cause | advice |", "|---|---|---|---|"]
    for id_, entry in sorted(table.items()):
        lines.append(f"| {id_} | {_cell(entry.title)} | `{entry.cause}` | {_cell(advice(entry.advice))} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(folder: str) -> None:
    """Write both pages into a folder."""
    (Path(folder) / "findings.md").write_text(findings_page(), encoding="utf-8")
    (Path(folder) / "graph_breaks.md").write_text(graph_breaks_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
