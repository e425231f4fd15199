"""When recording fails, it stops with one line, and the program neither notices nor changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fxscope

Events = Callable[[Path], list[tuple[dict, str]]]

WORK = """
import os, sys, torch
def f(x):
    return x * 2
def compiles(*sizes):
    torch._dynamo.reset()
    g = torch.compile(f, backend="eager", dynamic=False)
    for size in sizes:
        print(g(torch.ones(size)).sum().item(), flush=True)
"""
OUTPUT = "4.0\n6.0\n8.0\n10.0\n"


def run(program: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(folder), *program]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env={**os.environ, **env})


def scripted(tmp_path: Path, body: str) -> Path:
    script = tmp_path / "program.py"
    script.write_text(WORK + body)
    return script


def one_warning(stderr: str, words: str) -> None:
    lines = [line for line in stderr.splitlines() if line]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("fxscope: recording stopped: ")
    assert words in lines[0]


def test_a_file_that_cannot_grow_costs_one_warning(tmp_path: Path) -> None:
    script = scripted(
        tmp_path,
        "import glob, resource\ncompiles(2, 3)\n(log,) = glob.glob(os.environ['FXSCOPE_RECORD_DIR'] + '/*.log')\n"
        "limit = os.path.getsize(log) + 5000\nresource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "compiles(4, 5)\nsys.exit(3)\n",
    )
    done = run([str(script)], tmp_path / "r")
    assert (done.returncode, done.stdout) == (3, OUTPUT)
    one_warning(done.stderr, "File too large")
    assert fxscope.open(tmp_path / "r").totals.graphs in (2, 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_disk_that_fills_costs_one_warning(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        done = run([str(scripted(tmp_path, "compiles(2, 3, 4, 5)\n"))], disk / "r")
        assert (done.returncode, done.stdout) == (0, OUTPUT)
        first, *rest = done.stderr.splitlines()
        one_warning(first, "No space left")
        assert len(rest) <= 1  # session.json may find no room either, and says so
        assert fxscope.open(disk / "r").totals.events > 10
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("import shutil; shutil.rmtree(os.environ['FXSCOPE_RECORD_DIR'])", "was deleted"),
        (("d = os.environ['FXSCOPE_RECORD_DIR']; os.close(int(max(os.listdir('/proc/self/fd'), key=lambda n: ours(n))))"
         "; import shutil; shutil.rmtree(d)"), "No such file"),
    ],
    ids=["vanished", "vanished-and-closed"],
)  # fmt: skip
def test_a_folder_that_vanishes_costs_one_warning(fault: str, words: str, tmp_path: Path) -> None:
    find = "def ours(n):\n    try: return 'dedicated_log' in os.readlink('/proc/self/fd/' + n)\n    except OSError: return False\n"
    done = run([str(scripted(tmp_path, f"{find}compiles(2, 3)\n{fault}\ncompiles(4, 5)\n"))], tmp_path / "r")
    assert (done.returncode, done.stdout) == (0, OUTPUT)
    first, second = done.stderr.splitlines()
    one_warning(first, words)
    assert "session.json" in second


def test_lost_permission_and_too_many_open_files_cost_one_warning(tmp_path: Path) -> None:
    # The forked child must make a log of its own, and cannot.
    lose = (
        "os.chmod(os.environ['FXSCOPE_RECORD_DIR'], 0o500)\n    if os.geteuid() == 0: os.setuid(65534)"
        if os.geteuid() == 0
        else "os.chmod(os.environ['FXSCOPE_RECORD_DIR'], 0o500)"
    )
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    for number, (fault, words) in enumerate([(lose, "Permission denied"), (few, "Too many open files")]):
        body = f"compiles(2, 3)\nif os.fork() == 0:\n    {fault}\n    compiles(4, 5)\n    os._exit(0)\nos.wait()\n"
        done = run([str(scripted(tmp_path, body))], tmp_path / f"r{number}")
        os.chmod(tmp_path / f"r{number}", 0o700)
        assert (done.returncode, done.stdout) == (0, OUTPUT)
        one_warning(done.stderr, words)
        assert fxscope.open(tmp_path / f"r{number}").totals.graphs == 2


def test_a_program_that_closes_all_files_keeps_its_own(tmp_path: Path, log_events: Events) -> None:
    script = scripted(
        tmp_path,
        "compiles(2, 3)\nos.closerange(3, 4096)\n"
        "own = [open(os.path.join(os.path.dirname(__file__), f'own{n}'), 'w') for n in range(20)]\ncompiles(4, 5)\n",
    )
    done = run([str(script)], tmp_path / "r")
    assert (done.returncode, done.stdout, done.stderr) == (0, OUTPUT, "")
    assert all((tmp_path / f"own{n}").read_text() == "" for n in range(20))
    (log,) = (tmp_path / "r").glob("*.log")
    assert sum("dynamo_output_graph" in envelope for envelope, _ in log_events(log)) == 4


def test_hard_exits_and_late_compiles(tmp_path: Path, log_events: Events) -> None:
    body = (
        "import atexit\natexit.register(compiles, 5)\n@atexit.register\ndef fails(): raise ValueError('late')\n"
        "compiles(2, 3)\n@atexit.register\ndef late(): compiles(4)\nsys.exit(6)\n"
    )
    done = run([str(scripted(tmp_path, body))], tmp_path / "r")
    assert (done.returncode, done.stdout) == (6, OUTPUT)
    assert "ValueError: late" in done.stderr
    assert "fxscope" not in done.stderr
    (log,) = (tmp_path / "r").glob("*.log")
    events = log_events(log)
    assert sum("dynamo_output_graph" in envelope for envelope, _ in events) == 4
    assert events[-1][0]["artifact"]["name"] == "fxscope.end"
    script = scripted(tmp_path, "compiles(2, 3, 4, 5)\nimport time; time.sleep(2.5)\nos._exit(5)\n")
    done = run([str(script)], tmp_path / "hard")
    assert (done.returncode, done.stdout, done.stderr) == (5, OUTPUT, "")
    recording = fxscope.open(tmp_path / "hard")
    assert [entry.calls for entry in recording.compiles] == [1, 1, 1, 1]
    assert (recording.session.exit_code, recording.session.state) == (5, "ended")


def test_a_fork_in_the_middle_of_a_compile(tmp_path: Path, log_events: Events) -> None:
    body = (
        "def forks(gm, inputs):\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    return gm.forward\n"
        "print(torch.compile(f, backend=forks)(torch.ones(2)).sum().item(), flush=True)\n"
    )
    done = run([str(scripted(tmp_path, body))], tmp_path / "r")
    assert (done.returncode, done.stdout, done.stderr) == (0, "4.0\n4.0\n", "")
    logs = list((tmp_path / "r").glob("*.log"))
    assert len(logs) == 2
    for log in logs:
        known: set[int] = set()
        for envelope, _ in log_events(log):
            if "str" in envelope:
                known.add(envelope["str"][1])
            for frame in envelope.get("stack") or envelope.get("dynamo_start", {}).get("stack") or ():
                assert frame["filename"] in known
    assert fxscope.open(tmp_path / "r").totals.events > 20


KILLED = """
import os, random, signal, sys, time
sys.path.insert(0, os.getcwd())
import torch, fxscope
def f(x):
    return (x * 2).sum()
