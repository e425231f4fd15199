"""The user's source with what torch.compile did in its margin, like a coverage report."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from html import escape
from typing import TYPE_CHECKING, Literal

import msgspec

from fxscope.diagnosis.context import Context, short_seconds
from fxscope.diagnosis.diagnose import explain_records
from fxscope.diagnosis.failures import headline, place_of_failure
from fxscope.diagnosis.fixes import place_of
from fxscope.diagnosis.frames import frames
from fxscope.diagnosis.statement import source_lines
from fxscope.diagnosis.story import plain_function
from fxscope.recording.guards import flat
from fxscope.recording.userline import is_user_file
from fxscope.report.safe import plain_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from fxscope.recording.recording import Recording

_STYLES = {"bad": "red", "warn": "yellow", "mark": ""}
_CONTEXT = 2  # lines shown around a marked one where not the whole file is asked for


class Marks(msgspec.Struct, kw_only=True):
    """What happened at one line.

    Attributes:
        breaks: Break events whose user line this is.
        guards: Guards that this line asked for, over all compiled entries.
        recompiles: Recompiles of the function that begins here.
        seconds: Compile seconds of the function that begins here.
        calls: Calls of its compiled entries, None where nobody counted.
        notes: One line each: cause and fix.
        skipped: The function that begins here runs eager, or the break here caused that.
        failures: Compiles that this line made fail.
    """

    breaks: int = 0
    guards: int = 0
    recompiles: int = 0
    seconds: float = 0.0
    calls: int | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    skipped: bool = False
    failures: int = 0

    @property
    def weight(self) -> Literal["bad", "warn", "mark"]:
        """What it costs: a graph that ended or failed, one more compile, or nothing."""
        if self.failures or self.breaks or self.skipped:
            return "bad"
        return "warn" if self.recompiles else "mark"

    @property
    def margin(self) -> str:
        """``B2 R7 G12 0.5s``."""
        parts = [
            f"F{self.failures}" if self.failures else "",
            f"B{self.breaks}" if self.breaks else "",
            f"R{self.recompiles}" if self.recompiles else "",
            f"G{self.guards}" if self.guards else "",
        ]
        parts += [
            short_seconds(self.seconds).replace(" ", "") if self.seconds >= 0.005 else "",
            "EAGER" if self.skipped else "",
        ]
        parts.append(f"x{self.calls}" if self.calls is not None else "")
        return " ".join(part for part in parts if part)


class SourceFile(msgspec.Struct, kw_only=True):
    """One file with its marks; ``lines`` has those that are known (all, or only what the log carries)."""

    path: str
    lines: dict[int, str]
    marks: dict[int, Marks]
    complete: bool


def annotate(recording: Recording, only: str | None = None) -> list[SourceFile]:
    """Files of the user's program with marks, most marks first.

    Args:
        recording: What happened.
        only: Show just the files whose path ends with this, library files too.
    """
    explain_records(recording)
    marks: dict[str, dict[int, Marks]] = defaultdict(lambda: defaultdict(Marks))
    logged: dict[str, dict[int, str]] = defaultdict(dict)
    _mark_breaks(recording, marks, logged)
    _mark_failures(recording, marks)
    _mark_frames(recording, marks)
    _mark_guards(recording, marks, logged)
    found = []
    for path, by_line in marks.items():
        wanted = path.replace("\\", "/").endswith(only.replace("\\", "/")) if only else is_user_file(path)
        if not wanted:
            continue
        whole = source_lines(path)
        lines = dict(enumerate(whole, 1)) if whole else dict(sorted(logged[path].items()))
        found.append(SourceFile(path=path, lines=lines, marks=dict(by_line), complete=bool(whole)))
    return sorted(
        found,
        key=lambda file: (
            -sum(mark.failures + mark.breaks + mark.recompiles for mark in file.marks.values()),
            file.path,
        ),
    )


def _mark_breaks(recording: Recording, marks: dict[str, dict[int, Marks]], logged: dict[str, dict[int, str]]) -> None:
    for found in recording.graph_breaks:
        user = place_of(found)
        for file, line, code in dict.fromkeys([user, (found.file, found.line, found.code)]):
            mark = marks[file][line]
            mark.breaks += found.count
            mark.skipped |= found.skipped_frame
            first = (found.fix or "").split("\n", 1)[0]
            mark.notes.append(
                f"break x{found.count} {found.gb_id or ''} {found.cause or found.kind}: {first}".replace("  ", " ")
            )
            if code:
                logged[file].setdefault(line, code)


def _mark_failures(recording: Recording, marks: dict[str, dict[int, Marks]]) -> None:
    context = Context(recording)
    for failure in recording.failures:
        file, line = place_of_failure(context, failure)
        if file and line:
            mark = marks[file][line]
            mark.failures += 1
            mark.notes.append(f"failure in {failure.phase}: {failure.type}: {headline(failure.message)}")


def _mark_frames(recording: Recording, marks: dict[str, dict[int, Marks]]) -> None:
    for compile_ in recording.compiles:
        if not compile_.line or plain_function(compile_.function) != compile_.function:
            continue
        mark = marks[compile_.file][compile_.line]
        mark.seconds += compile_.seconds or 0.0
        mark.skipped |= compile_.status == "skipped"
        if compile_.calls is not None:
            mark.calls = (mark.calls or 0) + compile_.calls
    for frame in frames(Context(recording)):
        mark = marks[frame.place[0]][frame.place[1]]
        mark.recompiles += len(frame.changes)
        told = {(change.ids[0], change.name): change for change in frame.changes}
        numbers = Counter((change.ids[0], change.name) for change in frame.changes)
        for (cause, name), change in told.items():
            first = (change.recompile.fix or "").split("\n", 1)[0]
            mark.notes.append(f"recompile x{numbers[cause, name]} {cause}: {change.guard.guard[:100]}. {first}")
        if frame.limit is not None:
            mark.notes.append(f"{frame.limit.limit} reached: later variants run eager")


def _mark_guards(recording: Recording, marks: dict[str, dict[int, Marks]], logged: dict[str, dict[int, str]]) -> None:
    for compile_ in recording.compiles:
        for guard in flat(recording.guards(compile_)) if compile_.guards else ():
            if guard.type and guard.asked is not None and guard.asked.line and _absolute(guard.asked.file):
                marks[guard.asked.file][guard.asked.line].guards += 1
                if guard.asked.code:
                    logged[guard.asked.file].setdefault(guard.asked.line, guard.asked.code)


def _absolute(path: str) -> bool:
    """Guards name torch's own lines by paths relative to torch, which nobody can annotate."""
    return path.startswith(("/", "\\")) or path[1:2] == ":"


