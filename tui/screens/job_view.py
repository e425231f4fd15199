"""What views share that run something in another process: the job, its progress, its cancelling; which graph it is about."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from textual.worker import Worker

from fxscope.errors import FxscopeError
from fxscope.recording.lookup import stage_name

from ..jobs import Job
from ..spans import Span
from ..stages import graph_stages
from ..store import Snapshot
from ..widgets.virtual_table import Column, Rows
from .pick import PickScreen
from .view import View


class JobRunner(View):
    """A view that runs one job at a time and tells how it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.job: Job | None = None
        self._progress = ""
        self._since = 0.0
        self._worker: Worker[None] | None = None

    def start(self, arguments: Sequence[str], done: Callable[[Any], None], cwd: str | None = None) -> None:
        """Run ``fxscope ARGUMENTS``.

        Args:
            arguments: Of the command; its answer is one JSON document.
            done: Takes the document; None where it was cancelled.
            cwd: Where to run it.
        """
        if self.job is not None:
            self.notify("one runs already; x cancels it")
            return
        self.job = job = Job(arguments, self._take_progress, cwd)
        self._since = time.monotonic()
        self._progress = f"fxscope {' '.join(arguments)}"
        self._tick()
        self._worker = self.run_worker(self._run(job, done), group="job", exit_on_error=False)

    async def _run(self, job: Job, done: Callable[[Any], None]) -> None:
        try:
            document = await job.run()
        except (FxscopeError, OSError) as error:
            self.job = None
            self.failed(str(error))
            return
        finally:
            self.job = None
        if document is None:
            self.notify("cancelled")
        done(document)

    def failed(self, problem: str) -> None:
        """Say why there is no answer."""
        raise NotImplementedError

    def _take_progress(self, line: str) -> None:
        self._progress = line
        self._tell_progress()

    def _tick(self) -> None:
        if self.job is not None:
            self._tell_progress()
            self.set_timer(0.5, self._tick)

    def _tell_progress(self) -> None:
        cells: list[Span] = [(f"\u25cc {time.monotonic() - self._since:.0f} s  ", "accent"), (self._progress, "")]
        self.remove_class("-empty")
        self.tell(cells, [("x cancels", "dim")])

    def do_cancel(self) -> None:
        """Cancel the job."""
        if self.job is None:
            self.notify("nothing runs")
        else:
            self.job.cancel()

    def on_unmount(self) -> None:
        """The app closes: no job outlives it."""
        if self.job is not None:
            self.job.cancel()


class JobView(JobRunner):
    """A view that shows what a job answered for one stage of the selected graph."""

    about_compile = True

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[tuple[str, ...], Any] = {}  # by arguments, so that going back shows the old one
        self.stage = "dynamo"

    def arguments(self) -> list[str]:
        """The command for the selected graph."""
        raise NotImplementedError

    def answered(self, document: Any) -> None:
        """Show an answer."""
        raise NotImplementedError

    def take(self, snapshot: Snapshot) -> None:
        """Show the answer for the selected graph."""
        first = self.snapshot is None
        self.snapshot = snapshot
        if first:
            self.show_answer()

    def compile_changed(self) -> None:
        """Show the answer for another graph."""
        self.show_answer()

    def stages(self) -> list[str]:
        """Stages of the selected compile that a command can be asked about."""
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        return [stage_name(*item) for item in graph_stages(compile_)] if compile_ is not None else []

    def graph_arguments(self) -> list[str]:
        """``PATH --graph ID``, and ``--stage STAGE`` where the selected compile has the chosen one."""
        chosen = ["--stage", self.stage] if self.stage != "dynamo" and self.stage in self.stages() else []
        return [self.scope.store.path, "--graph", self.graph_id() or "", *chosen]

    def graph_id(self) -> str | None:
        """The selected compile, if it has a graph."""
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        return compile_.key if compile_ is not None and compile_.graphs else None

    def do_run(self) -> None:
        """Start the job."""
        if self.graph_id() is None:
            self.notify("the selected compile has no graph")
            return
        arguments = self.arguments()

        def done(document: Any) -> None:
            if document is not None:
                self.answers[tuple(arguments)] = document
            self.show_answer()

        self.start(arguments, done)

    def do_stage(self) -> None:
        """Choose the stage of the graph."""
        stages = self.stages()
        if len(stages) < 2:
            self.notify("the selected compile has only one graph")
            return

        def done(picked: int | None) -> None:
            if picked is not None:
                self.stage = stages[picked]
                self.show_answer()

        start = stages.index(self.stage) if self.stage in stages else 0
        rows = Rows((Column("stage", flex=True, keep=9),), [(stage,) for stage in stages])
        self.app.push_screen(PickScreen(f"Stage of {self.compile_key}", rows, start=start), done)

    def failed(self, problem: str) -> None:
        """Say why there is no answer."""
        self.empty(f"{problem}\n\nr runs it again, s changes what is run, S the stage of the graph.")

    def show_answer(self) -> None:
        """Show the answer for what is selected now, where there is one."""
        if self.job is not None:
            return
        document = self.answers.get(tuple(self.arguments())) if self.graph_id() is not None else None
        if document is None:
            stage = f" {self.stage}" if self.stage in self.stages() else ""
            self.empty(self.EMPTY + f"\n\nselected: {self.compile_key or 'nothing'}{stage}")
        else:
            self.filled()
            self.answered(document)