torch.compile(f, backend="eager")(torch.ones(2))
for number in range(int(sys.argv[2])):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with fxscope.record(os.path.join(sys.argv[1], str(number))):
            os.write(write, b"r")
            while True:
                torch._dynamo.reset()
                torch.compile(f, backend="eager")(torch.ones(2))
                os.write(write, b"g")
    os.close(write)
    done = 0
    os.read(read, 1)  # it records
    moment = random.Random(number)
    for _ in range(moment.randrange(5)):
        os.read(read, 1)  # so many compiles are done at least
        done += 1
    time.sleep(moment.random() * 0.02)  # and then anywhere in the next
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while part := os.read(read, 65536):
        done += len(part)
    print(number, done)
"""


@pytest.mark.slow
def test_fifty_kills_lose_nothing_that_was_written(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path), "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    finished = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(finished) == 50
    assert sum(finished) > 50
    for number, graphs in enumerate(finished):
        recording = fxscope.open(tmp_path / str(number))
        assert recording.totals.graphs in (graphs, graphs + 1), number  # the one that was going on may be there
        assert recording.session.state != "ended"


def test_a_killed_program_leaves_a_recording_and_its_exit_code(tmp_path: Path) -> None:
    script = scripted(tmp_path, "compiles(2, 3, 4, 5)\nprint(os.getpid(), flush=True)\nimport time; time.sleep(100)\n")
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "-o", str(tmp_path / "r"), str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        lines = [ours.stdout.readline() for _ in range(5)]
        os.kill(int(lines[-1]), signal.SIGKILL)
        assert ours.wait(60) == 128 + signal.SIGKILL
    recording = fxscope.open(tmp_path / "r")
    assert (recording.totals.graphs, recording.session.exit_code) == (4, 137)


TOOLS = """
import torch
def f(x):
    if x.sum() > 0:
        return x + 1
    return x - 1
