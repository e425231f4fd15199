"""Overview: what is wrong, worst first, and the totals."""

from __future__ import annotations

import os
import shlex
from typing import Any

from textual.app import ComposeResult

from ..export_text import export_blocks, ordered
from ..frames import site
from ..spans import Cell, Span
from ..store import Parts, Snapshot
from ..totals_text import ending, more, ranks, run, totals
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
        self._parts = Parts()
        self._parts_of = (0, 0)

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
        blocks = [
            *(trial_blocks(self._tried) if self._tried else ()),
            *self._findings(snapshot),
            *self._failures(snapshot),
            *(export_blocks(self._parts.export) if self._parts.export is not None else ()),
            *totals(snapshot),
            *ranks(snapshot),
            *more(self._parts.blocks),
            *run(snapshot),
        ]
        first, *rest = blocks
        self.document.show([first._replace(lines=first.lines[1:]), *rest])  # no empty line on top

        seen = (len(snapshot.compiles), len(snapshot.artifacts))
        if seen != self._parts_of:
            self._parts_of = seen
            # After the findings are on the screen: they come first.
            self.call_after_refresh(self.load, self.scope.store.parts, self._take_parts, "parts")

    def _take_parts(self, parts: Parts) -> None:
        if parts != self._parts:
            self._parts = parts
            if self.snapshot is not None:
                self.take(self.snapshot)

    def _findings(self, snapshot: Snapshot) -> list[Block]:
        findings = snapshot.findings
        if not findings:
            return [heading("FINDINGS"), Block(_nothing_wrong(snapshot))]
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

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """Go to what the finding is about."""
        event.stop()
        key = self.document.key
        if not isinstance(key, tuple) or self.snapshot is None:
            return
        kind, number = key
        if kind == "time":
            self.scope.goto("timeline")
        elif kind == "export" and self._parts.export is not None:
            programs = self._parts.export.programs
            self.scope.goto("code", "text", programs[0] if programs else -1)
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
        if isinstance(key, tuple) and key[0] == "export" and self._parts.export is not None:
            issues = ordered(self._parts.export)
            line = issues[key[1]].line if key[1] < len(issues) else None
            return (line.file, line.line) if line is not None else None
        return None

    def data(self) -> Any:
        """Totals and findings."""
        if self.snapshot is None:
            return None
        known = self.snapshot
        return {
            "totals": known.totals,
            "findings": known.findings,
            "export": self._parts.export,
            "session": known.session,
        }


def _nothing_wrong(snapshot: Snapshot) -> list[Cell]:
    session = snapshot.session
    if not session.exit_code:
        return [[("  \u2714 ", "good"), ("nothing is wrong" + " so far" * (session.state == "live"), "")]]
    return [
        [("  \u2714 ", "good"), ("nothing is wrong with what was compiled", "")],
        [("  \u2716 ", "bad"), (f"the program {ending(session.exit_code)}; 0 shows what it printed", "")],
    ]
