"""The live side: the program that runs inside the app, and the recording that is read while it grows."""

from __future__ import annotations

from typing import Any

from textual import work
from textual.css.query import NoMatches

from fxscope.errors import FxscopeError

from .collecting import reading
from .program import Program
from .screens import views
from .shell import Shell
from .store import Snapshot, describe

POLL = 0.2  # seconds between looks at a recording that may still grow


class LiveShell(Shell):
    """Starts the program, reads what is new, and shows it unless held still."""

    # the program

    def _start_program(self, program: Program) -> None:
        from .screens.output import OutputView

        program.on_output = lambda data: self._from_thread(self._take_output, data)
        program.on_end = lambda code: self._from_thread(self._program_ended, code)
        try:
            program.start(max(20, self.window.width - 40), max(5, self.window.height - 6))
        except (OSError, FxscopeError) as error:
            self._restart_problem = f"cannot start {program.command[0]}: {error}"
            self.notify(self._restart_problem, severity="error", timeout=60)
            return
        view = OutputView()
        view.display = False
        self._holder.mount(view)

    def _from_thread(self, call: Any, value: Any) -> None:
        if self._running and not self._exit:
            self.call_later(call, value)

    def _take_output(self, data: bytes) -> None:
        from .screens.output import OutputView

        try:
            self.query_one(OutputView).feed(data)
        except NoMatches:
            self.call_after_refresh(self._take_output, data)  # the view is being mounted

    def _program_ended(self, code: int) -> None:
        from .screens.output import OutputView
        from .totals_text import ending

        for view in self.query(OutputView):
            view.ended()
        self.notify(f"The program {ending(code)}.", severity="information" if code == 0 else "warning", timeout=10)
        if self.program is not None and self.program.log_problem:
            self.notify(self.program.log_problem, severity="error", timeout=20)
        self._draw_bars()
        self._poll(force=True)

    # data

    def _poll(self, *, force: bool = False) -> None:
        """Read what is new, on a worker, unless the last read still goes on."""
        if self._reading and not force:
            return
        if not force and self.latest is not None and self.latest.session.state == "ended" and not self._program_runs:
            return
        self._reading = True
        self._read(force)

    @property
    def _program_runs(self) -> bool:
        return self.program is not None and self.program.running

    @work(thread=True, group="read", exit_on_error=False)
    def _read(self, force: bool) -> None:
        try:
            with reading():
                snapshot = self.store.read(force=force)
        except Exception as error:  # noqa: BLE001 - whatever a foreign log does to the reader is shown, and the app stays
            problem = describe(error)
            if not self._exit:
                self.call_from_thread(self._read_failed, problem)
            return
        if not self._exit:
            self.call_from_thread(self._take, snapshot)
        views.preload()

    def _read_failed(self, problem: str) -> None:
        self._reading = False
        if problem != self._restart_problem:
            self._restart_problem = problem
            self.notify(f"reading failed: {problem}", severity="error", timeout=20)

    def _take(self, snapshot: Snapshot | None) -> None:
        self._reading = False
        if snapshot is None or self._exit or self._closing:
            return
        told = self.latest.error if self.latest is not None else ""
        self.latest = self._with_ending(snapshot)
        if snapshot.error not in ("", told) and snapshot.compiles:  # else it is all that the Overview shows
            self.notify(snapshot.error, severity="warning", timeout=20)
        if not self.paused:
            self._show_latest()
        self._draw_top()

    def _with_ending(self, snapshot: Snapshot) -> Snapshot:
        """How our own program is: ``session.json`` learns that it ended only after the app."""
        program = self.program
        if program is None or not program.started:
            return snapshot
        import msgspec

        state = "live" if program.running else "ended"
        session = msgspec.structs.replace(snapshot.session, state=state, exit_code=program.code)
        return snapshot._replace(session=session)

    def _show_latest(self) -> None:
        """Give the newest records to the tree and the view."""
        if self.latest is None:
            return
        first = self.shown is None or not self.shown.compiles
        self.shown = self.latest.of_rank(self.rank)
        self.tree_view.take(self.shown)
        if self.shown.compile(self.compile_key) is None:
            self.compile_key = None
        if self.compile_key is None and self.shown.compiles:
            chosen = next((c for c in self.shown.compiles if c.graphs), self.shown.compiles[0])
            self.compile_key = chosen.key
            if first:
                self.tree_view.select_key(chosen.key)
        self._give(self.view)
        self._draw_bars()

    def action_rank(self) -> None:
        """The next rank."""
        ranks = self.latest.session.ranks if self.latest else []
        if len(ranks) < 2:
            self.notify("this recording has only one rank")
            return
        order: list[int | None] = [None, *sorted(ranks)]
        self.rank = order[(order.index(self.rank) + 1) % len(order)]
        self._show_latest()

    def action_pause(self) -> None:
        """Hold still, or catch up."""
        self.paused = not self.paused
        if not self.paused:
            self._show_latest()
        self._draw_bars()
