"""The base of every list, table and text pane: lines on demand, one cursor, the same keys everywhere.

Only the visible lines are ever built. A subclass says how many lines there are and what one line looks like; this class
owns the cursor, the scrolling, the cache of rendered lines and the marked search matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from ..colours import span_styles
from ..keymap import bindings
from ..spans import Spans, fit, joined, mark_matches, restyle


class LineView(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines with a cursor. Subclasses override ``count``, ``spans`` and, where there is one, ``header``."""

    ALLOW_SELECT = True
    BINDINGS = bindings("lines")
    DEFAULT_CSS = """
    LineView { background: $background; color: $foreground; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
    """

    header_rows = 0

    class Chosen(Message):
        """Enter or a double click on a line."""

        def __init__(self, view: LineView, index: int) -> None:
            self.view = view
            self.index = index
            super().__init__()

        @property
        def control(self) -> LineView:
            """The view in which a line was chosen."""
            return self.view

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.cursor = 0
        self.needle = ""  # matches of this text are marked
        self.auto_tail = False  # keep the last line in sight until the user moves
        self._strips: LRUCache[tuple[Any, ...], Strip] = LRUCache(2048)
        # Called with this view after its cursor moved. No message: what follows the cursor is drawn in the same frame then.
        self.on_cursor: Callable[[LineView], None] = lambda view: None
        self._unseen: bool | None = None  # the cursor moved while nothing was visible; True: to the middle
        self._start = -1  # the line that ``start_at`` put the cursor on
        self._base = Style.null()  # of the widget; worked out once per drawing, not per line
        self._mixed: dict[str, Mapping[str, Style]] = {}

    # what a subclass says

    def count(self) -> int:
        """Number of lines now."""
        raise NotImplementedError

    def spans(self, index: int) -> Spans:
        """One line, unpadded."""
        raise NotImplementedError

    def header(self) -> Spans:
        """The line that stays on top, where ``header_rows`` is 1."""
        return ()

    def line_text(self, index: int) -> str:
        """One line as text, as copied and exported."""
        return "".join(text for text, _ in self.spans(index)).rstrip()

    def content_width(self) -> int:
        """Cells of the widest line; 0 where lines are cut at the edge instead of scrolled."""
        return 0

    def variant(self, index: int) -> object:
        """What else a line's look depends on, beside its content and the cursor: its mark, say."""
        return None

    # drawing

    def changed(self) -> None:
        """The lines are different now: forget what was drawn, keep the cursor inside."""
        self._strips.clear()
        count = self.count()
        at_end = self.auto_tail
        self.virtual_size = Size(max(self.content_width(), 1), count + self.header_rows)
        self.cursor = max(0, min(self.cursor, count - 1))
        if at_end and count:
            self.cursor = count - 1
            self.reveal(self.cursor)
        self.refresh()

    def redraw(self) -> None:
        """Draw the same lines anew because all of them look different."""
        self._strips.clear()
        self.refresh()

    def redraw_lines(self, indices: Iterable[int]) -> None:
        """Draw some lines anew, those of them that are in sight; the rest of the screen is not even looked at."""
        top, width = self.scroll_offset.y, self.size.width
        page = range(self.size.height - self.header_rows)
        rows = sorted({index - top for index in indices} & set(page))
        if rows:
            self.refresh(*(Region(0, row + self.header_rows, width, 1) for row in rows))

    def render_lines(self, crop: Region) -> list[Strip]:
        """The viewport (Textual's line API)."""
        base = self.rich_style
        if base != self._base:
            self._base = base
            self._forget()
        return super().render_lines(crop)

    def _forget(self) -> None:
        """Colours are others now."""
        self._mixed.clear()
        self._strips.clear()

    def _looks(self, line: str = "") -> Mapping[str, Style]:
        """Styles by the names of spans, on a line's own background: ``head``, ``cursor``, ``focused`` or none."""
        looks = self._mixed.get(line)
        if looks is None:
            styles = span_styles(self.app)
            base = self._base + styles[line] if line else self._base
            looks = self._mixed[line] = {"": base, **{name: base + style for name, style in styles.items()}}
        return looks

    @property
    def room(self) -> int:
        """Cells of a line: what the scroll bar leaves."""
        return self.scrollable_content_region.width

    def render_line(self, y: int) -> Strip:
        """One line of the viewport (Textual's line API)."""
        width = self.room
        if width <= 0:
            return Strip.blank(0)
        if y < self.header_rows:
            look = self._looks()["head"]
            return Strip([Segment(text, look) for text, _ in fit(self.header(), width)], width)
        scroll_x, scroll_y = self.scroll_offset
        index = scroll_y + y - self.header_rows
        if index >= self.count():
            return Strip.blank(width, self._base)
        return self._strip(index, width, scroll_x)

    def _strip(self, index: int, width: int, scroll_x: int) -> Strip:
        """A line as wide as the viewport, from the cache where it is there."""
        line = "" if index != self.cursor else "focused" if self.has_focus else "cursor"
        selection = self.text_selection
        key = (index, width, scroll_x, line, self.needle, self.variant(index))
        strip = self._strips.get(key) if selection is None else None
        if strip is not None:
            return strip
        spans = list(self.spans(index))
        if self.needle:
            spans = mark_matches(spans, self.needle)
        if selection is not None and (chosen := selection.get_span(index)) is not None:
            spans = restyle(spans, chosen[0], chosen[1], "match")
        looks = self._looks(line)
        strip = Strip([Segment(text, looks[style]) for text, style in joined(spans)])
        strip = strip.crop_extend(scroll_x, scroll_x + width, looks[""])
        # Where a mouse selection would start and end.
        strip = strip.apply_offsets(scroll_x, index)
        if selection is None:
            self._strips[key] = strip
        return strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Text under a mouse selection, as it is drawn."""
        start, end = selection
        first = start.y if start is not None else 0
        last = self.count() if end is None else min(end.y + 1, self.count())
        lines = ("".join(text for text, _ in self.spans(index)) for index in range(first, last))
        inside = Selection(
            None if start is None else Offset(start.x, 0), None if end is None else Offset(end.x, end.y - first)
        )
        return inside.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw the selection."""
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """A theme changed: colours in the cache are stale."""
        self._forget()
        super().notify_style_update()

    # moving

    @property
    def page(self) -> int:
        """Lines that are visible at once, above the scroll bar."""
        return max(1, self.scrollable_content_region.height - self.header_rows)

    def move_to(self, index: int, *, centre: bool = False, tell: bool = True) -> None:
        """Put the cursor on a line and show it."""
        count = self.count()
        if not count:
            return
        index = max(0, min(index, count - 1))
        before, self.cursor = self.cursor, index
        self.reveal(index, centre=centre)
        if before != index:
            self._start = -1
            self.redraw_lines((before, index))
            if tell:
                self.on_cursor(self)

    def start_at(self, index: int) -> None:
        """Put the cursor on a line in the middle of the view, and keep it there while the layout settles."""
        self.move_to(index, tell=False)
        self._start = index
        self._to_middle()

    def _to_middle(self) -> None:
        if self.size.height:
            self.scroll_to(y=max(0, self.cursor - self.page // 2), animate=False, immediate=True, force=True)

    def reveal(self, index: int, *, centre: bool = False) -> None:
        """Scroll so that a line is visible; with ``centre`` to the middle where it was not."""
        if not self.size.height:  # hidden, or not laid out yet
            self._unseen = centre
            return
        top, page = self.scroll_offset.y, self.page
        if top <= index < top + page:
            return
        nearest = index if index < top else index - page + 1
        target = index - page // 2 if centre else nearest
        self.scroll_to(y=max(0, target), animate=False, immediate=True, force=True)

    def on_resize(self, event: events.Resize) -> None:
        """Show the cursor where that had to wait for a place to show it in, and the tail where that is followed."""
        if self.auto_tail and self.count():
            self.reveal(self.count() - 1)
        if self._start == self.cursor:
            self._to_middle()
        if self._unseen is not None and self.size.height and self.count():
            centre, self._unseen = self._unseen, None
            self.reveal(self.cursor, centre=centre)

    def action_move(self, by: int) -> None:
        """Move the cursor by lines."""
        self.auto_tail = False
        self.move_to(self.cursor + by)

    def action_page(self, by: float) -> None:
        """Move the cursor by pages."""
        self.action_move(int(by * self.page) or (1 if by > 0 else -1))

    def action_top(self) -> None:
        """Move to the first line."""
        self.auto_tail = False
        self.move_to(0)

    def action_bottom(self) -> None:
        """Move to the last line; a live list then follows its tail."""
        self.move_to(self.count() - 1)
        self.auto_tail = self.follows_tail

    follows_tail = False  # whether G makes this view follow new lines

    def action_sideways(self, by: int) -> None:
        """Scroll to the side."""
        self.scroll_to(x=max(0, self.scroll_offset.x + by), animate=False, immediate=True)

    def action_choose(self) -> None:
        """Enter on the cursor's line."""
        if self.count():
            self.post_message(self.Chosen(self, self.cursor))

    def line_at(self, y: int) -> int | None:
        """The line under a row of the viewport."""
        index = self.scroll_offset.y + y - self.header_rows
        return index if y >= self.header_rows and 0 <= index < self.count() else None

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse clicks; a double click chooses."""
        index = self.line_at(event.get_content_offset_capture(self).y)
        if index is None:
            return
        self.auto_tail = False
        self.move_to(index)
        if event.chain == 2:
            self.action_choose()

    def on_mouse_scroll_up(self) -> None:
        """Whoever scrolls back wants to read, not to follow."""
        self.auto_tail = False
        self._start = -1

    def on_mouse_scroll_down(self) -> None:
        """Whoever scrolls on has left the place to start at."""
        self._start = -1

    def on_focus(self) -> None:
        """The cursor looks different with the focus."""
        self.redraw_lines((self.cursor,))

    def on_blur(self) -> None:
        """The cursor looks different without the focus."""
        self.redraw_lines((self.cursor,))

    # searching

    def matches(self, needle: str, cancelled: Callable[[], bool] = lambda: False) -> list[int]:
        """All lines that contain ``needle`` as ``find`` means it, ascending; too few of them only where cancelled."""
        folded = needle == needle.lower()
        found = []
        for index in range(self.count()):
            if index % 2048 == 0 and cancelled():
                break
            try:
                text = self.line_text(index)
            except IndexError:  # on a worker: another, shorter text has come meanwhile
                break
            if needle in (text.lower() if folded else text):
                found.append(index)
        return found

    def find(self, needle: str, start: int, step: int) -> int | None:
        """The next line that contains ``needle`` (case is ignored unless it has capitals), going round once."""
        count = self.count()
        folded = needle == needle.lower()
        for offset in range(count):
            index = (start + step * offset) % count
            text = self.line_text(index)
            if needle in (text.lower() if folded else text):
                return index
        return None
