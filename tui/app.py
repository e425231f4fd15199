"""The app: the shell with its live side and its ways out, and what each key does."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from textual.theme import ThemeProvider

from fxscope.errors import FxscopeError

from .collecting import THRESHOLDS
from .handover import hand_over
from .keymap import KEYS, VIEWS, display, for_view, load_remapped
from .live import POLL, LiveShell
from .outlets import Outlets
from .palette import Palette
from .program import STOPPING, Program
from .screens.pick import PickScreen, QuitScreen
from .store import Store
from .widgets.filter_bar import FilterBar
from .widgets.frame_tree import TreeView
from .widgets.virtual_table import Column, Rows, VirtualTable

SWITCH = 0.001  # seconds after which a worker hands over the interpreter; Python's 5 ms are felt at a key press


class FxscopeApp(LiveShell, Outlets):
    """Browses one recording, while its program runs or afterwards."""

    async def on_mount(self) -> None:
        """Start reading, and the program."""
        try:
            self.remapped = load_remapped()
            self.set_keymap(self.remapped)
        except FxscopeError as error:
            self.notify(str(error), severity="error", timeout=10)
        self.window = self.size
        await self._show_view("overview")
        self._fold_by_width()
        self.tree_view.focus()
        sys.setswitchinterval(SWITCH)
        gc.set_threshold(*THRESHOLDS)
        self.set_interval(POLL, self._poll)
        self.set_interval(1.0, self._draw_top)
        if self.program is not None:
            self._start_program(self.program)
        self._poll(force=True)

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A view's keys work while that view is shown, and none while a screen lies over it."""
        if action == "ask":
            return len(self.screen_stack) == 1 and bool(parameters) and parameters[0] == self.active
        return len(self.screen_stack) == 1 or action not in _UNDER

    def action_ask(self, scope: str, what: str, *arguments: object) -> None:
        """A key of a view."""
        getattr(self.view, f"do_{what}")(*arguments)

    async def action_press(self, key_id: str) -> None:
        """A click on a key of the bottom line."""
        key = next(key for key in for_view(self.active, self.remapped, tree=True) if key.id == key_id)
        await self._press_keys([key.keys.split(",")[0]])

    async def action_view(self, name: str) -> None:
        """Show a view."""
        await self._show_view(name)
        if self.focused is self.tree_view:
            self._focus_view()

    async def action_step_view(self, step: int) -> None:
        """Show the next view."""
        await self.action_view(VIEWS[(VIEWS.index(self.active) + step) % len(VIEWS)])

    def action_step_compile(self, step: int) -> None:
        """Select the next compile."""
        if self.shown is None or not self.shown.compiles:
            return
        keys = [compile_.key for compile_ in self.shown.compiles]
        at = keys.index(self.compile_key) if self.compile_key in keys else 0
        self.select_compile(keys[(at + step) % len(keys)])

    def action_theme(self) -> None:
        """Choose a theme."""
        self.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))

    def action_filter(self) -> None:
        """Filter or search the pane."""
        pane = self.pane()
        if pane is not None:
            self._filter_bar.open(pane)

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        """Back to the pane."""
        if event.pane is not None and event.pane.is_attached:
            event.pane.focus()

    def on_virtual_table_filtered(self, event: VirtualTable.Filtered) -> None:
        """The count of the filter line follows the worker."""
        bar = self._filter_bar
        if event.table is bar.pane:
            bar.count()
        row = self.tree_view.here()
        if event.table is self.tree_view and row is not None and row.compile_key not in (None, self.compile_key):
            self.compile_key = row.compile_key  # the filter has put the cursor on another row
            self.view.choose_compile(row.compile_key)

    def action_next_match(self, step: int) -> None:
        """The next match."""
        if not self.view.next_match(step):
            self.notify("no more matches")

    async def action_back(self) -> None:
        """Undo the innermost thing: zoom, filter, a view's own."""
        if self.zoomed:
            self.action_zoom()
            return
        pane = self.pane()
        if isinstance(pane, VirtualTable) and pane.filter_text:
            pane.filter("")
        elif pane is not None and pane.needle:
            pane.needle = ""
            pane.refresh()
        elif not self.view.back() and not self._left.has_class("-away"):
            self.tree_view.focus()

    def on_descendant_focus(self) -> None:
        """The keys below depend on the focus."""
        self._draw_bars()

    # tree

    def on_tree_view_selected(self, event: TreeView.Selected) -> None:
        """A compile or graph was selected in the tree."""
        row = event.row
        if row.compile_key is not None:
            self.compile_key = row.compile_key
            self.view.choose_compile(row.compile_key)
        if event.chosen or row.stage:
            self.call_later(self._open_row, row.stage, row.number, event.chosen)

    async def _open_row(self, stage: str | None, index: int, chosen: bool) -> None:
        if chosen and self.active not in ("graph", "code", "guards"):
            await self._show_view("code" if stage and stage.endswith("code") else "graph")
        if stage:
            if self.active == "graph" and stage.endswith("code"):
                await self._show_view("code")
            elif self.active == "code" and not stage.endswith("code"):
                await self._show_view("graph")
            self.view.choose_stage(stage, index)
        if chosen:
            self._focus_view()

    # help, quit

    def action_help(self) -> None:
        """The keys that do something now."""
        keys = for_view(self.active, self.remapped, tree=self.focused is self.tree_view)
        columns = (Column("key", keep=9), Column("what it does", flex=True, keep=9), Column("id", keep=1))
        rows = Rows(columns, [([(display(key.keys), "accent")], key.description, [(key.id, "dim")]) for key in keys])

        def done(picked: int | None) -> None:
            if picked is not None:
                self.call_later(self.action_press, keys[picked].id)

        note = f"{self.view.TERMS}\nenter runs one; remap by id in ~/.config/fxscope/keys.toml"
        self.push_screen(PickScreen(f"Keys: {self.active}", rows, note), done)

    def action_palette(self) -> None:
        """Every action by name."""
        self.action_command_palette()

    def action_command_palette(self) -> None:
        """Textual's own key for it comes here too."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_interrupt(self) -> None:
        """Ctrl-C goes to the program; without one it says how to leave."""
        if self._program_runs and self.program is not None:
            self.program.write(b"\x03")
            self.notify("Ctrl-C sent to the program")
        elif self.screen.get_selected_text():
            self.action_copy()
        else:
            self.notify("q leaves")

    async def action_quit(self) -> None:
        """Leave, after asking where the program still runs."""
        if not self._program_runs:
            self.exit()
            return

        def done(stop: bool | None) -> None:
            if stop:
                self.exit()

        self.push_screen(QuitScreen(), done)


_UNDER = {
    "filter",
    "back",
    "view",
    "step_view",
    "step_compile",
    "zoom",
    "tree",
    "help",
    "export",
    "editor",
    "copy",
    "copy_all",
}
_UNDER |= {"next_match", "rank", "pause", "quit", "palette", "theme"}


def open_app(path: str) -> None:
    """Open the app on a recording, a TORCH_TRACE folder or one log, and follow it while it grows."""
    FxscopeApp(Store(path)).run()


def run_live(
    command: Sequence[str], env: Mapping[str, str], recording: str | Path, ended: Callable[[int], None]
) -> int:
    """Run a program in a pseudo-terminal inside the app.

    Args:
        command: Program and arguments.
        env: Its whole environment.
        recording: Folder that its trace logs and ``output.log`` go to.
        ended: Called with the program's exit code, whatever ended it, also where this process ends at once.

    Returns:
        The program's exit code; 128 + n where a signal ended it.

    Raises:
        FxscopeError: The app failed; the program has run to its end without it.
    """
    program = Program(command, env, recording)

    def end(signals: Sequence[int] = STOPPING) -> int:
        code = program.stop(signals=signals) if program.started else 127
        ended(code)
        return code

    def hung_up(number: int, _frame: FrameType | None) -> None:
        """End without textual, which would wait for the terminal that is gone."""
        signal.signal(number, signal.SIG_IGN)
        end((number, signal.SIGTERM, signal.SIGKILL))
        os._exit(128 + number)

    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, hung_up)
    try:
        app = FxscopeApp(Store(recording, live=True), program)
        app.run()
        if app.return_code and program.running:
            hand_over(program)
    finally:
        code = end()
    if app.return_code:
        raise FxscopeError(f"the app failed; the recording is whole: fxscope report {recording}")
    return code


__all__ = ["KEYS", "FxscopeApp", "open_app", "run_live"]
