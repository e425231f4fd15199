"""The report as a page for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.text import Text

from fxscope.recording.spans import spans
from fxscope.report.columns import FEW_RANKS, once_for_all_ranks, print_compiles, short_path
from fxscope.report.safe import plain, plain_line
from fxscope.report.summary import seconds, summary_line
from fxscope.report.tallies import cache_rows, export_of, phase_seconds
from fxscope.words import count

if TYPE_CHECKING:
    from rich.console import Console

    from fxscope.recording.export import ExportReport, Step
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import FailedGuard, Failure, GraphBreak, Recompile

__all__ = ["MOST", "describe_guard", "print_report", "short_path"]

MOST = 20  # rows of one section, where the reader did not ask for all


def print_report(recording: Recording, console: Console, *, everything: bool = False) -> None:
    """Print the whole page.

    Args:
        recording: What is shown.
        console: Where to; its width is honoured.
        everything: Show every row, instead of the first 20 of a section and how many more there are.
    """
    most = 1 << 30 if everything else MOST
    page = _Page(console, most)
    page.header(recording)
    export = export_of(recording)
    if export is not None:
        page.export(export)
    if not recording.compiles:
        if export is None:
            page.line("Nothing was compiled.", "yellow")
    else:
        page.failures(recording.failures)
        page.breaks(recording.graph_breaks, recording.totals.graph_breaks, recording.totals.break_sites)
        page.recompiles(recording)
        page.compiles(recording)
        page.caches(recording)
        page.time(recording)
        page.blocks(recording, everything)
    page.notes(recording)


class _Page:
    def __init__(self, console: Console, most: int) -> None:
        self._console = console
        self._most = most

    def line(self, text: str, style: str = "", indent: int = 0) -> None:
        """One paragraph, wrapped with a hanging indent."""
        self._print(Text(plain(text), style=style), indent)

    def _print(self, body: Text, indent: int = 0) -> None:
        width = max(20, self._console.width - indent)
        for part in body.wrap(self._console, width):
            part.rstrip()
            self._console.print(Text(" " * indent).append_text(part), soft_wrap=True)

    def _section(self, title: str) -> None:
        self._console.print()
        self._console.print(Text(title, style="bold"))

    def _more(self, shown: int, total: int, what: str) -> None:
        if total > shown:
            self.line(f"… {total - shown} more {what}: --all shows them, --json has them", "dim", 2)

    def header(self, recording: Recording) -> None:
        session, totals = recording.session, recording.totals
        title = " ".join(session.argv) or session.path
        self._print(Text(plain_line(title), style="bold"))
        facts = [
            f"torch {session.torch}" if session.torch else "",
            f"python {session.python}" if session.python else "",
        ]
        if session.processes > 1:
            facts.append(count(session.processes, "process"))
        if session.ranks:
            facts.append(f"ranks {spans(session.ranks)}" if len(session.ranks) > 1 else f"rank {session.ranks[0]}")
        if session.exit_code is not None:
            facts.append(f"exit code {session.exit_code}")
        if session.state == "live":
            facts.append("still running")
        facts += session.devices
        if any(facts):
            self.line(plain_line(" · ".join(fact for fact in facts if fact)), "dim")
        self._console.print()
        body = Text()
        for number, noun, bad in (
            (totals.frames, "frame", False),
            (totals.compiles, "compile", False),
            (totals.graphs, "graph", False),
            (totals.graph_breaks, "graph break", True),
            (totals.recompiles, "recompile", True),
            (totals.limit_hits, "limit hit", True),
            (totals.failures, "failure", True),
        ):
            body.append(count(number, noun), style="bold yellow" if bad and number else "bold" if number else "dim")
            body.append(", ")
        body.append(f"{seconds(totals.compile_seconds)} compiling", style="bold")
        self._print(body)
        self.line(summary_line(recording), "cyan")

    def failures(self, rows: list[Failure]) -> None:
        if not rows:
            return
        self._section(f"Failures: {len(rows)}")
        for row in rows[: self._most]:
            head = Text(f"  {plain_line(row.compile_key or row.id):<8} ", style="bold red")
            head.append(plain_line(f"{row.type} in {row.phase}"))
            self._print(head)
            if row.file:
                self.line(f"at {short_path(row.file)}:{row.line}" + self._code_of(row), "", 11)
            message = row.message.strip().split("\n")
            self.line("\n".join(message[:6]), "dim", 11)
            if len(message) > 6:
                self.line(f"… {len(message) - 6} more lines of the message: --json has them", "dim", 11)
        self._more(self._most, len(rows), "failures")

    @staticmethod
    def _code_of(row: Failure) -> str:
        code = next((frame.code for frame in row.stack if (frame.file, frame.line) == (row.file, row.line)), "")
        return f"  {plain_line(code)}" if code else ""

    def breaks(self, rows: list[GraphBreak], total: int, sites: int) -> None:
        if not rows:
            return
        self._section(f"Graph breaks: {total} at {count(sites, 'line')}")
        told: dict[str, str] = {}  # one cause has one advice, however many lines it breaks at
        for row in rows[: self._most]:
            head = Text(f"{row.count:>5}× ", style="bold yellow")
            head.append(f"{short_path(row.file)}:{row.line}", style="bold")
            if row.function:
                head.append(f" in {plain_line(row.function)}")
            if row.gb_id:
                head.append(f"  {plain_line(row.gb_id)}", style="dim")
            self._print(head)
            if row.code:
                self.line(plain_line(row.code), "cyan", 7)
            kind = row.kind or row.reason.split("\n", 1)[0]
            self.line(kind + (" — frame skipped" if row.skipped_frame else ""), "", 7)
            if (row.user_file, row.user_line) != (row.file, row.line):
                code = f"  {plain_line(row.user_code)}" if row.user_code else ""
                self.line(f"from {short_path(row.user_file)}:{row.user_line}{code}", "dim", 7)
            for hint in [row.fix] if row.fix else row.hints[:2]:
                self.line(f"→ as for {told[hint]}" if hint in told else f"→ {hint}", "green", 7)
                told.setdefault(hint, row.site)
            ids = row.compile_ids
            shown = " ".join(ids[:12]) + (f" and {len(ids) - 12} more" if len(ids) > 12 else "")
            self.line(f"in {shown}", "dim", 7)
        self._more(self._most, len(rows), "kinds of breaks")

    def recompiles(self, recording: Recording) -> None:
        rows = recording.recompiles
        if not rows:
            return
        refused = sum(row.outcome == "refused" for row in rows)
        self._section(
            f"Recompiles: {len(rows) - refused}" + (f", and {refused} refused at the limit" if refused else "")
        )
        groups: dict[tuple[str, str, int], list[Recompile]] = {}
        for row in rows:
            groups.setdefault((row.function, row.file, row.line), []).append(row)
        limits = {(hit.function, hit.file, hit.line): hit for hit in recording.limit_hits}
        left = self._most
        for place, group in sorted(groups.items(), key=lambda item: -len(item[1])):
            if left <= 0:
                break
            function, file, line = place
            head = Text(f"{len(group):>5}× ", style="bold yellow")
            head.append(plain_line(function or "?"), style="bold")
            head.append(f"  {short_path(file)}:{line}")
            if place in limits:
                hit = limits[place]
                head.append(f"  {hit.limit}{f' of {hit.value}' if hit.value is not None else ''} hit", style="bold red")
            self._print(head)
            if group[0].user_file and (group[0].user_file, group[0].user_line) != (file, line):
                self.line(f"from {short_path(group[0].user_file)}:{group[0].user_line}", "dim", 7)
            for row in group[:left]:
                self._recompile(row)
            fixes = list(dict.fromkeys(row.fix for row in group[:left] if row.fix))
            for fix in fixes[: max(2, self._most // 10)]:  # one cause has one fix, though its words may name a value
                self.line(f"→ {fix}", "green", 7)
            left -= len(group[:left])
        self._more(self._most, len(rows), "recompiles")

    def _recompile(self, row: Recompile) -> None:
        body = Text(f"{plain_line(row.key)} ", style="bold red" if row.outcome == "refused" else "bold")
        if row.failed:
            body.append(describe_guard(row.failed[0]))
            if len(row.failed) > 1:
                body.append(f"  (+{len(row.failed) - 1} older)", style="dim")
        self._print(body, 7)
        if row.pgo:
            self.line(f"PGO marks as dynamic: {'; '.join(row.pgo)}", "dim", 9)

    def compiles(self, recording: Recording) -> None:
        every = [row for row in recording.compiles if row.status != "restarted"]
        rows = every if len(recording.session.ranks) <= FEW_RANKS else once_for_all_ranks(every)
        dearest = {id(row) for row in sorted(rows, key=lambda row: -(row.seconds or 0.0))[: self._most]}
        shown = [row for row in rows if id(row) in dearest]
        self._section("Compiles" if len(shown) == len(rows) else f"Compiles: the {len(shown)} dearest of {len(rows)}")
        print_compiles(shown, self._console)
        if len(rows) < len(every):
            self.line(f"{len(every)} in all: ×n is the same on n ranks, with the time of the slowest", "dim", 2)
        restarted = len(recording.compiles) - len(every)
        if restarted:
            self.line(f"and {count(restarted, 'attempt')} that restarted", "dim", 2)
        self._more(len(shown), len(rows), "compiles")

    def caches(self, recording: Recording) -> None:
        rows = cache_rows(recording)
        if not rows:
            return
        self._section("Caches")
        for row in rows[: self._most]:
            style = {"hit": "green", "miss": "yellow"}.get(row.outcome, "red")
            body = Text(f"{row.count:>5}× ").append(plain_line(f"{row.cache} {row.outcome}"), style=style)
            if row.reason:
                body.append(plain_line(f"  {row.reason}"), style="dim")
            self._print(body)
        self._more(self._most, len(rows), "reasons")

    def time(self, recording: Recording) -> None:
        phases = phase_seconds(recording)
        total = sum(phases.values())
        if total <= 0:
            return
        self._section("Where compile time went")
        width = max(10, min(40, self._console.width - 36))
        for name, value in phases.items():
            bar = "█" * max(1, round(width * value / total)) if value / total > 0.005 else ""
            self._print(
                Text(f"  {plain_line(name):<10}{seconds(value):>11}{value / total:>6.0%}  ").append(bar, style="blue")
            )
        if total > recording.totals.compile_seconds * 1.02:
            self.line(
                f"{seconds(total)} in all, {seconds(recording.totals.compile_seconds)} on the clock (ranks and threads at once)",
                "dim",
                2,
            )

    def blocks(self, recording: Recording, everything: bool) -> None:
        """What only some logs have: ranks, maps of kernels, vLLM's parts, links; and, where all is asked for, stacks."""
        special = any(row.name.startswith(("vllm_", "inductor_provenance", "link")) for row in recording.artifacts)
        if not (everything or special or len(recording.session.ranks) > 1):
            return
        from fxscope.report.blocks import blocks

        for block in blocks(recording, stacks=everything):
            self._section(block.title)
            for line in block.lines[: self._most]:
                self.line(line, "", 2)
            self._more(self._most, len(block.lines), block.what)

    def export(self, export: ExportReport) -> None:
        self._section(f"Export: {count(len(export.programs), 'program')}, {count(len(export.issues), 'open question')}")
        asked = sorted(
            export.issues, key=lambda issue: issue.kind == "guard"
        )  # what was assumed, then what was only asked
        for issue in asked[: self._most]:
            head = Text(f"  {issue.kind}  ", style="bold yellow").append(
                plain_line(issue.expression or issue.op), style="bold"
            )
            if issue.result:
                head.append(plain_line(f" was {issue.result}"))
            self._print(head)
            if issue.line is not None:
                where = f"at {short_path(issue.line.file)}:{issue.line.line}"
                self.line(plain_line(f"{where}  {issue.line.code}" if issue.line.code else where), "", 7)
            if issue.reason:
                self.line(plain(issue.reason), "dim", 7)
            if issue.kind != "guard" and issue.variables:
                self.line(plain_line("with " + ", ".join(f"{k} = {v}" for k, v in issue.variables.items())), "dim", 7)
            if issue.kind != "guard" and issue.history:
                self.line(plain_line("made by " + " → ".join(describe_step(step) for step in issue.history)), "dim", 7)
        self._more(self._most, len(export.issues), "questions")

    def notes(self, recording: Recording) -> None:
        unknown = recording.unknown_events()
        notes = list(recording.session.notes)
        if unknown:
            names = ", ".join(f"{name} {number}" for name, number in list(unknown.items())[:12])
            notes.append(f"events of unknown kinds: {names}" + (", …" if len(unknown) > 12 else ""))
        if notes:
            self._section("Notes")
            for note in notes:
                self.line(plain_line(note), "dim", 2)


