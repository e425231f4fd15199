"""What all views are: a line that explains their terms, a body, and a word about what would fill them when empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from ..collecting import reading
from ..spans import Span, clean
from ..store import Snapshot, describe
from ..widgets.bar import Bar, Item
from ..widgets.code_view import CodeView
from ..widgets.diff_view import DiffView
from ..widgets.document import Document
from ..widgets.line_view import LineView
from ..widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from ..app import FxscopeApp

Result = TypeVar("Result")
REFRESHES = 20  # after which a pane that does not appear is given up


class View(Vertical):
    """Base of the views. ``take`` gets each new snapshot while the view is visible, and the last one when it becomes so."""

    NAME: ClassVar[str] = ""
    TERMS: ClassVar[str] = ""
    EMPTY: ClassVar[str] = ""
    DEFAULT_CSS = """
    View { width: 1fr; height: 1fr; }
    View > .terms { height: auto; max-height: 2; color: $text-muted; text-style: italic; padding: 0 1; }
    View > .empty { height: 1fr; width: 1fr; color: $text-muted; padding: 1 2; display: none; }
    View > .facts { height: 1; background: $background; padding: 0 1; }
    View.-empty > .empty { display: block; }
    View.-empty > .body { display: none; }
    View.-empty > .facts { display: none; }
    """

    def __init__(self) -> None:
        super().__init__(id=f"view-{self.NAME}")
        self.snapshot: Snapshot | None = None
        self.compile_key: str | None = None

    def compose(self) -> ComposeResult:
        """The line of terms, facts, the body, the word for emptiness."""
        yield Static(self.TERMS, classes="terms", markup=False)
        yield Bar(id=f"facts-{self.NAME}")
        yield from self.body()
        yield Static(self.EMPTY, classes="empty", markup=False)

    def on_mount(self) -> None:
        """Name the facts line so that the style sheet finds it; what stands beside a list follows its cursor."""
        self.facts.add_class("facts")
        for pane in self.query(LineView):
            pane.on_cursor = self.follow

    def body(self) -> ComposeResult:
        """The widgets of the view, with class ``body``."""
        raise NotImplementedError

    # data

    def take(self, snapshot: Snapshot) -> None:
        """New records (already of the chosen rank)."""
        raise NotImplementedError

    def choose_compile(self, key: str | None) -> None:
        """Another compile is selected."""
        if key != self.compile_key:
            self.compile_key = key
            self.compile_changed()

    def compile_changed(self) -> None:
        """Show the selected compile, for views that are about one."""

    def empty(self, why: str = "") -> None:
        """Show nothing but what would fill the view."""
        self.query_one(".empty", Static).update("\n".join(map(clean, (why or self.EMPTY).split("\n"))))
        self.add_class("-empty")

    def filled(self) -> None:
        """There is something to show."""
        self.remove_class("-empty")
        if self.wants_focus:
            self.call_after_refresh(self._focus_when_there, REFRESHES)

    wants_focus = False  # the view was opened while it had nothing to focus

    def _focus_when_there(self, tries: int) -> None:
        """Panes of a view that was empty have a place only when the style sheet has been looked at."""
        if self.wants_focus and self.display:
            self.take_focus()
            if self.wants_focus and tries:
                self.call_after_refresh(self._focus_when_there, tries - 1)

    def take_focus(self) -> None:
        """Focus the first pane, at once or when there is one."""
        main = self.main
        self.wants_focus = main is None
        if main is not None and self.display:
            main.focus()

    def on_virtual_table_filtered(self, event: VirtualTable.Filtered) -> None:
        """A filter puts the cursor on another row."""
        self.follow(event.table)

    def follow(self, view: LineView) -> None:
        """The cursor of a pane is on another line."""

    # services

    @property
    def scope(self) -> FxscopeApp:
        """The app."""
        return cast("FxscopeApp", self.app)

    @property
    def facts(self) -> Bar:
        """The line of facts above the body."""
        return self.query_one(f"#facts-{self.NAME}", Bar)

    def tell(self, *cells: Any) -> None:
        """Fill the line of facts."""
        self.facts.show([Item(cell, keep=9 - number) for number, cell in enumerate(cells)])

    def load(self, job: Callable[[], Result], done: Callable[[Result], None], group: str = "load") -> None:
        """Run ``job`` on a worker and ``done`` with its result here; the latest of a group wins.

        A job that fails shows its error in place of the view.
        """
        ticket = self._tickets.get(group, 0) + 1
        self._tickets[group] = ticket

        def finish(result: Result | None, problem: str) -> None:
            if self._tickets[group] != ticket or not self.is_attached:
                return
            if problem:
                self.empty(problem)
            else:
                done(cast("Result", result))

        def work() -> None:
            result: Result | None = None
            problem = ""
            try:
                with reading():
                    result = job()
            except Exception as error:  # noqa: BLE001 - whatever a log made us stumble over is shown, never raised at the user
                problem = describe(error)
            if not self.app._exit:
                self.app.call_from_thread(finish, result, problem)

        self.run_worker(work, thread=True, group=f"{self.NAME}-{group}", exit_on_error=False)

    @property
    def _tickets(self) -> dict[str, int]:
        tickets: dict[str, int] = self.__dict__.setdefault("_ticket_numbers", {})
        return tickets

    # what the app's keys ask of a view

    @property
    def main(self) -> Widget | None:
        """What gets the focus first."""
        views = [
            view
            for view in self.query(LineView)
            if all(part.display for part in view.ancestors_with_self if isinstance(part, Widget))
        ]
        return views[0] if views else None

    def pane(self) -> LineView | None:
        """The pane that keys act on: the one in focus, else the first."""
        focused = self.screen.focused
        if isinstance(focused, LineView) and self in focused.ancestors:
            return focused
        main = self.main
        return main if isinstance(main, LineView) else None

    def source_line(self) -> tuple[str, int] | None:
        """File and line for the editor."""
        return None

    about_compile = False  # whether the view is about the selected compile

    def back(self) -> bool:
        """Escape: leave something of the view's own; False where there is nothing to leave."""
        return False

    def show_record(self, kind: str, index: int) -> None:
        """Put the cursor on a record of the recording."""

    def choose_stage(self, stage: str, index: int) -> None:
        """Show one stage of the selected compile."""

    def show_node(self, stage: str, node: str) -> None:
        """Show a graph node, or what was made of it."""

    def has_dot(self) -> bool:
        """Whether ``dot`` gives a graph."""
        return False

    def dot(self) -> str | None:
        """What is shown as a dot graph, where it is one."""
        return None

    def data(self) -> Any:
        """What is shown as plain data, for the JSON export."""
        return None

    def export_text(self) -> str:
        """What is shown as text."""
        pane = self.pane()
        if isinstance(pane, VirtualTable):
            return pane.table_text()
        if isinstance(pane, Document):
            return pane.page_text()
        if pane is not None:
            return "\n".join(pane.line_text(index) for index in range(pane.count()))
        return ""

    def next_match(self, step: int) -> bool:
        """For n and N: the next match, change or block."""
        pane = self.pane()
        if isinstance(pane, DiffView):
            index = pane.next_change(pane.cursor, step)
            if index is not None:
                pane.move_to(index, centre=True)
            return index is not None
        if isinstance(pane, Document) and not pane.needle:
            pane.next_key(step)
            return True
        if isinstance(pane, VirtualTable):
            pane.action_move(step)
            return True
        if isinstance(pane, CodeView | Document) and pane.needle:
            index = pane.find(pane.needle, pane.cursor + step, step)
            if index is not None:
                pane.move_to(index, centre=True)
            return index is not None
        return False


def fact(label: str, value: object, style: str = "") -> list[Span]:
    """A labelled value for the facts line."""
    return [(f"{label} ", "dim"), (str(value), style)]
