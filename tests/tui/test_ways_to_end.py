"""Ends of a live run that nobody asked for, in a real terminal: the terminal goes away, the app fails."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LIMIT = 120.0
LIVE = """
import sys
from pathlib import Path
from fxscope_tui import app
from fxscope.cli.main import main

class Failing(app.FxscopeApp):
    def _poll(self):
        if Path("up").exists():
            raise RuntimeError("boom")

if sys.argv.pop(1) == "failing":
    app.FxscopeApp = Failing
main()
"""
PROGRAM = """
import os, signal, sys, time
from pathlib import Path

def save(number, frame):
    time.sleep(0.5)
    Path("saved").touch()
    sys.exit(9)

if "saves" in sys.argv:
    signal.signal(signal.SIGHUP, save)
if "asks" in sys.argv:
    print("earlier line")
    print("your name? ", end="", flush=True)
    Path("up").touch()
    try:
        print("hello", input(), "in", os.get_terminal_size().lines, "lines", flush=True)
        time.sleep(100)
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(6)
Path("up").touch()
for _ in range(1000):
    if Path("go").exists():
        print("the program has ended")
        sys.exit(5)
    time.sleep(0.1)
"""


class Terminal:
    """``fxscope run program.py`` in a terminal whose other end is ours."""

    def __init__(self, folder: Path, how: str, *arguments: str) -> None:
        self.folder = folder
        self.seen = b""
        (folder / "live.py").write_text(LIVE)
        (folder / "program.py").write_text(PROGRAM)
        self.master, slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "live.py", how, "run", "-o", "made", "program.py", *arguments],
            cwd=folder,
            env={**os.environ, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def until(self, holds: Callable[[], bool]) -> None:
        """Take what is printed until something holds."""
        limit = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < limit, self.seen[-2000:]
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.master, 1 << 16)
                except OSError:  # Linux: nobody holds the other end any more
                    self.process.wait(LIMIT)

    def session(self) -> dict[str, object]:
        """What the recording says of its end."""
        told: dict[str, object] = json.loads((self.folder / "made" / "session.json").read_text())
        return told


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(how: str, *arguments: str) -> Terminal:
        made.append(Terminal(tmp_path, how, *arguments))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 128 + signal.SIGHUP), (("saves",), 9)], ids=["ends", "saves first"]
)
def test_a_terminal_that_goes_away_ends_the_recording(
    arguments: tuple[str, ...], code: int, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    live = terminal("well", *arguments)
    live.until(lambda: (tmp_path / "up").exists() and b"program.py" in live.seen)
    os.close(live.master)
    assert live.process.wait(LIMIT) == 128 + signal.SIGHUP
    told = live.session()
    assert (told["state"], told["exit_code"]) == ("ended", code)
    assert (tmp_path / "saved").exists() == bool(arguments)


def test_an_app_that_fails_lets_the_program_go_on(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    live = terminal("failing")
    live.until(lambda: b"the program goes on without it" in live.seen)
    (tmp_path / "go").touch()
    live.until(lambda: live.process.poll() is not None)
    os.close(live.master)
    assert b"the program has ended" in live.seen
    assert b"the app failed; the recording is whole" in live.seen
    told = live.session()
    assert told["state"] == "ended"
    assert told["exit_code"] == 5
    assert "the program has ended" in (tmp_path / "made" / "output.log").read_text()


def test_a_program_that_is_left_alone_has_the_whole_terminal(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    """What it had asked is shown again, it reads what is typed, its window is the terminal, and Ctrl-C is its own to catch."""
    live = terminal("failing", "asks")
    before = termios.tcgetattr(live.master)[3]
    live.until(lambda: b"your name? " in live.seen.rpartition(b"goes on without it, in this terminal")[2])
    assert b"earlier line" in live.seen.rpartition(b"goes on without it")[2]
    os.write(live.master, b"Ada\r")
    live.until(lambda: b"hello Ada in 33 lines" in live.seen)
    assert live.seen.count(b"Ada") == 2  # echoed once, by the program's own terminal
    os.write(live.master, b"\x03")
    live.until(lambda: live.process.poll() is not None)
    assert b"interrupted" in live.seen
    assert termios.tcgetattr(live.master)[3] == before
    os.close(live.master)
    assert live.session()["exit_code"] == 6
