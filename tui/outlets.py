"""The ways out: clipboard, files, the editor."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from textual import work
from textual.app import SuspendNotSupported

from . import clipboard
from .editor import editor_command
from .exporting import as_json, write
from .screens.pick import PickScreen
from .shell import Shell
from .store import describe
from .widgets.virtual_table import Column, Rows


class Outlets(Shell):
    """Hands what is shown to other tools."""

    def copy(self, text: str) -> None:
        """Copy a text and say what that meant."""
        if text:
            self._copy(lambda: text)
        else:
            self.notify("nothing here to copy")

    @work(thread=True, group="copy", exit_on_error=False)
    def _copy(self, make: Callable[[], str]) -> None:
        """The text of a long pane, and its file, are made on a worker."""
        with self._telling():
            text = make()
            if len(text.encode("utf-8", "replace")) <= clipboard.OSC52_LIMIT:
                self.call_from_thread(self.copy_to_clipboard, text)
            path, problem = clipboard.save(text)
            self.call_from_thread(self.notify, clipboard.message(text, path, problem), timeout=6)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """On a worker: what fails is told, because the worker itself ends in silence."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a log made us stumble over
            self.call_from_thread(self.notify, describe(error), severity="error", timeout=10)

    def action_copy(self) -> None:
        """Copy the line under the cursor, or what the mouse selected."""
        chosen = self.screen.get_selected_text()
        pane = self.pane()
        if chosen:
            self.copy(chosen)
        elif pane is not None and pane.count():
            self.copy(pane.line_text(pane.cursor))

    def action_copy_all(self) -> None:
        """Copy the whole pane."""
        pane = self.pane()
        if pane is not None and pane.count():
            self._copy(self.view.export_text)
        else:
            self.notify("nothing here to copy")

    def action_export(self) -> None:
        """Ask for the form and write the file."""
        forms = [("txt", "text", "what the pane in focus shows, in full"), ("svg", "svg", "a picture of the screen")]
        if self.view.data() is not None:
            forms.insert(1, ("json", "json", "the records behind the view"))
        if self.view.has_dot():
            forms.insert(1, ("dot", "dot", "the graph, for graphviz"))
        rows = Rows((Column("form"), Column("what", flex=True)), [(name, what) for _, name, what in forms])

        def done(picked: int | None) -> None:
            if picked is not None:
                self.call_after_refresh(self._export, forms[picked][0])

        self.push_screen(PickScreen("Export", rows, f"to {os.getcwd()}"), done)

    @work(thread=True, group="export", exit_on_error=False)
    def _export(self, suffix: str) -> None:
        with self._telling():
            if suffix == "svg":
                text = self.call_from_thread(self.export_screenshot, title="fxscope")
            elif suffix == "json":
                text = as_json(self.view.data())
            elif suffix == "dot":
                text = self.view.dot() or ""
            else:
                text = self.view.export_text()
            stem = f"fxscope-{self.active}" + (f"-{self.compile_key}" if self.view.about_compile else "")
            path = write(os.getcwd(), stem.replace("/", "_"), suffix, text)
            self.call_from_thread(self.notify, f"written {path}")

    def action_editor(self) -> None:
        """Open the source line in the editor."""
        place = self.view.source_line()
        if place is None:
            self.notify("the line under the cursor has no source line")
            return
        path, line = place
        if not os.path.isfile(path):
            self.notify(f"{path} is not on this machine", severity="warning")
            return
        command = editor_command(path, line)
        if command is None:
            self.notify("no editor: set $EDITOR", severity="warning")
            return
        problem = ""
        try:
            with self.suspend():
                # Caught in here: an exception that leaves it would leave the terminal to nobody.
                try:
                    code = subprocess.call(command)
                except OSError as error:
                    problem = f"cannot start {command[0]}: {error.strerror}"
        except SuspendNotSupported as error:
            problem = f"cannot hand the terminal to {command[0]}: {error}"
        if problem:
            self.notify(problem, severity="error")
        elif code:
            self.notify(f"{command[0]} ended with exit code {code}", severity="warning")
