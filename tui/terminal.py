r"""What a program prints, as lines: carriage returns, backspaces and cursor movement of progress bars are followed.

This is no terminal emulator. It keeps colours, follows what progress bars do (``\r``, ``\b``, erase line, cursor up), and
drops every other control sequence, so that nothing that a program prints reaches the real terminal.
"""

from __future__ import annotations

import codecs
import re

from rich.text import Text

from .spans import clean

_TOKEN = re.compile(
    r"\x1b\[(?P<args>[0-9;:?<=>]*)[ -/]*(?P<final>[@-~])"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"  # OSC, DCS and other strings
    r"|\x1b[ -/]*[0-~]"  # short escapes
    r"|(?P<control>[\x00-\x1f\x7f])"
    r"|(?P<text>[^\x00-\x1f\x7f\x1b]+)",
    re.DOTALL,
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:?<=> -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?$")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")
LONGEST_LINE = 20_000
LINES = 200_000  # kept; the whole output is in output.log


class Output:
    """Lines of a program's output, fed in pieces of bytes. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.dropped = 0
        self.version = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._row = 0
        self._column = 0
        self._style = ""

    def feed(self, data: bytes) -> None:
        """Take in what the program printed."""
        text = self._rest + self._decode(data)
        self._rest = ""
        cut = _UNFINISHED.search(text[-4096:])
        if cut and cut.group():
            self._rest = cut.group()
            text = text[: len(text) - len(self._rest)]
        for match in _TOKEN.finditer(text):
            if match["text"] is not None:
                self._put(match["text"])
            elif match["control"] is not None:
                self._control(match["control"])
            elif match["final"] is not None:
                self._sequence(match["args"], match["final"])
        if len(self.lines) > LINES + 10_000:
            extra = len(self.lines) - LINES
            del self.lines[:extra]
            self._row = max(0, self._row - extra)
            self.dropped += extra
        self.version += 1

    def _put(self, text: str) -> None:
        text = clean(text)  # 8-bit controls and bidirectional marks act on terminals too
        line = self.lines[self._row]
        if self._column >= _length(line):
            if len(line) < LONGEST_LINE:
                pad = " " * (self._column - _length(line))
                self.lines[self._row] = f"{line}{pad}{self._style}{text}" + ("\x1b[0m" if self._style else "")
        else:
            # Overwritten text loses the colours of the line it replaces: progress bars repaint whole lines.
            bare = _SGR.sub("", line)
            tail = bare[self._column + len(text) :]
            head = bare[: self._column]
            end = "\x1b[0m" if self._style else ""
            self.lines[self._row] = f"{head}{self._style}{text}{end}{tail}"
        self._column += len(text)

    def _control(self, control: str) -> None:
        if control == "\n":
            self._row += 1
            self._column = 0
            if self._row >= len(self.lines):
                self.lines.append("")
        elif control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, self._column - 1)
        elif control == "\t":
            self._put(" " * (8 - self._column % 8))

    def _sequence(self, args: str, final: str) -> None:
        number = int(args) if args.isdigit() else 1
        if final == "m":
            self._style = "" if args in ("", "0") else f"\x1b[{args}m"
        elif final == "A":
            self._row = max(0, self._row - min(number, 200))
        elif final == "B":
            self._row = min(len(self.lines) - 1, self._row + number)
        elif final == "G":
            self._column = min(max(0, number - 1), LONGEST_LINE)
        elif final == "C":
            self._column = min(self._column + number, LONGEST_LINE)
        elif final == "D":
            self._column = max(0, self._column - number)
        elif final == "K":
            bare = _SGR.sub("", self.lines[self._row])
            if args in ("", "0"):
                if self._column < len(bare):
                    self.lines[self._row] = bare[: self._column]
            else:
                self.lines[self._row] = ""
        elif final == "J" and args in ("2", "3"):
            self.lines.append("")  # clearing the screen starts a new line: nothing that was printed is lost
            self._row, self._column = len(self.lines) - 1, 0

    def plain(self, index: int) -> str:
        """A line without colours."""
        return clean(_SGR.sub("", self.lines[index]))

    def styled(self, index: int) -> Text:
        """A line with its colours."""
        return Text.from_ansi(self.lines[index], no_wrap=True, end="")

    @property
    def count(self) -> int:
        """Lines, without an empty one at the end."""
        return len(self.lines) - (self.lines[-1] == "")


def _length(line: str) -> int:
    return len(line) if "\x1b" not in line else len(_SGR.sub("", line))
