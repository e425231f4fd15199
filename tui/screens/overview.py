"""Overview: what is wrong, worst first, and the totals."""

from __future__ import annotations

import os
import shlex
import signal
from typing import Any

from textual.app import ComposeResult

from ..frames import seconds_text, site
from ..spans import Cell, Span
from ..store import Snapshot
from ..trial_text import trial_blocks
from ..widgets.document import Block, Document, heading
from ..widgets.line_view import LineView
from .job_view import JobRunner
from .pick import PromptScreen

SEVERITY = {
    "high": ("\u2716", "bad"),
    "medium": ("\u25b2", "warn"),
    "low": ("\u25b3", "info"),
    "info": ("\u00b7", "dim"),
}
VIEW_OF = {
    "break": "breaks",
    "recompile": "recompiles",
    "limit": "recompiles",
    "compile": "graph",
    "failure": "overview",
}
BAR = 24  # cells of a full bar


def ending(code: int | None) -> str:
    """How a program ended, in words."""
    if code is None:
        return "ended; its exit code is unknown"
    if code == 0:
        return "ended normally (exit code 0)"
    if code > 128:
        try:
            return f"ended by signal {signal.Signals(code - 128).name} (exit code {code})"
        except ValueError:
            return f"ended with exit code {code}"
    return f"ended with exit code {code}"


def bar(part: float, whole: float, cells: int = BAR) -> str:
    """A horizontal bar in eighths of a cell."""
    eighths = round(8 * cells * part / whole) if whole > 0 else 0
    full, rest = divmod(min(eighths, 8 * cells), 8)
    return "\u2588" * full + ("" if not rest else chr(0x2590 - rest)) or ("\u258f" if part > 0 else "")


