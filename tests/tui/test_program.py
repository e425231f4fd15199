"""Programs in the pseudo-terminal: exit codes, signals, input, window size, output that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fxscope_tui.program import Program
from fxscope_tui.status import program_name
from fxscope_tui.store import Snapshot

from fxscope.names import OUTPUT_FILE
from fxscope.recording import records

LIMIT = 60.0


class Session:
    """A started program whose output can be waited for."""

    def __init__(self, folder: Path, code: str, *arguments: str) -> None:
        self.program = Program([sys.executable, "-u", "-c", code, *arguments], dict(os.environ), folder)
        self.seen = b""
        self._grew = threading.Condition()
        self.ended: list[int] = []
        self.program.on_output = self._take
        self.program.on_end = self.ended.append

    def _take(self, data: bytes) -> None:
        with self._grew:
            self.seen += data
            self._grew.notify_all()

    def wait_for(self, text: bytes) -> None:
        with self._grew:
            assert self._grew.wait_for(lambda: text in self.seen, LIMIT), self.seen


@pytest.mark.parametrize(("code", "expected"), [("pass", 0), ("raise SystemExit(7)", 7), ("1/0", 1)])
def test_exit_codes(code, expected, tmp_path):
    session = Session(tmp_path, code)
    session.program.start()
    assert session.program.wait() == expected
    assert not session.program.running


def test_a_signal_is_128_plus_n(tmp_path):
    session = Session(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    session.program.start()
    assert session.program.wait() == 128 + signal.SIGKILL


def test_a_reader_that_fails_keeps_nobody_waiting(tmp_path, capfd):
    """The terminal that shows it may be gone: the program is read on to its end, which all who wait are told."""
    session = Session(tmp_path, "for _ in range(20000): print('x' * 9)\nraise SystemExit(3)")

    def show(_data: bytes) -> None:
        raise OSError(5, "Input/output error")

    session.program.on_output = show
    session.program.start()
    assert session.program._ended.wait(LIMIT)
    assert session.program.wait() == 3
    assert len((tmp_path / OUTPUT_FILE).read_bytes()) == 20000 * 11  # a terminal ends a line with two bytes
    assert capfd.readouterr().err.count("\nOSError: [Errno 5]") == 1


def test_output_is_kept_byte_for_byte(tmp_path):
    session = Session(tmp_path, r"import sys; sys.stdout.buffer.write(b'\x1b[31mred\x1b[0m \xff\n' * 500)")
    session.program.start()
    session.program.wait()
    kept = (tmp_path / OUTPUT_FILE).read_bytes()
    assert kept == b"\x1b[31mred\x1b[0m \xff\r\n" * 500
    assert session.seen == kept


def test_it_has_a_terminal_of_our_size(tmp_path):
    session = Session(
        tmp_path, "import os, sys; print(sys.stdin.isatty(), sys.stdout.isatty(), os.get_terminal_size())"
    )
    session.program.start(97, 31)
    session.program.wait()
    assert b"True True" in session.seen
    assert b"columns=97, lines=31" in session.seen


def test_typing_reaches_it(tmp_path):
    session = Session(tmp_path, "print('name?'); print('hello', input())")
    session.program.start()
    session.wait_for(b"name?")
    session.program.write("wörld\n".encode())
    assert session.program.wait() == 0
    assert "hello wörld".encode() in session.seen


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_is_a_keyboard_interrupt(ignored, tmp_path, request):
    if ignored:  # as in a shell's background job
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    code = "import time\ntry:\n    print('ready'); time.sleep(60)\nexcept KeyboardInterrupt:\n    print('caught'); raise SystemExit(3)"
    session = Session(tmp_path, code)
    session.program.start()
    session.wait_for(b"ready")
    session.program.write(b"\x03")
    assert session.program.wait() == 3
    assert b"caught" in session.seen


def test_ctrl_d_is_end_of_input(tmp_path):
    session = Session(tmp_path, "import sys; print('ready'); print(len(sys.stdin.read()))")
    session.program.start()
    session.wait_for(b"ready")
    session.program.write(b"\x04")
    assert session.program.wait() == 0


def test_stop_ends_even_what_ignores_signals(tmp_path):
    code = "import signal, time; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN); print('ready'); time.sleep(600)"
    session = Session(tmp_path, code)
    session.program.start()
    session.wait_for(b"ready")
    assert session.program.stop(patience=0.2) == 128 + signal.SIGKILL


def test_children_die_with_it(tmp_path):
    child = "import time; print('child', flush=True); time.sleep(600)"
    session = Session(tmp_path, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    session.program.start()
    session.wait_for(b"child")
    session.program.stop(patience=2.0)
    assert session.ended
    assert session.ended[0] != 0


def test_a_daemon_that_keeps_the_terminal_does_not_hold_us(tmp_path):
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid(); os.write(1, b'stays %d ' % os.getpid()); time.sleep(600)\n"
        "print('leaves'); "
    )
    session = Session(tmp_path, code)
    session.program.start()
    session.wait_for(b"stays ")
    try:
        assert session.program.wait() == 0
    finally:
        os.kill(int(session.seen.split(b"stays ")[1].split()[0]), signal.SIGKILL)


def test_a_full_disk_costs_the_log_and_not_the_program(tmp_path):
    session = Session(tmp_path, "print('x' * 100)")
    session.program.start()
    session.program._log = open("/dev/full", "wb", buffering=0) if os.path.exists("/dev/full") else None  # noqa: SIM115
    if session.program._log is None:
        pytest.skip("no /dev/full here")
    assert session.program.wait() == 0
    if b"x" in session.seen and not (tmp_path / OUTPUT_FILE).read_bytes():
        assert "incomplete" in session.program.log_problem


def test_a_missing_command_raises_and_leaves_nothing_open(tmp_path):
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    program = Program([str(tmp_path / "nothing")], dict(os.environ), tmp_path)
    with pytest.raises(OSError, match="nothing"):
        program.start()
    assert not program.started
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_app_never_imports_torch():
    code = (
        "import sys, fxscope_tui.app, fxscope_tui.screens.views as v\n"
        "from fxscope_tui.keymap import VIEWS\n"
        "[v.make(name) for name in VIEWS]\n"
        "import fxscope.diagnosis.diagnose, fxscope.graph.diff, fxscope.graph.cost, fxscope.graph.gutter\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout.strip() == "False"


def test_an_open_line_looks_like_a_question_and_a_progress_bar_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr("fxscope_tui.program.SILENCE", -1.0)
    session = Session(tmp_path, "input('name? '); print('1/2', end='\\r', flush=True); input()")
    session.program.start()
    session.wait_for(b"name? ")
    assert session.program.seems_to_ask
    session.program.write(b"x\n")
    assert not session.program.seems_to_ask
    session.wait_for(b"1/2\r")
    assert not session.program.seems_to_ask
    session.program.stop()


async def test_a_program_that_asks_and_then_fails_in_the_app(tmp_path, monkeypatch, opened):
    monkeypatch.setattr("fxscope_tui.program.SILENCE", -1.0)
    code = "print('\\n' * 40); name = input('name? '); print('bye', name); raise SystemExit(3)"
    program = Program([sys.executable, "-c", code], dict(os.environ), tmp_path)
    async with opened(tmp_path, (80, 24), program) as driver:
        app = driver.app
        await driver.until(lambda: app.program.seems_to_ask)
        app._draw_top()
        await driver.press("0", "i")
        assert "asks? 0" in driver.frame()
        await driver.type("bob")
        await driver.press("enter")
        await driver.until(lambda: not app.program.running and app.focused is app.view.lines)
        await driver.settle()
        assert "exit 3" in driver.frame()
        assert "bye bob" in driver.frame()
        assert not app.view.has_class("-typing")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["-m", "torch.distributed.run", "--nproc-per-node", "2", "lib/train.py", "--lr", "1"], "train.py --lr 1"),
        (["/usr/bin/python3", "-c", "x"], "-c x"),
        (["/opt/bin/accelerate", "launch"], "accelerate launch"),
        (["/opt/bin/accelerate", "launch", "--multi_gpu", "lib/train.py", "b.py"], "train.py b.py"),
        (["torchrun", "--standalone", "train.py", "--plugin", "conf.py"], "train.py --plugin conf.py"),
        (["python", "-m", "torch.distributed.run", "-m", "pkg", "conf.py"], "-m pkg conf.py"),
        (["python3.11", "-u", "-X", "dev", "lib/train.py", "--lr", "1"], "train.py --lr 1"),
        (["python", "-m", "pkg", "--plugin", "conf.py"], "-m pkg --plugin conf.py"),
        (["-m", "pkg", "--plugin", "conf.py"], "-m pkg --plugin conf.py"),
        (["/opt/bin/vllm", "serve", "--config", "a.py"], "vllm serve --config a.py"),
        (["python_demo.py", "7"], "python_demo.py 7"),
        (["python", "-u"], "-u"),
        ([], "folder"),
    ],
)
def test_the_top_line_names_the_script(argv, name):
    assert program_name(Snapshot(records.Session(path="/x/folder", argv=argv), records.Totals())) == name


async def test_a_program_that_prints_nothing_is_told_as_one(tmp_path, opened):
    program = Program([sys.executable, "-c", "pass"], dict(os.environ), tmp_path)
    async with opened(tmp_path, program=program) as driver:
        await driver.press("0")
        await driver.until(lambda: "The program printed nothing." in driver.frame())
