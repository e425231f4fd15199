"""The app: its lines at top and bottom, the tree, the views, and what happens between them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual import events, work
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.geometry import Size
from textual.widget import Widget

from fxscope.errors import FxscopeError

from . import clipboard
from .editor import editor_command
from .exporting import as_json, write
from .keymap import KEYS, VIEWS, bindings, display, footer, for_view, load_remapped
from .palette import Actions
from .program import Program
from .screens import views
from .screens.pick import PickScreen, QuitScreen
from .screens.view import View
from .spans import Span
from .status import status_items
from .store import Snapshot, Store, describe
from .widgets.bar import Bar, Item
from .widgets.filter_bar import FilterBar
from .widgets.frame_tree import TreeView
from .widgets.line_view import LineView
from .widgets.virtual_table import Column, Rows, VirtualTable

POLL = 0.2  # seconds between looks at a recording that may still grow
NARROW = 90  # cells under which the tree folds away


class FxscopeApp(App[None]):
    """Browses one recording, while its program runs or afterwards."""

    TITLE = "fxscope"
    COMMANDS: ClassVar[Any] = {Actions}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS = bindings("app", *VIEWS)
    CSS = """
    Screen { layout: vertical; background: $background; }
    #middle { height: 1fr; }
    #left { width: 36; height: 1fr; border-right: solid $surface-lighten-2; }
    #right { width: 1fr; height: 1fr; }
    #left.-away { display: none; }
    #views { height: 1fr; }
    .-zoomed-away { display: none; }
    """

    def __init__(self, store: Store, program: Program | None = None) -> None:
        super().__init__()
        self.store = store
        self.program = program
        self.remapped: dict[str, str] = {}
        self.active = "overview"
        self._view: View | None = None
        self.shown: Snapshot | None = None  # what the views show: of one rank, held while paused
        self.latest: Snapshot | None = None
        self.rank: int | None = None
        self.compile_key: str | None = None
        self.paused = False
        self.zoomed = False
        self.started = time.monotonic()
        self.asked_quit = False
        self.window = Size(120, 40)  # of the terminal; the first resize event tells
        self.tree_view = TreeView()
        self._top, self._tabs_bar, self._keys_bar = Bar(id="top"), Bar(id="tabs"), Bar(id="keys")
        self._left, self._holder = Vertical(id="left"), Vertical(id="views")
        self._filter_bar = FilterBar()
        self._tree_wanted: bool | None = None  # None: by width
        self._reading = False
        self._restart_problem = ""

    # parts

    def compose(self) -> ComposeResult:
        """Top line, tree and views, filter, keys."""
        yield self._top
        with Horizontal(id="middle"):
            with self._left:
                yield self.tree_view
            with Vertical(id="right"):
                yield self._tabs_bar
                yield self._holder
        yield self._filter_bar
        yield self._keys_bar

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
        gc.set_threshold(*COLLECT)
        self.set_interval(POLL, self._poll)
        self.set_interval(1.0, self._draw_top)
        if self.program is not None:
            self._start_program(self.program)
        self._poll(force=True)

    @property
    def view(self) -> View:
        """The view that is shown."""
        assert self._view is not None, "no view before the app is mounted"
        return self._view

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
        from .screens.overview import ending

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
        self.latest = self._with_ending(snapshot)
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

    def _give(self, view: View) -> None:
        if self.shown is not None:
            view.take(self.shown)
            view.choose_compile(self.compile_key)

    def select_compile(self, key: str | None) -> None:
        """Select a compile everywhere."""
        if key is None or self.shown is None or self.shown.compile(key) is None:
            return
        self.compile_key = key
        self.tree_view.select_key(key)
        self.view.choose_compile(key)
        self._draw_bars()

    def goto(self, view: str, kind: str = "", index: int = -1) -> None:
        """Show a view, and in it the record of a kind with an index."""
        self.call_later(self._goto, view, kind, index)

    def show_node(self, stage: str, node: str) -> None:
        """Show a node of the selected compile in the Graph view, or its kernel in the Code view."""
        self.call_later(self._show_node, "graph", stage, node)

    def show_kernel(self, stage: str, node: str) -> None:
        """Show the kernel that computes a node."""
        self.call_later(self._show_node, "code", stage, node)

    async def _show_node(self, name: str, stage: str, node: str) -> None:
        await self._show_view(name)
        self.view.show_node(stage, node)

    async def _goto(self, name: str, kind: str, index: int) -> None:
        await self._show_view(name)
        if index >= 0:
            self.view.show_record(kind, index)

    async def _show_view(self, name: str) -> None:
        """Mount a view when it is first asked for; hide the others."""
        holder = self._holder
        try:
            view = holder.query_one(f"#view-{name}", View)
        except NoMatches:
            view = views.make(name)
            await holder.mount(view)
        had_focus = self.focused is None or self.focused is not self.tree_view
        for other in holder.query(View):
            other.display = other is view
        self.active = name
        self._view = view
        self._give(view)
        if had_focus and self.screen is self.screen_stack[0]:
            self._focus_view()
        self._draw_bars()

    def _focus_view(self) -> None:
        self.view.take_focus()

    # lines at top and bottom

    def _draw_bars(self) -> None:
        self._draw_top()
        self._tabs_bar.show(self._tabs())
        keys = footer(self.active, self.remapped, tree=self.focused is self.tree_view)
        items = [
            Item(
                [(display(key.keys.split(",")[0]), "accent"), (f" {key.label}", "")],
                f"app.press({key.id!r})",
                key.footer if key.scope == "app" else 90,
            )
            for key in keys
        ]
        self._keys_bar.show(items)

    def _tabs(self) -> list[Item]:
        """The views with their digits; names are shortened, then left out, where there is no room."""
        room = self._tabs_bar.size.width or self.window.width
        letters = next((n for n in (99, 5, 4, 3, 0) if _tabs_width(self.active, n) <= room), 0)
        items = []
        for number, name in enumerate(VIEWS):
            chosen = name == self.active
            digit = f"{(number + 1) % 10}"
            title = name.capitalize()[: 99 if chosen else letters]
            cell: list[Span] = [
                (digit, "accent" if chosen else "dim"),
                (" " if title else "", ""),
                (title, "match" if chosen else ""),
            ]
            items.append(Item(cell, f"app.view('{name}')", 9 if chosen else 5))
        return items

    def _draw_top(self) -> None:
        items = status_items(self.latest, self.program, time.monotonic() - self.started, self.rank, self.paused)
        self._top.show(items)

    # layout

    def on_resize(self, event: events.Resize) -> None:
        """Fold the tree away where there is no room."""
        self.window = event.size
        if self._view is not None:
            self._fold_by_width()
            self._draw_bars()

    def _fold_by_width(self) -> None:
        shown = self.window.width >= NARROW if self._tree_wanted is None else self._tree_wanted
        self.screen.set_class(self.window.height < 16, "-low")
        left = self._left
        left.set_class(not shown, "-away")
        wide = self.window.width
        left.styles.width = max(24, min(48, wide * 3 // 10)) if wide >= NARROW else max(16, wide * 2 // 5)
        if not shown and self.focused is self.tree_view:
            self._focus_view()

    def action_tree(self) -> None:
        """Show or fold away the tree."""
        away = self._left.has_class("-away")
        self._tree_wanted = away
        self._fold_by_width()
        if away:
            self.tree_view.focus()
        self._draw_bars()

    def action_zoom(self) -> None:
        """Only the pane in focus, and back."""
        self.zoomed = not self.zoomed
        pane: Widget | None = self.focused if isinstance(self.focused, LineView) else self.view.pane()
        for widget in self.query(".-zoomed-away"):
            widget.remove_class("-zoomed-away")
        if not self.zoomed or pane is None:
            self.zoomed = False
            return
        keep = set(pane.ancestors_with_self)
        for ancestor in pane.ancestors:
            if ancestor is self.screen:
                break
            for child in ancestor.children:
                if child not in keep and child.display:
                    child.add_class("-zoomed-away")

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

    def action_theme(self) -> None:
        """Choose a theme."""
        self.search_themes()

    def pane(self) -> LineView | None:
        """The pane that keys act on."""
        if self.focused is self.tree_view:
            return self.tree_view
        return self.view.pane()

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

    # copy, export, editor, help, quit

    def copy(self, text: str) -> None:
        """Copy a text and say what that meant."""
        if not text:
            self.notify("nothing here to copy")
            return
        if len(text.encode("utf-8", "replace")) <= clipboard.OSC52_LIMIT:
            self.copy_to_clipboard(text)
        path, problem = clipboard.save(text)
        self.notify(clipboard.message(text, path, problem), timeout=6)

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
        self.copy(self.view.export_text())

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
        try:
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
        except FxscopeError as error:
            self.call_from_thread(self.notify, str(error), severity="error", timeout=10)
            return
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
        try:
            with self.suspend():
                code = subprocess.call(command)
        except OSError as error:
            self.notify(f"cannot start {command[0]}: {error.strerror}", severity="error")
            return
        except SuspendNotSupported as error:
            self.notify(f"cannot hand the terminal to {command[0]}: {error}", severity="error")
            return
        if code:
            self.notify(f"{command[0]} ended with exit code {code}", severity="warning")

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


def _tabs_width(active: str, letters: int) -> int:
    """Cells of the row of views when the names of all but the active one have so many letters."""
    return sum(
        3 + (1 if letters or name == active else 0) + len(name if name == active else name[:letters]) for name in VIEWS
    )


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


SWITCH = 0.001  # seconds after which a worker hands over the interpreter; Python's 5 ms are felt at a key press


# Young objects are collected often, all of them practically never: a full collection looks at every record and holds up all
# threads, a quarter of a second with a graph of 50,000 nodes. Records hold no cycles; reference counts alone free them.
COLLECT = (10_000, 20, 100_000)


def open_app(path: str) -> None:
    """Open the app on a recording, a TORCH_TRACE folder or one log, and follow it while it grows."""
    FxscopeApp(Store(path)).run()


def run_live(command: Sequence[str], env: Mapping[str, str], recording: str | Path) -> int:
    """Run a program in a pseudo-terminal inside the app.

    Args:
        command: Program and arguments.
        env: Its whole environment.
        recording: Folder that its trace logs and ``output.log`` go to.

    Returns:
        The program's exit code; 128 + n where a signal ended it.
    """
    program = Program(command, env, recording)
    app = FxscopeApp(Store(recording, live=True), program)
    try:
        app.run()
    finally:
        code = program.stop() if program.started else 127
    if app.return_code:
        raise FxscopeError(f"the app failed; the recording is whole: fxscope report {recording}")
    return code


__all__ = ["KEYS", "FxscopeApp", "open_app", "run_live"]
