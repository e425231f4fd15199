"""Comparison: one graph beside another, node by node."""

from __future__ import annotations

from fxscope.recording.lookup import stage_name
from fxscope.recording.records import Compile

from ..graph_rows import diff_rows
from ..stages import graph_stages
from ..widgets.diff_view import DiffRow, DiffView, fold
from ..widgets.virtual_table import Column, Rows
from .graph_stages import StagesView
from .pick import PickScreen


class ComparisonView(StagesView):
    """A view of one graph that can show its difference from another."""

    @property
    def diff(self) -> DiffView:
        """The comparison."""
        return self.query_one(DiffView)

    def do_compare(self) -> None:
        """Choose the other graph."""
        snapshot = self.snapshot
        if snapshot is None or self.graph is None or self.stage is None:
            return
        choices = [
            (compile_, stage, index)
            for compile_ in snapshot.compiles
            for stage, index in graph_stages(compile_)
            if (compile_.key, stage, index) != (self.compile_key, *self.stage)
        ]
        own = self.compile
        choices.sort(key=lambda item: (item[1] != self.stage[0], own is not None and item[0].function != own.function))  # type: ignore[index]
        rows = [
            (
                item[0].key,
                (stage_name(item[1], item[2]), "accent"),
                item[0].function,
                str(item[0].nodes or "") if item[1] == "dynamo" else "",
            )
            for item in choices
        ]
        columns = (
            Column("compile", keep=9),
            Column("stage", keep=9),
            Column("function", flex=True),
            Column("nodes", right=True),
        )

        def done(picked: int | None) -> None:
            if picked is not None:
                self._compare(*choices[picked])

        self.app.push_screen(PickScreen("Compare with", Rows(columns, rows)), done)

    def _compare(self, other: Compile, stage: str, index: int) -> None:
        mine, store, whole = self.graph, self.scope.store, self.stage
        assert mine is not None
        assert whole is not None
        titles = (f"{self.compile_key} {stage_name(*whole)}", f"{other.key} {stage_name(stage, index)}")

        def job() -> tuple[str, list[DiffRow]]:
            from fxscope.graph.diff import diff_graphs

            theirs = store.graph(other, stage, index)
            difference = diff_graphs(mine, theirs)
            changed = {change.b: change for change in [*difference.rewired, *difference.changed]}
            return difference.summary(), fold(diff_rows(mine, theirs, difference.pairs, changed), 3)

        def done(result: tuple[str, list[DiffRow]]) -> None:
            summary, rows = result
            self.add_class("-diff")
            self.diff.show(rows, titles)
            self.diff.focus()
            self.tell(
                [(f"{titles[0]} \u2194 {titles[1]}", "accent")],
                [(summary, "")],
                [("n next change, esc back", "dim")],
            )

        self.load(job, done, group="compare")
