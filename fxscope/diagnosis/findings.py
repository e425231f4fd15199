"""A finding: one thing that is wrong, why, and what fixes it; and the table of the ids that findings carry."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from fxscope.source import base_name

Category = Literal["recompiles", "breaks", "nothing-compiled", "failure", "cost", "wrong"]
Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[str, ...] = ("high", "medium", "low", "info")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One id of the table ``findings.toml``.

    Attributes:
        category: Category of a finding that this id leads.
        severity: Its severity unless the evidence raises or lowers it.
        meaning: One sentence.
    """

    id: str
    category: Category
    severity: Severity
    meaning: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a finding rests on.

    Attributes:
        kind: Which list of the recording holds it.
        text: One line for people.
        compile_key: Key of the compile it belongs to, "" where it belongs to none.
        index: Position in ``graph_breaks``, ``recompiles``, ``limit_hits``, ``failures`` or ``compiles``; -1 for none.
    """

    kind: Literal["break", "recompile", "limit", "failure", "compile", "note"]
    text: str
    compile_key: str = ""
    index: int = -1


class Finding(msgspec.Struct, kw_only=True):
    """One thing that is wrong.

    Attributes:
        ids: What it is, then its causes and effects; all are keys of ``kinds()``.
        file: Path of the line that its reader can change, as logged.
        line: That line, 1-based; 0 where the finding concerns the whole run.
        code: Text of the line, "" where the log has none.
        cause: One sentence.
        fix: What to change, with before and after where there is code for it.
        gain: What the fix is expected to save; says how it was estimated.
        verify: Command that shows whether the fix worked, "" where there is none.
        cost: Ordering within a severity: seconds of compile time or events that it caused.
        change: What ``fxscope try --what`` can try on the unchanged script, "" where only an edit helps.
    """

    ids: list[str]
    category: Category
    severity: Severity
    title: str
    file: str = ""
    line: int = 0
    function: str = ""
    code: str = ""
    cause: str = ""
    fix: str = ""
    gain: str = ""
    verify: str = ""
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    cost: float = 0.0
    change: str = ""

    @property
    def site(self) -> str:
        """``basename:line``, "" where the finding concerns the whole run."""
        return f"{base_name(self.file)}:{self.line}" if self.file else ""


def load_toml(name: str) -> dict[str, dict[str, str]]:
    """A TOML table that lies beside this module."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def kinds() -> dict[str, Kind]:
    """Every id with its meaning, in the order of the table."""
    return {id_: msgspec.convert({"id": id_, **row}, Kind) for id_, row in load_toml("findings.toml").items()}


def severity_rank(severity: str) -> int:
    """0 for the worst."""
    return SEVERITIES.index(severity)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Sorted by severity, then by cost, then by place, so that equal runs print equal reports."""
    return sorted(findings, key=lambda f: (severity_rank(f.severity), -f.cost, f.file, f.line, f.ids))