def test_f():
    assert torch.compile(f, backend="eager")(torch.ones(2)).sum() == 4
def test_g():
    assert torch.compile(f, backend="eager")(torch.zeros(2)).sum() == -2
"""


@pytest.mark.slow
def test_the_programs_own_tools_work_as_without_us(tmp_path: Path) -> None:
    tests = tmp_path / "test_own.py"
    tests.write_text(TOOLS)
    (tmp_path / "script.py").write_text(TOOLS + "test_f()\n")
    env = {"COVERAGE_FILE": str(tmp_path / "data")}
    coverage = [sys.executable, "-m", "coverage"]
    measured = []
    for with_us in (True, False):
        command = [*coverage, "run", f"--include={tmp_path}/*", str(tmp_path / "script.py")]
        if with_us:
            assert run(["--", *command], tmp_path / "c", **env).returncode == 0
        else:
            subprocess.run(command, check=True, env={**os.environ, **env})
        report = subprocess.run(
            [*coverage, "json", "-o", "-"], capture_output=True, text=True, check=True, env={**os.environ, **env}
        )
        (entry,) = json.loads(report.stdout)["files"].values()
        measured.append(entry["executed_lines"])
    assert measured[0] == measured[1]
    # Two workers of pytest-xdist: a test each or both in one, and every process a log of its own.
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", str(tests)], tmp_path / "x")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    recording = fxscope.open(tmp_path / "x")
    assert recording.totals.graph_breaks == 2
    assert sum(entry.calls or 0 for entry in recording.compiles) >= 2


@pytest.mark.slow
def test_under_a_debugger(tmp_path: Path) -> None:
    script = scripted(tmp_path, "compiles(2, 3, 4, 5)\nsys.exit(4)\n")
    done = run(["-m", "debugpy", "--listen", "0", str(script)], tmp_path / "r")
    assert (done.returncode, done.stdout) == (4, OUTPUT)
    assert fxscope.open(tmp_path / "r").totals.graphs == 4


def test_a_launcher_that_ignores_its_children_changes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import signal, sys\nprint(signal.getsignal(signal.SIGCHLD).name)\nsys.exit(7)\n")
    begin = (
        "import os, signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(tmp_path / "r"), str(script)]
    done = subprocess.run(
        [sys.executable, "-c", begin, *command], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "SIG_IGN\n", "")


def test_what_a_recording_forces_ends_with_it_and_no_logging_config_ends_it(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import logging.config, sys, fxscope, torch, torch._dynamo.config as config\n"
        "before = config.recompile_limit\n"
        "for number in (3, 5):\n"
        "    with fxscope.record(f'{sys.argv[1]}/{number}', config={'recompile_limit': number}):\n"
        "        assert config.recompile_limit == number\n"
        "assert config.recompile_limit == before\n"
        "with fxscope.record(f'{sys.argv[1]}/disabled'):\n"
        "    logging.config.dictConfig({'version': 1})\n"
        "    torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert fxscope.open(tmp_path / "disabled").totals.compiles == 1
