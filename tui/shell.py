"""The shell: lines at top and bottom, the tree, the views, and how they share the window."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.geometry import Size
from textual.notifications import SeverityLevel
from textual.widget import Widget

from .keymap import VIEWS, bindings, display, footer
from .palette import Actions
from .program import Program
from .screens import views
from .screens.view import View
from .spans import Span
from .status import status_items
from .store import Snapshot, Store
from .widgets.bar import Bar, Item
from .widgets.filter_bar import FilterBar
from .widgets.frame_tree import TreeView
from .widgets.line_view import LineView

NARROW = 90  # cells under which the tree folds away


class Shell(App[None]):
    """What is on the screen, and which view of it; it reads nothing and starts nothing."""

    TITLE = "fxscope"
    COMMANDS: ClassVar[Any] = {Actions}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS = bindings("app", *VIEWS)
    CSS = """
    Screen { layout: vertical; background: $background; }
    #middle { height: 1fr; }
    #left { width: 36; height: 1fr; border-right: solid $surface-lighten-2; }
    #left.-away { display: none; }
    #views { width: 1fr; height: 1fr; }
    .-zoomed-away { display: none; }
    .-low .terms { display: none; }
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
        self.window = Size(120, 40)  # of the terminal; the first resize event tells
        self.tree_view = TreeView()
        self._top, self._tabs_bar, self._keys_bar = Bar(id="top"), Bar(id="tabs"), Bar(id="keys")
        self._left, self._holder = Vertical(id="left"), Vertical(id="views")
        self._filter_bar = FilterBar()
        self._tree_wanted: bool | None = None  # None: by width
        self._reading = False
        self._restart_problem = ""

    # parts

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """As Textual's, for every view, but never as markup: what we tell quotes names and errors of a stranger's program."""
        del markup  # Textual's widgets pass their own default here, which is True
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=False)

    def compose(self) -> ComposeResult:
        """Top line, row of views, tree and view, filter, keys."""
        yield self._top
        yield self._tabs_bar
        with Horizontal(id="middle"):
            with self._left:
                yield self.tree_view
            yield self._holder
        yield self._filter_bar
        yield self._keys_bar

    @property
    def view(self) -> View:
        """The view that is shown."""
        assert self._view is not None, "no view before the app is mounted"
        return self._view

    # views

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

    def pane(self) -> LineView | None:
        """The pane that keys act on."""
        if self.focused is self.tree_view:
            return self.tree_view
        return self.view.pane()

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
        letters = next((n for n in (99, 5, 4, 3, 0) if _tabs_width(self.active, n) <= self.window.width), 0)
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
        seconds = time.monotonic() - self.started
        self._top.show(status_items(self.latest, self.program, seconds, self.rank, self.paused, self.window.width))

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


def _tabs_width(active: str, letters: int) -> int:
    """Cells of the row of views when the names of all but the active one have so many letters."""
    return sum(
        3 + (1 if letters or name == active else 0) + len(name if name == active else name[:letters]) for name in VIEWS
    )
