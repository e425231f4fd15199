"""What the Passes and Kernels views share: a job in another process, its progress, its cancelling."""

from __future__ import annotations

import time
from typing import Any

from textual.worker import Worker

from fxscope.errors import FxscopeError

from ..jobs import Job
from ..spans import Span
from .view import View


class JobView(View):
    """A view that shows what a job answered for the selected graph."""

    about_compile = True

    def __init__(self) -> None:
        super().__init__()
        self.job: Job | None = None
        self.answers: dict[tuple[str, ...], Any] = {}  # by arguments, so that going back shows the old one
        self._progress = ""
        self._since = 0.0
        self._worker: Worker[None] | None = None

    def arguments(self) -> list[str]:
        """The command for the selected graph."""
        raise NotImplementedError

    def answered(self, document: Any) -> None:
        """Show an answer."""
        raise NotImplementedError

    def graph_id(self) -> str | None:
        """The selected compile, if it has a graph."""
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        return compile_.key if compile_ is not None and compile_.graphs else None

    def do_run(self) -> None:
        """Start the job."""
        if self.job is not None:
            self.notify("one runs already; x cancels it")
            return
        if self.graph_id() is None:
            self.notify("the selected compile has no graph")
            return
        arguments = self.arguments()
        self.job = Job(arguments, self._take_progress)
        self._since = time.monotonic()
        self._progress = f"fxscope {' '.join(arguments[:1] + arguments[2:])}"
        self._tick()
        self._worker = self.run_worker(self._run(self.job, tuple(arguments)), group="job", exit_on_error=False)

    async def _run(self, job: Job, key: tuple[str, ...]) -> None:
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
            self.show_answer()
            return
        self.answers[key] = document
        self.show_answer()

    def failed(self, problem: str) -> None:
        """Say why there is no answer."""
        self.empty(f"{problem}\n\nr runs it again, s changes what is run.")

    def show_answer(self) -> None:
        """Show the answer for what is selected now, where there is one."""
        if self.job is not None:
            return
        document = self.answers.get(tuple(self.arguments())) if self.graph_id() is not None else None
        if document is None:
            self.empty(self.EMPTY + f"\n\nselected: {self.compile_key or 'nothing'}")
        else:
            self.filled()
            self.answered(document)

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
