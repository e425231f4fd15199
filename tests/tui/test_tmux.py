"""The app in a real terminal: ``fxscope open`` and ``fxscope run`` under tmux, because the Pilot skips the driver."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is absent"),
    pytest.mark.xdist_group("tmux"),
]
LIMIT = 200.0


class Tmux:
    """One tmux session of its own server."""

    def __init__(self, folder: Path) -> None:
        self.name = f"fxscope-{uuid.uuid4().hex[:8]}"
        self.folder = folder

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.name, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.folder,
        )
        return done.stdout

    def start(self, command: list[str], size: tuple[int, int] = (120, 36)) -> None:
        """Run a command; its exit code is printed when it ends."""
        shell = f"{shlex.join(command)}; echo exit=$?; sleep 300"
        # COLUMNS and LINES of the test runner would overrule the size of the terminal.
        env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        env["TERM"] = "screen-256color"
        subprocess.run(
            [
                "tmux",
                "-L",
                self.name,
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-x",
                str(size[0]),
                "-y",
                str(size[1]),
                shell,
            ],
            check=True,
            timeout=60,
            env=env,
            cwd=self.folder,
        )

    def keys(self, *keys: str) -> None:
        for key in keys:
            command = ["tmux", "-L", self.name, "send-keys", key]
            subprocess.run(command, check=True, timeout=60, cwd=self.folder, capture_output=True)

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def until(self, wanted: Callable[[str], bool]) -> str:
        """Wait for a screen (a terminal tells nobody when it is drawn)."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            screen = self.screen()
            if wanted(screen):
                return screen
            time.sleep(0.2)
        raise AssertionError(f"never seen; the last screen was:\n{self.screen()}")

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def kill(self) -> None:
        self._run("kill-server")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    session = Tmux(tmp_path)
    yield session
    session.kill()


FXSCOPE = [sys.executable, "-m", "fxscope"]

SCRIPT = """
import sys, time
import torch

@torch.compile(backend="eager")
def step(x, scale):
    y = x * scale
    if y.sum() > 0:
        y = y + 1
    return y

print("ready", flush=True)
name = input("name? ")
for number in range(4):
    step(torch.ones(3 + number), 2.0)
    print("step", number, name, flush=True)
print("sizes", sys.stdout.isatty(), flush=True)
time.sleep(float(sys.argv[1]))
raise SystemExit(3)
"""


@pytest.mark.shared
def test_open_in_a_terminal(tmux, shared):
    tmux.start([*FXSCOPE, "open", str(shared / "traces" / "h200" / "gpt2")])
    tmux.until(lambda screen: "FINDINGS" in screen and "breaks 5@1" in screen)
    tmux.keys("2")
    tmux.until(lambda screen: "inputs_embeds" in screen)
    tmux.keys("/")
    tmux.until(lambda screen: "filter /" in screen)
    tmux.keys("layer_norm", "Enter")
    tmux.until(lambda screen: "F.layer_norm" in screen and "F.embedding" not in screen)
    tmux.resize(40, 10)
    tmux.until(lambda screen: "Graph" in screen and max(map(len, screen.splitlines())) <= 40)
    tmux.resize(120, 36)
    tmux.keys("?")
    tmux.until(lambda screen: "Keys: graph" in screen)
    tmux.keys("Escape")
    tmux.until(lambda screen: "Keys: graph" not in screen)
    tmux.keys("q")
    tmux.until(lambda screen: "exit=0" in screen)


def test_open_of_nothing_is_one_line(tmux, tmp_path):
    tmux.start([*FXSCOPE, "open", str(tmp_path / "nothing")])
    screen = tmux.until(lambda screen: "exit=3" in screen)
    assert "no such file or folder" in screen


