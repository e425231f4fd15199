"""Output: what the program printed, live, and a line to type into it."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.strip import Strip
from textual.widgets import Input

from ..spans import Spans
from ..store import Snapshot
from ..terminal import Output
from ..widgets.line_view import LineView
from .view import View, fact


class OutputLines(LineView):
    """The lines of an ``Output``; G follows the tail."""

    follows_tail = True

    def __init__(self) -> None:
        super().__init__(id="output-lines")
        self.output = Output()
        self.auto_tail = True
        self._longest = 0
        self._measured = 0

    def count(self) -> int:
        """Lines so far."""
        return self.output.count

    def spans(self, index: int) -> Spans:
        """A line without its colours; ``_strip`` adds them."""
        return [(self.output.plain(index), "")]

    def content_width(self) -> int:
        """Cells of the longest line seen."""
        lines = self.output.lines
        start = max(0, min(self._measured, len(lines)) - 1)
        self._longest = max([self._longest, *(len(line) for line in lines[start:])], default=0)
        self._measured = len(lines)
        return min(self._longest, 20_000)

    def _strip(self, index: int, width: int, scroll_x: int) -> Strip:
        """Coloured lines are made by rich; plain ones, and those with marks, as everywhere."""
        if "\x1b" not in self.output.lines[index] or self.needle or index == self.cursor:
            return super()._strip(index, width, scroll_x)
        text: Text = self.output.styled(index)
        segments = [segment for segment in text.render(self.app.console, end="") if segment.text]
        strip = Strip(segments).apply_style(self._base).crop_extend(scroll_x, scroll_x + width, self._base)
        return strip.apply_offsets(scroll_x, index)


class OutputView(View):
    """The program's own output."""

    NAME = "output"
    TERMS = "What the program printed. i types a line to it; G follows the end."
    EMPTY = (
        "There is no output to show.\n\n"
        "The output of a program that runs here (`fxscope run` with a terminal) appears here as it is printed.\n"
        "Recordings made headless or with TORCH_TRACE keep none: the program printed to its own terminal."
    )
    DEFAULT_CSS = """
    OutputView #output-input { height: 1; border: none; background: $surface; display: none; padding: 0 1; }
    OutputView.-typing #output-input { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._loaded = False
        self.unseen = 0

    def body(self) -> ComposeResult:
        """Lines and a line to type into."""
        yield OutputLines().add_class("body")
        yield Input(id="output-input", placeholder="a line for the program; enter sends it, esc leaves", compact=True)

    @property
    def lines(self) -> OutputLines:
        """The lines."""
        return self.query_one(OutputLines)

    def feed(self, data: bytes) -> None:
        """More output."""
        self.lines.output.feed(data)
        self._update()

    def _update(self) -> None:
        lines = self.lines
        if lines.count():
            self.filled()
        before = lines.virtual_size.height
        if self.display:
            lines.changed()
        self.unseen = 0 if lines.auto_tail else self.unseen + max(0, lines.count() - before)
        self._tell()

    def _tell(self) -> None:
        output = self.lines.output
        cells = [fact("lines", f"{output.count:,}")]
        if output.dropped:
            cells.append([(f"the first {output.dropped:,} are only in output.log", "warn")])
        if not self.lines.auto_tail and self.unseen:
            cells.append([(f"{self.unseen} new lines below: G", "accent")])
        elif self.lines.auto_tail and self.scope.program is not None and self.scope.program.running:
            cells.append([("following", "good")])
        self.tell(*cells)

    def take(self, snapshot: Snapshot) -> None:
        """Load output.log of a finished recording once; a live program feeds us itself."""
        self.snapshot = snapshot
        if self.scope.program is None and not self._loaded:
            self._loaded = True
            self.load(self.scope.store.output, self._show_log)
        if not self.lines.count():
            program = self.scope.program
            self.empty(
                ""
                if program is None
                else f"The program {'has printed nothing yet' if program.running else 'printed nothing'}."
            )
        else:
            self.lines.changed()
            self._tell()

    def _show_log(self, data: bytes) -> None:
        if data:
            self.lines.auto_tail = False
            self.feed(data)

    def do_type(self) -> None:
        """Open the line that is sent to the program."""
        program = self.scope.program
        if program is None or not program.running:
            self.notify("no program runs here that could be typed to")
            return
        self.add_class("-typing")
        self.query_one(Input).focus()

    def do_eof(self) -> None:
        """Ctrl-D for the program."""
        if self.scope.program is not None:
            self.scope.program.write(b"\x04")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the line."""
        event.stop()
        if self.scope.program is not None:
            self.scope.program.write(event.value.encode() + b"\n")
        event.input.value = ""

    def ended(self) -> None:
        """The program has ended: nobody reads what is typed."""
        had_focus = self.query_one(Input).has_focus
        self.remove_class("-typing")
        if had_focus:
            self.lines.focus()
        self._tell()

    def on_key(self, event: events.Key) -> None:
        """Escape leaves the input line; ctrl+d in an empty one is end of input."""
        line = self.query_one(Input)
        if not line.has_focus:
            return
        if event.key == "escape":
            event.stop()
            self.remove_class("-typing")
            self.lines.focus()
        elif event.key == "ctrl+d" and not line.value:
            event.stop()
            self.do_eof()

    def follow(self, view: LineView) -> None:
        """Say whether the end is followed."""
        self._tell()

    def on_resize(self, event: events.Resize) -> None:
        """The program's window is our pane."""
        if self.scope.program is not None and self.lines.size.width:
            self.scope.program.resize(self.lines.size.width, self.lines.size.height)

    def export_text(self) -> str:
        """Everything printed, without colours."""
        output = self.lines.output
        return "\n".join(output.plain(index) for index in range(output.count))
