"""The source beside a graph, a break or a guard: the file where it is on this machine, else the lines that the log carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..spans import clean
from ..store import SourceFile
from ..widgets.code_view import CodeView, Mark


class SourcePane(CodeView):
    """Shows one file, follows a line, marks some."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.file = ""
        self._known = -1  # how many lines of the log it was told
        self._wanted: tuple[int, Mapping[int, Mark]] = (0, {})
        self._reading = False
        self.border_title = ""

    def follow(
        self,
        file: str,
        line: int,
        read: Callable[[str, Callable[[SourceFile], None]], None],
        known: Mapping[int, str],
        marks: Mapping[int, Mark],
    ) -> None:
        """Show a line of a file.

        Args:
            file: Path as logged.
            line: The line for the cursor.
            read: Reads a file on a worker and calls back here.
            known: Lines that the log carries, shown where the file is not readable or has changed since.
            marks: By line number.
        """
        self._wanted = (line, marks)
        if file != self.file or len(known) != self._known:
            self.file, self._known, self._reading = file, len(known), True
            read(file, lambda source: self._show(source, file, known))
        elif not self._reading:
            self.mark(marks)
            self.to_line(line)

    def _show(self, source: SourceFile, file: str, known: Mapping[int, str]) -> None:
        if file != self.file:
            return
        self._reading = False
        line, marks = self._wanted
        self.note = source.note
        if source.text is not None and not self._differs(source.text, known):
            self.show(source.text, "python", marks=marks, line=line)
            self.note = ""
        else:
            if source.text is not None:
                self.note = f"{file} has changed since: only lines that the log carries are shown"
            numbers = sorted(known)
            self.show("\n".join(known[number] for number in numbers), "python", marks=marks, numbers=numbers, line=line)
        self.border_subtitle = clean(self.note)

    note = ""

    @staticmethod
    def _differs(text: str, known: Mapping[int, str]) -> bool:
        """Whether a line that the log carries is another one in the file."""
        lines = text.split("\n")
        return any(
            number > len(lines) or lines[number - 1].strip() != code.strip()
            for number, code in known.items()
            if code.strip() and "\n" not in code
        )