def describe_step(step: Step) -> str:
    """How an expression was made, in words."""
    where = f" at {short_path(step.line.file)}:{step.line.line}" if step.line else ""
    return f"{step.method}({', '.join(step.arguments)}) = {step.result}{where}"


def describe_guard(failed: FailedGuard) -> str:
    """One failed guard in words: what was checked, what was expected and what came."""
    where = f"{failed.source}" if failed.source else ""
    if failed.kind in ("size", "stride") and failed.index is not None and failed.source:
        where += f".{failed.kind}({failed.index})"
    text = f"{failed.kind} of {where}" if where and failed.kind not in ("size", "stride") else where or failed.kind
    if failed.kind == "shape":
        text = failed.guard
    elif failed.kind in ("none", "type") and where and failed.expected is not None:
        text = f"{where}: expected {_class_name(failed.expected)}" + (
            f", got {_class_name(failed.actual)}" if failed.actual else ""
        )
    elif failed.expected is not None and failed.actual is not None:
        text += f": expected {failed.expected}, got {failed.actual}"
    elif failed.expected is not None:
        text += f": expected {failed.expected}"
    elif not where:
        text = failed.guard
    else:
        text += " changed"
    asked = f"  asked at {short_path(failed.asked_file)}:{failed.asked_line}" if failed.asked_file else ""
    return plain_line(f"{text}{asked}  [{failed.entry}]" if failed.entry else f"{text}{asked}")


def _class_name(text: str) -> str:
    """``<class 'a.b.Name'>`` as ``Name``."""
    found = re.match(r"^<class '(?:[\w.<>]*\.)?(\w+)'>$", text)
    return found[1] if found else text