def _shown(file: SourceFile, whole: bool) -> Iterator[tuple[int, str]]:
    """Lines to show: all, or those near a mark; a gap is (0, "")."""
    if whole or not file.complete:
        yield from sorted(file.lines.items())
        return
    near = {number + step for number in file.marks for step in range(-_CONTEXT, _CONTEXT + 1)}
    previous = 0
    for number, text in sorted(file.lines.items()):
        if number in near:
            if number != previous + 1:
                yield 0, ""
            yield number, text
            previous = number


def print_files(files: list[SourceFile], console: Console, *, whole: bool = False) -> None:
    """For a terminal: margin, line number, source, and the notes below the line."""
    from rich.text import Text

    for file in files:
        console.print(Text(plain_line(file.path), style="bold"))
        if not file.complete:
            console.print(
                Text(
                    "  (the file is not here, or says something else now: only lines that the log carries)", style="dim"
                )
            )
        for number, source in _shown(file, whole):
            if not number:
                console.print(Text("   ...", style="dim"))
                continue
            mark = file.marks.get(number)
            style = _STYLES[mark.weight] if mark else ""
            line = Text(f"{mark.margin if mark else '':>18} ", style=style or "dim")
            line.append(f"{number:5} ", style="dim").append(plain_line(source), style=style)
            console.print(line, soft_wrap=True)
            for note in mark.notes if mark else []:
                # In a terminal under the line it belongs to; in a pipe one line, as tools like it.
                width = max(console.width, 60) if console.is_terminal else 1 << 20
                for text in textwrap.wrap(
                    plain_line(note), width, initial_indent=" " * 25 + "^ ", subsequent_indent=" " * 27
                ):
                    console.print(Text(text, style=style or "dim"), soft_wrap=True)
        console.print()


def html(files: list[SourceFile], title: str) -> str:
    """One self-contained page, every file whole."""
    title = escape(plain_line(title))
    body = "".join(_html_file(file) for file in files) or "<p>Nothing of the program's own source is marked.</p>"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{_CSS}</style></head><body><h1>{title}</h1>"
        "<p>F failures, B graph breaks, R recompiles, G guards asked for by the line, EAGER given up, seconds of compiling, x calls of compiled entries.</p>"
        f"{body}</body></html>\n"
    )


def _html_file(file: SourceFile) -> str:
    rows = []
    for number, source in sorted(file.lines.items()):
        mark = file.marks.get(number)
        kind = mark.weight if mark else ""
        notes = "".join(f'<div class="note">{escape(plain_line(note))}</div>' for note in (mark.notes if mark else []))
        rows.append(
            f'<tr class="{kind}"><td class="m">{escape(mark.margin) if mark else ""}</td><td class="n">{number}</td>'
            f"<td><pre>{escape(plain_line(source))}</pre>{notes}</td></tr>"
        )
    note = (
        ""
        if file.complete
        else "<p>The file is not here, or says something else now: only lines that the log carries.</p>"
    )
    return f"<h2>{escape(plain_line(file.path))}</h2>{note}<table>{''.join(rows)}</table>"


_CSS = (
    "body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}table{border-collapse:collapse}"
    "pre{margin:0;font:13px ui-monospace,monospace;white-space:pre}td{vertical-align:top;padding:0 .6em}"
    ".m{text-align:right;font:12px ui-monospace,monospace;color:#555;white-space:nowrap}.n{text-align:right;color:#999}"
    ".bad{background:#fdecea}.warn{background:#fff6df}.note{font-size:12px;color:#6a1b12;max-width:70em;white-space:normal}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}.bad{background:#4a1f1b}.warn{background:#423616}.note{color:#ffb4a8}.m,.n{color:#aaa}}"
)