def test_open_without_a_terminal_says_so(tmp_path):
    done = subprocess.run([*FXSCOPE, "open", str(tmp_path)], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2
    assert "fxscope report" in done.stderr


def test_run_shows_graphs_while_the_program_runs_and_ends_with_its_code(tmux, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    tmux.start([*FXSCOPE, "run", "-o", "run.fxscope", "train.py", "600"])
    tmux.until(lambda screen: "live" in screen and "train.py" in screen)
    tmux.keys("0")
    tmux.until(lambda screen: "name?" in screen)
    tmux.keys("i")
    tmux.until(lambda screen: "a line for the program" in screen)
    tmux.keys("Ada", "Enter")
    tmux.until(lambda screen: "step 3 Ada" in screen and "sizes True" in screen)
    tmux.keys("Escape")  # alone: followed by a key at once it would be Alt and that key
    tmux.until(lambda screen: "a line for the program" not in screen)
    tmux.keys("1")
    tmux.until(lambda screen: "live" in screen and "FINDINGS" in screen and "graphs 0" not in screen)
    tmux.keys("q")
    tmux.until(lambda screen: "The program still runs" in screen)
    tmux.keys("n")
    tmux.until(lambda screen: "The program still runs" not in screen)
    tmux.keys("C-c")
    tmux.until(lambda screen: "exit 130" in screen)
    tmux.keys("0")
    tmux.until(lambda screen: "KeyboardInterrupt" in screen)
    tmux.keys("q")
    tmux.until(lambda screen: "exit=130" in screen)
    assert b"step 3 Ada" in (tmp_path / "run.fxscope" / "output.log").read_bytes()


def test_the_exit_code_is_the_programs_and_the_app_stays_until_q(tmux, tmp_path, monkeypatch):
    """And while it stays, `o` hands the terminal to an editor at the breaking line, and takes it back."""
    editor = tmp_path / "vim"
    editor.write_text(f"#!/bin/sh\necho EDITING\necho $1 $2 > {tmp_path}/edited\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    (tmp_path / "train.py").write_text(SCRIPT.replace('input("name? ")', '"Bob"'))
    tmux.start([*FXSCOPE, "run", "-o", "run.fxscope", "train.py", "0"], size=(80, 24))
    tmux.until(lambda screen: "exit 3" in screen)
    tmux.keys("4")
    tmux.until(lambda screen: "if y.sum() > 0:" in screen)
    tmux.keys("o")
    tmux.until(lambda screen: (tmp_path / "edited").exists() and "if y.sum() > 0:" in screen)
    assert (tmp_path / "edited").read_text() == f"+8 {tmp_path}/train.py\n"
    tmux.keys("q")
    tmux.until(lambda screen: "exit=3" in screen)


def test_leaving_early_stops_the_program(tmux, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.replace('input("name? ")', '"Bob"'))
    tmux.start([*FXSCOPE, "run", "-o", "run.fxscope", "train.py", "600"])
    tmux.until(lambda screen: "graphs 0" not in screen and "graphs" in screen)
    tmux.keys("q")
    tmux.until(lambda screen: "The program still runs" in screen)
    tmux.keys("y")
    screen = tmux.until(lambda screen: "exit=" in screen)
    assert re.search(r"exit=(130|143|137)\b", screen)  # Ctrl-C, and what follows where it takes more than three seconds


@pytest.mark.slow
def test_passes_and_kernels_of_a_convolution_net(tmux, tmp_path):
    """Real jobs on a sample: step over the folds and back, see diff and numbers, cancel a bench, run one."""
    sample = Path(__file__).resolve().parents[2] / "samples" / "conv_net.py"
    run = [*FXSCOPE, "run", "--headless", "--quiet", "--backend", "eager", "-o", "net.fxscope", str(sample)]
    subprocess.run(run, check=True, timeout=LIMIT, cwd=tmp_path, capture_output=True)
    tmux.start([*FXSCOPE, "open", "net.fxscope"], size=(160, 45))
    tmux.until(lambda screen: "FINDINGS" in screen)
    tmux.keys("6")
    tmux.until(lambda screen: "selected: 0/0" in screen)
    tmux.keys("I")
    tmux.until(lambda screen: "no gradient is needed" in screen)
    tmux.keys("r")
    tmux.until(lambda screen: "step 1 of" in screen)
    tmux.keys("l")
    screen = tmux.until(lambda screen: "step 2 of" in screen and "+ rsqrt" in screen)
    assert "3 of 3 applied" in screen
    assert "conv2d + batch_norm" in screen
    assert re.search(r"max \|\u0394\| \d\.\de-\d\d ok", screen)  # the fold moved the numbers, within rounding
    assert re.search(r"batch_norm = torch\S+batch_norm\(conv2d.* -\s*$", screen, re.MULTILINE)  # taken out
    tmux.keys("h")
    tmux.until(lambda screen: "step 1 of" in screen and "no node changed" in screen)
    tmux.keys("7")
    tmux.until(lambda screen: "Nothing has been measured" in screen)
    tmux.keys("s")
    tmux.until(lambda screen: "Executors" in screen)
    tmux.until(lambda screen: "eager,inductor" in screen)  # each key once the one before has shown
    tmux.keys("C-u")
    tmux.until(lambda screen: "eager,inductor" not in screen)
    tmux.keys("eager,npu")
    tmux.until(lambda screen: "eager,npu" in screen)
    tmux.keys("Enter")
    tmux.until(lambda screen: "x cancels" in screen)
    tmux.keys("x")
    tmux.until(lambda screen: "Nothing has been measured" in screen)
    tmux.keys("r")
    screen = tmux.until(lambda screen: "TRAFFIC" in screen)
    assert re.search(r"eager +measured", screen)
    assert re.search(r"npu +modelled", screen)
    tmux.keys("q")
    tmux.until(lambda screen: "exit=0" in screen)
