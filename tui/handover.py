"""The terminal handed to the recorded program, where the app has failed: what is typed reaches it, as without us."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from fxscope.names import OUTPUT_FILE

from .program import CHUNK, Program

_TAIL = 2000  # bytes of what it printed last: the screen that had them is gone, and it may have asked something


def hand_over(program: Program) -> None:
    """Run the program to its end in our terminal: that the app failed is no reason to stop it."""

    def show(data: bytes) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone, or nobody reads the pipe: output.log has it
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    program.on_end = lambda code: None
    print("fxscope: the app failed; the program goes on without it, in this terminal", file=sys.stderr, flush=True)
    try:
        with _raw_terminal(), _window_of(program):
            program.on_output = show  # before the tail is read: a line may come twice, and none is lost
            with contextlib.suppress(OSError):  # no output.log, on a full disk: what comes now is shown all the same
                show(_last_lines(program.folder / OUTPUT_FILE))
            _type_to(program)
        program.wait()
    except KeyboardInterrupt:  # standard input is no terminal: there Ctrl-C is typed to the program
        program.stop()


def _last_lines(path: Path, most: int = 10) -> bytes:
    with open(path, "rb") as file:  # it may be larger than the memory
        file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
        return b"".join(file.read(_TAIL).splitlines(keepends=True)[-most:])


def _type_to(program: Program) -> None:
    """Hand on what is typed, Ctrl-C and Ctrl-D too, until the program or our standard input ends."""
    while program.running:
        if select.select([sys.stdin.fileno()], [], [], 0.1)[0]:
            data = os.read(sys.stdin.fileno(), CHUNK)
            if not data:
                return
            program.write(data)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """The program's own terminal echoes, edits lines and makes signals of keys; ours must do neither."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed already is the program's too
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _window_of(program: Program) -> Iterator[None]:
    """Its window is all of ours, also after that changes; the app had shown it in a part."""

    def resize(_number: int = 0, _frame: FrameType | None = None) -> None:
        with contextlib.suppress(
            OSError
        ):  # no terminal, or gone. Not shutil's: COLUMNS and LINES do not follow the window
            program.resize(*os.get_terminal_size(sys.stdin.fileno()))

    resize()
    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
