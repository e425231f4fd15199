"""`fxscope run` leaves a program as it is: nothing here imports torch, so every difference is the launcher's."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROBE = """
import json, os, sys, threading
import __main__
print(json.dumps({
    "argv": sys.argv, "name": __name__, "file": __file__, "main": __main__.__file__, "path": sys.path,
    "cwd": os.getcwd(), "stdin": sys.stdin.read(), "modules": sorted(m for m in sys.modules if m.startswith("torch")),
    "threads": threading.active_count(), "flags": list(sys.flags), "isatty": sys.stdout.isatty(),
    "spec": getattr(__spec__, "name", None), "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
}))
print("to stderr", file=sys.stderr)
"""


def run(
    *arguments: str, folder: Path, options: tuple[str, ...] = ("--quiet",), **keywords
) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fxscope", "run", "--headless", *options, "-o", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **keywords)


def plain(*arguments: str, **keywords) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, **keywords
    )


def session(folder: Path) -> dict:
    return json.loads((folder / "session.json").read_text())


@pytest.mark.parametrize("how", ["script", "module", "launcher"])
def test_a_program_sees_what_it_would_see_without_us(how: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "probe.py").write_text(PROBE)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    target = ["src/probe.py", "--flag", "-m", "x y"] if how == "script" else ["-m", "probe", "--mode", "--", "z"]
    ours = target if how != "launcher" else ["--", sys.executable, *target]
    with_us = run(*ours, folder=tmp_path / "r", cwd=tmp_path, env=env, input="line\n")
    without = plain(*target, cwd=tmp_path, env=env, input="line\n")
    assert with_us.returncode == without.returncode == 0
    assert with_us.stderr == without.stderr
    here, there = json.loads(with_us.stdout), json.loads(without.stdout)
    # Python finds some sitecustomize or none; ours may stay where there is none.
    assert here.pop("sitecustomize") in (there.pop("sitecustomize"), _ours())
    assert here == there
    assert here["stdin"] == "line\n"
    assert session(tmp_path / "r")["exit_code"] == 0


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def _ours() -> str:
    import fxscope.capture

    return str(Path(fxscope.capture.__file__).parent / "bootstrap" / "sitecustomize.py")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit('bye')", 1),
        ("raise ValueError('x')", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.abort()", 128 + signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("import atexit\n@atexit.register\ndef f(): raise ValueError('late')", 0),
    ],
)
def test_exit_codes_are_the_programs_own(body: str, code: int, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(body)
    done = run(str(script), folder=tmp_path / "r")
    assert done.returncode == code
    assert without_addresses(done.stderr) == without_addresses(plain(str(script)).stderr)
    ended = session(tmp_path / "r")
    assert (ended["exit_code"], ended["state"], ended["processes"]) == (code, "ended", [])


def test_a_users_sitecustomize_still_runs_with_its_errors(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.users_own = __name__\n")
    script = tmp_path / "says.py"
    script.write_text("import sys; print(sys.users_own, sys.modules['sitecustomize'].__file__)")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run(str(script), folder=tmp_path / "r", env=env)
    assert done.stdout == f"sitecustomize {tmp_path / 'sitecustomize.py'}\n"
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('broken on purpose')\n")
    broken = tmp_path / "fine.py"
    broken.write_text("print('still here')")
    done, without = run(str(broken), folder=tmp_path / "r2", env=env), plain(str(broken), env=env)
    assert done.stdout == without.stdout == "still here\n"
    assert done.stderr == without.stderr * 2  # fxscope itself is a Python with that sitecustomize, too
    assert "broken on purpose" in done.stderr


def test_children_of_any_kind_are_armed_and_isolated_ones_are_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import subprocess, sys\n"
        "probe = 'import sys; print(any(type(f).__name__ == \"PostImportFinder\" for f in sys.meta_path))'\n"
        "for flags in ([], ['-I'], ['-E'], ['-S']):\n"
        "    print(subprocess.run([sys.executable, *flags, '-c', probe], capture_output=True, text=True).stdout.strip())\n"
    )
    assert run(str(script), folder=tmp_path / "r").stdout.split() == ["True", "False", "False", "False"]


@pytest.mark.parametrize("flags", [["-I"], ["-E"], ["-sE"], ["-OI"], ["-S"]])
def test_a_python_that_ignores_the_environment_says_so_in_one_line(flags: list[str], tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text("print('alone')")
    done = run("--", sys.executable, *flags, str(script), folder=tmp_path / "r")
    assert (done.returncode, done.stdout) == (0, "alone\n")
    assert done.stderr.count("\n") == 1
    assert "not recorded" in done.stderr


def test_the_summary_goes_to_stderr_and_quiet_leaves_it_out(tmp_path: Path) -> None:
    script = tmp_path / "small.py"
    script.write_text("print('out')")
    done = run(str(script), folder=tmp_path / "r", options=())
    assert done.stdout == "out\n"
    assert "recorded to" in done.stderr
    assert run(str(script), folder=tmp_path / "r2").stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_us_reaches_the_program(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import signal, sys, time\n"
        "def ended(number, frame):\n    print('got', number, flush=True); sys.exit(40)\n"
        f"signal.signal({int(number)}, ended)\nprint('ready', flush=True)\ntime.sleep(100)\n"
    )
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(tmp_path / "r"), str(script)]
    # A signal that was ignored when we began stays ignored, as under nohup; the tests may run under it.
    heard = functools.partial(signal.signal, number, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heard) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "ready\n"
        ours.send_signal(number)
        assert ours.stdout.readline() == f"got {int(number)}\n"
        assert ours.wait(60) == 40


def test_a_ctrl_c_of_the_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    import pty

    script = tmp_path / "waits.py"
    script.write_text(
        "import time\ncount = 0\n"
        "while count < 1:\n    try:\n        print('ready', flush=True)\n        time.sleep(100)\n"
        "    except KeyboardInterrupt:\n        count += 1\n"
        "try:\n    time.sleep(1)\nexcept KeyboardInterrupt:\n    count += 1\nprint('interrupts', count)\n"
    )
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(tmp_path / "r"), str(script)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    seen = b""
    sent = False
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
        if b"ready" in seen and not sent:
            sent = True
            os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert b"interrupts 1" in seen
    assert os.waitstatus_to_exitcode(status) == 0


def test_wrong_usage_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    base = [sys.executable, "-m", "fxscope", "run", "--headless"]
    for arguments, code, words in [
        ([], 2, "nothing to run"),
        (["absent.py"], 3, "no such script"),
        (["--typo", str(script)], 2, "No such option"),
        (["env", "x"], 3, "fxscope run -- env"),
        (["--", "no-such-launcher-here"], 3, "no such script or command"),
        (["-o", str(tmp_path / "taken"), str(script)], 2, "not empty"),
        (["-o", str(script), str(script)], 2, "cannot record into"),
        (["--config", "novalue", str(script)], 2, "NAME=VALUE"),
    ]:
        done = subprocess.run(
            [*base, *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
        )
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_a_launcher_beside_the_interpreter_needs_no_activated_environment(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--", "pytest", "--version"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pytest" in done.stdout
    (session,) = tmp_path.glob("*/session.json")
    assert json.loads(session.read_text())["argv"] == ["pytest", "--version"]  # as it was written, not as it was found


def test_the_default_folder_is_named_after_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    command = [sys.executable, "-m", "fxscope", "run", "train.py"]  # headless by itself: no terminal here
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False).returncode == 0
    (folder,) = tmp_path.glob("train-*.fxscope")
    assert session(folder)["argv"] == ["train.py"]


def test_a_program_from_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fxscope", "run", "--quiet", "-", "a"]
    program = "import sys; print(sys.argv); sys.exit(4)"
    done = subprocess.run(command, cwd=tmp_path, input=program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (4, "['-', 'a']\n"), done.stderr
    (folder,) = tmp_path.glob("stdin-*.fxscope")
    assert session(folder)["argv"] == ["-", "a"]


def test_tasks_of_one_job_share_a_folder_and_others_do_not(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("import os, sys; sys.exit(int(os.environ['SLURM_PROCID']) % 2)")
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", "job.fxscope", "task.py"]

    def srun(job: str, rank: int) -> int:
        env = {**os.environ, "SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_NTASKS": "3"}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False).returncode

    assert [srun("7", rank) for rank in (0, 1, 2)] == [0, 1, 0]
    assert session(tmp_path / "job.fxscope")["exit_code"] == 1
    assert srun("7", 2) == 2  # it was recorded there already
    assert srun("8", 0) == 2
    assert session(tmp_path / "job.fxscope")["argv"] == ["task.py"]


def test_workers_that_torchrun_restarts_record_beside_the_first_start(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("import os, sys; sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')")
    ours = ["--no-python", sys.executable, "-m", "fxscope", "run", "--headless", "-o", "job.fxscope", "task.py"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, "--max-restarts", "1", *ours]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "fxscope: job.fxscope is of an earlier start of this job: recording to job-restart1.fxscope" in done.stderr
    first, again = session(tmp_path / "job.fxscope"), session(tmp_path / "job-restart1.fxscope")
    assert first["exit_code"]  # 1, or of a signal where torchrun was quicker
    assert (again["state"], again["exit_code"]) == ("ended", 0)


def test_a_task_that_can_share_no_folder_is_told_how(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    (tmp_path / "task.py").touch()
    command = [sys.executable, "-m", "fxscope", "run", "-o", "taken", "task.py"]
    env = {**os.environ, "PMI_RANK": "1", "PMI_SIZE": "4"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert (
        "taken is not empty; choose another place with -o, or remove it; tasks of one job share a folder only where"
        in done.stderr
    )


def test_a_task_that_cannot_record_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "task.py").write_text("print('ran'); raise SystemExit(3)")
    command = [sys.executable, "-m", "fxscope", "run", "-o", "file/run", "task.py"]
    task = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}

    def run(env: dict[str, str]) -> tuple[int, str, str]:
        env = {**os.environ, **env}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    code, output, errors = run(task)
    assert (code, output) == (3, "ran\n")
    assert "cannot record into" in errors
    assert "this task runs unrecorded" in errors
    assert run({})[:2] == (2, "")