class Overview(JobRunner):
    """Findings and totals."""

    NAME = "overview"
    TERMS = "Finding: one thing that is wrong. Site: a source line. Seconds: compile time."
    EMPTY = (
        "Nothing has been compiled yet.\n\n"
        "This fills as soon as a torch.compile'd function is called for the first time.\n"
        "While you wait: 0 shows the program's own output, ? the keys."
    )

    def __init__(self) -> None:
        super().__init__()
        self._tried: dict[str, Any] | None = None  # the last answer of ``fxscope try``

    def body(self) -> ComposeResult:
        """One document."""
        yield Document(id="overview-text").add_class("body")

    @property
    def document(self) -> Document:
        """The text."""
        return self.query_one(Document)

    def take(self, snapshot: Snapshot) -> None:
        """Write the page."""
        self.snapshot = snapshot
        if (
            not snapshot.compiles
            and not snapshot.failures
            and (not snapshot.findings or snapshot.session.state == "live")
        ):
            if snapshot.session.state == "ended":
                self.empty(
                    "Nothing was compiled: this program never called a torch.compile'd function, or the compiled part was "
                    f"not reached.\n\nThe program {ending(snapshot.session.exit_code)}.\n0 shows what it printed, where it was kept."
                )
            else:
                self.empty(snapshot.error)
            return
        self.filled()
        blocks = [*(trial_blocks(self._tried) if self._tried else ())]
        blocks += [
            *self._findings(snapshot),
            *self._failures(snapshot),
            *self._totals(snapshot),
            *self._ranks(snapshot),
        ]
        blocks += self._session(snapshot)
        first, *rest = blocks
        self.document.show([first._replace(lines=first.lines[1:]), *rest])  # no empty line on top

    def _findings(self, snapshot: Snapshot) -> list[Block]:
        findings = snapshot.findings
        if not findings:
            return [heading("FINDINGS"), Block([[("  \u2714 ", "good"), ("nothing is wrong", "")]])]
        blocks = [heading("FINDINGS", "worst first; n next, enter opens, v runs the check")]
        for number, finding in enumerate(findings):
            sign, style = SEVERITY.get(finding.severity, ("\u00b7", "dim"))
            title: list[Span] = [(f"  {sign} ", style), (finding.title, "strong")]
            if finding.file:
                title.append((f"   {site(finding.file, finding.line)}", "name"))
            lines: list[Cell] = [title]
            if finding.code:
                lines.append([("      ", ""), (finding.code.strip().split("\n")[0][:160], "string")])
            if finding.cause:
                lines.append([("      ", ""), (finding.cause, "")])
            for count, part in enumerate(finding.fix.split("\n") if finding.fix else ()):
                lines.append([("      fix   " if not count else "            ", "good"), (part, "")])
            if finding.gain:
                lines.append([("      gain  ", "dim"), (finding.gain, "")])
            if finding.verify:
                lines.append([("      try   ", "dim"), (finding.verify, "dim")])
            blocks.append(Block(lines, ("finding", number), 12))
        return blocks

    def _failures(self, snapshot: Snapshot) -> list[Block]:
        if not snapshot.failures:
            return []
        blocks = [heading("FAILURES", "compiles that raised")]
        for number, failure in enumerate(snapshot.failures):
            message = failure.message.strip().splitlines() or [""]
            lines: list[Cell] = [
                [("  \u2716 ", "bad"), (f"{failure.id}  {failure.phase}  {failure.type}", "strong")]
                + ([(f"   {site(failure.file, failure.line)}", "name")] if failure.file else []),
                [("      ", ""), (message[0], "")],
            ]
            blocks.append(Block(lines, ("failure", number), 6))
        return blocks

    def _totals(self, snapshot: Snapshot) -> list[Block]:
        totals = snapshot.totals
        lines: list[Cell] = [
            [
                ("  frames ", "dim"),
                (f"{totals.frames}", ""),
                ("   compiles ", "dim"),
                (f"{totals.compiles}", ""),
                ("   graphs ", "dim"),
                (f"{totals.graphs}", ""),
                ("   breaks ", "dim"),
                (f"{totals.graph_breaks} at {totals.break_sites} sites", "warn" if totals.graph_breaks else ""),
                ("   recompiles ", "dim"),
                (f"{totals.recompiles}", "warn" if totals.recompiles else ""),
                ("   limit hits ", "dim"),
                (f"{totals.limit_hits}", "bad" if totals.limit_hits else ""),
                ("   failures ", "dim"),
                (f"{totals.failures}", "bad" if totals.failures else ""),
            ]
        ]
        blocks = [heading("TOTALS"), Block(lines)]
        phases: dict[str, float] = {}
        caches: dict[tuple[str, str], int] = {}
        for compile_ in snapshot.compiles:
            for name, seconds in compile_.phases.items():
                phases[name] = phases.get(name, 0.0) + seconds
            for name, result in compile_.caches.items():
                caches[name, result] = caches.get((name, result), 0) + 1
        time: list[Cell] = [[("  compile time ", "dim"), (f"{totals.compile_seconds:.1f} s", "strong")]]
        whole = max(sum(phases.values()), 1e-9)
        width = max((len(name) for name in phases), default=0)
        for name, seconds in sorted(phases.items(), key=lambda item: -item[1]):
            share = f"{seconds / whole:>4.0%}"
            time.append(
                [
                    (f"    {name:<{width}} ", ""),
                    (f"{seconds_text(seconds):>6} {share} ", "dim"),
                    (bar(seconds, whole), "info"),
                ]
            )
        blocks.append(Block(time, ("time", 0)))
        if caches:
            parts = [f"{name} {result} {number}" for (name, result), number in sorted(caches.items())]
            blocks.append(Block([[("  caches ", "dim"), (", ".join(parts), "")]]))
        return blocks

    def _ranks(self, snapshot: Snapshot) -> list[Block]:
        """The all-ranks table, where there are several."""
        ranks = sorted({compile_.rank for compile_ in snapshot.compiles if compile_.rank is not None})
        if len(ranks) < 2:
            return []
        lines: list[Cell] = [[("  rank  compiles  recompiles   breaks  failures   compile time", "dim")]]
        seconds = {rank: sum(c.seconds or 0 for c in snapshot.compiles if c.rank == rank) for rank in ranks}
        slowest = max(seconds.values())
        for rank in ranks:
            part = snapshot.of_rank(rank)
            lines.append(
                [
                    (f"  {rank:>4}  ", "strong"),
                    (
                        f"{len(part.compiles):>8}  {len(part.recompiles):>10}  {sum(b.count for b in part.graph_breaks):>7}  ",
                        "",
                    ),
                    (f"{len(part.failures):>8}   ", "bad" if part.failures else ""),
                    (f"{seconds_text(seconds[rank]):>6} ", ""),
                    (bar(seconds[rank], slowest, 16), "info"),
                ]
            )
        return [heading("RANKS", "R shows one rank at a time"), Block(lines)]

    def _session(self, snapshot: Snapshot) -> list[Block]:
        session = snapshot.session
        rows: list[tuple[str, str]] = [("recording", session.path)]
        if session.argv:
            rows.append(("program", " ".join(session.argv)))
        if session.cwd:
            rows.append(("in", session.cwd))
        rows.append(("state", "runs" if session.state == "live" else ending(session.exit_code)))
        versions = [
            f"torch {session.torch}" if session.torch else "",
            f"Python {session.python}" if session.python else "",
        ]
        rows.append(("with", ", ".join([part for part in versions if part] + session.devices) or "unknown versions"))
        rows.append(("processes", f"{session.processes}" + (f", ranks {len(session.ranks)}" if session.ranks else "")))
        for name, value in session.config.items():
            rows.append(("setting", f"{name} = {value}"))
        rows += [("note", note) for note in session.notes]
        if snapshot.error:
            rows.append(("note", snapshot.error))
        lines: list[Cell] = [[(f"  {label:<10} ", "dim"), (value, "")] for label, value in rows]
        return [heading("RUN"), Block(lines, None, 13)]

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Go to what the finding is about."""
        event.stop()
        key = self.document.key
        if not isinstance(key, tuple) or self.snapshot is None:
            return
        kind, number = key
        if kind == "time":
            self.scope.goto("timeline")
        elif kind == "failure":
            failure = self.snapshot.failures[number]
            if failure.compile_key:
                self.scope.select_compile(failure.compile_key)
            self.scope.goto("graph")
        elif kind == "finding":
            self._open(self.snapshot.findings[number])

    def _open(self, finding: Any) -> None:
        evidence = next((item for item in finding.evidence if item.kind in VIEW_OF), None)
        if evidence is None:
            self.notify("this finding is about the run as a whole")
            return
        if evidence.compile_key:
            self.scope.select_compile(evidence.compile_key)
        self.scope.goto(VIEW_OF[evidence.kind], evidence.kind, evidence.index)

    def finding(self) -> Any | None:
        """The finding under the cursor."""
        key = self.document.key
        if isinstance(key, tuple) and key[0] == "finding" and self.snapshot is not None:
            return self.snapshot.findings[key[1]]
        return None

    def do_verify(self) -> None:
        """Ask, then run the command that tries the fix: it runs the program again, which a recording may not decide."""
        finding = self.finding()
        if finding is None and self.snapshot is not None:  # not on a finding: the worst that has a check
            finding = next((found for found in self.snapshot.findings if found.verify), None)
        if finding is None or not finding.verify:
            self.notify("this finding has no `try` line" if finding else "no finding has a `try` line")
            return

        if not finding.verify.startswith("fxscope try "):
            self.scope.copy(finding.verify)
            return

        def done(command: str | None) -> None:
            if command is not None:
                self._try(command)

        where = self._folder() or os.getcwd()
        note = f"runs the program again, once as it is and once per change, in {where}"
        self.app.push_screen(PromptScreen("Run this check?", finding.verify, note), done)

    def _folder(self) -> str | None:
        """Where the program ran, if that is on this machine."""
        cwd = self.snapshot.session.cwd if self.snapshot else ""
        return cwd if cwd and os.path.isdir(cwd) else None

    def _try(self, command: str) -> None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            self.notify(f"not a command: {error}")
            return
        if words[:2] != ["fxscope", "try"]:
            self.notify("only `fxscope try ...` is run from here")
            return
        self.start(["try", "--json", *words[2:]], self._answered, self._folder())

    def _answered(self, document: Any) -> None:
        if document is not None:
            self._tried = document
        self._tell_tried()
        if self.snapshot is not None:
            self.take(self.snapshot)
        if document is not None:
            self.document.to_key(("tried", 0))

    def _tell_tried(self) -> None:
        folder = os.path.dirname(str(self._tried["base"].get("recording", ""))) if self._tried else ""
        self.tell(*([[("tried; recordings in ", "dim"), (folder, "name")]] if folder else []))

    def failed(self, problem: str) -> None:
        """Say that it came to nothing."""
        self._tell_tried()
        self.notify(problem, severity="error", timeout=20)

    def source_line(self) -> tuple[str, int] | None:
        """Where the finding is."""
        finding = self.finding()
        if finding is not None and finding.file:
            return finding.file, finding.line
        key = self.document.key
        if isinstance(key, tuple) and key[0] == "failure" and self.snapshot is not None:
            failure = self.snapshot.failures[key[1]]
            return (failure.file, failure.line) if failure.file else None
        return None

    def data(self) -> Any:
        """Totals and findings."""
        if self.snapshot is None:
            return None
        return {"totals": self.snapshot.totals, "findings": self.snapshot.findings, "session": self.snapshot.session}
