"""Passes: step through a pipeline on the selected graph, with the diff and the numbers of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal

from ..keymap import bindings
from ..spans import Cell
from ..widgets.diff_view import DiffRow, DiffView, align
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows, VirtualTable
from .job_view import JobView
from .pick import PromptScreen
from .view import fact

SIGNS = {
    "applied": ("\u25b8 ", "accent"),
    "unchanged": ("\u00b7 ", "dim"),
    "failed": ("\u2716 ", "bad"),
    "numbers": ("\u25b2 ", "bad"),
}


class StepTable(VirtualTable):
    """The steps; left and right step back and forward."""

    BINDINGS = bindings("passes")


class PassesView(JobView):
    """Steps left, the diff of the step under the cursor right."""

    NAME = "passes"
    TERMS = "A pass rewrites the graph: what matched, why not, what changed, by how much."
    EMPTY = (
        "No passes have been run on this graph.\n\n"
        "r  run the pipeline on the selected graph (in a process of its own, where torch is imported)\n"
        "s  choose the passes\n"
        "S  choose the stage of the graph: dynamo, joint, forward, backward, inference, post_grad\n"
        "a  one step per application instead of one per pass\n"
        "I  promise that no gradient is needed: folding and freezing may evaluate parameters"
    )
    DEFAULT_CSS = """
    PassesView #passes-split { height: 1fr; }
    PassesView #passes-steps { width: 1fr; }
    PassesView #passes-diff { width: 1fr; border-left: solid $surface-lighten-2; }
    PassesView.-narrow #passes-split { layout: vertical; }
    PassesView.-narrow #passes-steps { width: 1fr; height: 2fr; }
    PassesView.-narrow #passes-diff { width: 1fr; height: 3fr; border-left: none; border-top: solid $surface-lighten-2; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.pipeline = ""  # "": the command's own default
        self.single = False
        self.inference = False
        self._document: Mapping[str, Any] = {}
        self._steps: Sequence[Mapping[str, Any]] = ()
        self._rows: list[tuple[int, int]] = []  # step and match (-1: the step itself) of each row
        self._shown_step: tuple[int, int] = (0, -1)

    def body(self) -> ComposeResult:
        """Steps and diff."""
        with Horizontal(id="passes-split", classes="body"):
            yield StepTable(id="passes-steps")
            yield DiffView(id="passes-diff")

    @property
    def table(self) -> VirtualTable:
        """The steps."""
        return self.query_one(StepTable)

    def arguments(self) -> list[str]:
        """``fxscope passes PATH --graph ID --code --json``."""
        chosen = ["--pipeline", self.pipeline] if self.pipeline else []
        chosen += ["--single"] * self.single + ["--inference"] * self.inference
        return ["passes", *self.graph_arguments(), *chosen, "--code", "--json"]

    def answered(self, document: Any) -> None:
        """List steps and matches."""
        self._document = document
        self._steps = document.get("steps", ())
        self._shown_step = (id(document), -1)
        columns = (
            Column("step", flex=True, keep=9),
            Column("nodes", right=True, keep=6),
            Column("max |\u0394|", right=True, keep=7),
            Column("ms", right=True, keep=3),
            Column("source", keep=4, limit=24, middle=True),
        )
        rows: list[list[Cell]] = []
        self._rows = []
        for number, step in enumerate(self._steps):
            matches = step.get("matches", ())
            applied = sum(bool(match.get("applied")) for match in matches)
            status = str(step.get("status", ""))
            detail = f"  {applied} of {len(matches)} applied" if matches else f"  {status}"
            wrong = step.get("error") or ("the numbers changed" if status == "numbers" else "")
            single = f" #{step['application']}" if step.get("application") is not None else ""
            self._rows.append((number, -1))
            rows.append(
                [
                    [
                        SIGNS.get(status, SIGNS["applied"]),
                        (f"{step.get('pass', '?')}{single}", "strong"),
                        (detail, "dim"),
                        (f"  {wrong}" if wrong else "", "bad"),
                    ],
                    f"{step.get('nodes_before', '')}\u2192{step.get('nodes_after', '')}",
                    (number_text(step.get("max_abs_diff")), "bad" if step.get("within") is False else ""),
                    f"{step['ms']:.1f}" if isinstance(step.get("ms"), int | float) else "",
                    "",
                ]
            )
            for index, match in enumerate(matches):
                self._rows.append((number, index))
                names = " + ".join(match.get("nodes", ()))
                if match.get("applied"):
                    line: Cell = [("    \u2714 ", "good"), (names, "")]
                else:
                    why = match.get("text") or match.get("reason") or "no reason given"
                    line = [("    \u2716 ", "warn"), (names, ""), (f": {why}", "dim")]
                rows.append([line, "", "", "", (str(match.get("source") or ""), "name")])
        self.table.show(Rows(columns, rows))
        self._tell_step()

    def do_step(self, by: int) -> None:
        """To the head of the next or previous step."""
        heads = [row for row, (_, match) in enumerate(self._rows) if match < 0]
        at = self.table.selected
        if at is None or not heads:
            return
        here = max((number for number, row in enumerate(heads) if row <= at), default=0)
        inside = by < 0 and heads[here] < at
        self.table.select(heads[here] if inside else heads[max(0, min(here + by, len(heads) - 1))])

    def do_pipeline(self) -> None:
        """Type the passes."""

        def done(value: str | None) -> None:
            if value is not None:
                self.pipeline = value.strip().replace(" ", "")
                self.show_answer()
                self.do_run()

        note = "names with commas between, in order; empty for the default; `fxscope passes --list` lists them"
        self.app.push_screen(PromptScreen("Pipeline", self.pipeline, note), done)

    def do_single(self) -> None:
        """One step per application, or per pass."""
        self.single = not self.single
        self.notify("one step per application" if self.single else "one step per pass")
        self.show_answer()

    def do_inference(self) -> None:
        """Whether a gradient is needed."""
        self.inference = not self.inference
        self.notify("no gradient is needed" if self.inference else "gradients stay possible")
        self.show_answer()

    def follow(self, view: LineView) -> None:
        """The diff follows."""
        if view is self.table:
            self._tell_step()

    def _tell_step(self) -> None:
        at = self.table.selected
        if at is None or at >= len(self._rows):
            return
        number, _ = self._rows[at]
        if self._shown_step == (id(self._document), number):
            return
        self._shown_step = (id(self._document), number)
        step = self._steps[number]
        cells = [
            fact("step", f"{number + 1} of {len(self._steps)}", "accent"),
            fact("pass", step.get("pass", "?")),
            *([fact("stage", self._document["stage"])] if self._document.get("stage") else []),
            fact("nodes", f"{step.get('nodes_before', '?')} \u2192 {step.get('nodes_after', '?')}"),
        ]
        if step.get("max_abs_diff") is not None:
            verdict = "" if step.get("within") is None else " ok" if step["within"] else " beyond rounding"
            style = "bad" if step.get("within") is False else "good"
            cells.append(fact("max |\u0394|", number_text(step["max_abs_diff"]) + verdict, style))
        if step.get("max_abs_diff_start") is not None:
            cells.append(fact("since the start", number_text(step["max_abs_diff_start"])))
        doc = str(step.get("doc") or "").strip().split("\n")[0]
        if doc:
            cells.append([(doc, "dim")])
        self.tell(*cells)
        before, after = self._lines(number - 1), self._lines(number)
        titles = (f"before {step.get('pass', '')}", "after")
        if before is None or after is None:
            self.query_one(DiffView).show([DiffRow("the command told no graph", "", " ")], titles)
            return
        left, right = before, after
        self.load(lambda: align(left, right, 3), lambda rows: self._show_diff(rows, titles), group="diff")

    def _show_diff(self, rows: list[DiffRow], titles: tuple[str, str]) -> None:
        changed = any(row.sign in "+-~" for row in rows)
        self.query_one(DiffView).show(rows if changed else [DiffRow("no node changed", "no node changed")], titles)

    def _lines(self, number: int) -> list[str] | None:
        """The graph after a step; before the first one for -1."""
        holder = self._document if number < 0 else self._steps[number]
        lines = holder.get("lines")
        return lines if isinstance(lines, list) else None

    def on_resize(self) -> None:
        """Below each other where it is narrow."""
        self.set_class(self.size.width < 150, "-narrow")

    def source_line(self) -> tuple[str, int] | None:
        """The compiled function: a step names files without their folders."""
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        return (compile_.file, compile_.line) if compile_ and compile_.file else None

    def data(self) -> Any:
        """The document."""
        return dict(self._document) or None


def number_text(value: object) -> str:
    """A difference in few characters."""
    if not isinstance(value, int | float):
        return ""
    return "0" if value == 0 else f"{value:.1e}"
