"""What the command says when the system refuses it something, and whose fault that is: 2 the user's, 70 ours."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fxscope.cli import main as command

OURS = str(Path(command.__file__).with_name("page.html"))
NO_SPACE = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        # Of a write: only what opens a file knows its name.
        (OSError(errno.ENOSPC, NO_SPACE), 2, f"fxscope: {NO_SPACE}\n"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 2, "fxscope: Disk quota exceeded\n"),
        (PermissionError(errno.EACCES, "Permission denied", "out.html"), 2, "fxscope: out.html: Permission denied\n"),
        (PermissionError(errno.EACCES, "Permission denied", b"out.html"), 2, "fxscope: out.html: Permission denied\n"),
        (FileNotFoundError(errno.ENOENT, "No such file", OURS), 70, "internal error: FileNotFoundError"),
        (OSError(errno.EIO, "Input/output error"), 70, "internal error: OSError"),
    ],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, code: int, told: str
) -> None:
    def refused(_: object) -> None:
        raise error

    monkeypatch.delenv("FXSCOPE_DEBUG", raising=False)
    monkeypatch.setattr(command.cli, "invoke", refused)
    monkeypatch.setattr("sys.argv", ["fxscope", "schema", "report"])
    with pytest.raises(SystemExit) as left:
        command.main()
    assert left.value.code == code
    said = capsys.readouterr().err
    assert said == told if code == 2 else told in said


@pytest.mark.parametrize(
    ("module", "code", "told"),
    [
        ("rich", 4, "fxscope: rich is not installed: pip install 'rich>=14'\n"),
        ("nobodys", 70, "internal error: ModuleNotFoundError"),  # we import what we do not declare
        ("click.parts", 70, "internal error: ModuleNotFoundError"),  # what another version of a package has
    ],
)
def test_a_package_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str, code: int, told: str
) -> None:
    monkeypatch.delenv("FXSCOPE_DEBUG", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(command.cli, "invoke", lambda _: importlib.import_module(module))
    monkeypatch.setattr("sys.argv", ["fxscope", "schema", "report"])
    with pytest.raises(SystemExit) as left:
        command.main()
    assert left.value.code == code
    said = capsys.readouterr().err
    assert said == told if code == 4 else told in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_standard_output_that_is_full() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fxscope", "schema", "report"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, f"fxscope: {NO_SPACE}\n")


LOG = str(Path(__file__).resolve().parents[1] / "data" / "traces" / "branches.log.xz")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    script = line.replace("fxscope", f"{sys.executable} -m fxscope").replace("LOG", LOG)
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("verb", ["events", "report --json", "check --max-recompiles 9"])
def test_output_that_is_closed(verb: str) -> None:
    done = shell(f"fxscope {verb} LOG >&- <&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_messages_do_not_go_into_the_data_where_the_error_stream_is_closed() -> None:
    done = shell("fxscope report /nowhere 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


@pytest.mark.parametrize(("verb", "code"), [("check --max-graph-breaks 0 LOG", 1), ("diff LOG LOG", 0)])
def test_a_verdict_is_reached_without_a_reader(verb: str, code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "fxscope", *verb.replace("LOG", LOG).split()],
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, "allowed 0" in done.stderr) == (code, code == 1)


@pytest.mark.parametrize("flag", ["", "-u"])
def test_output_without_a_buffer_stays_without_one(flag: str) -> None:
    program = (
        "import os, sys; from fxscope.cli import main; sys.argv = ['fxscope', 'check'];"
        "main.cli.invoke = lambda _: (sys.stdout.write('told'), os._exit(0)); main.main()"
    )
    command = [sys.executable, *flag.split(), "-c", program]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("told" if flag else "", "")


def test_an_interrupt_is_no_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.cli, "invoke", interrupted)
    monkeypatch.setattr("sys.argv", ["fxscope", "check", LOG])
    with pytest.raises(SystemExit) as left:
        command.main()
    assert (left.value.code, capsys.readouterr().err) == (130, "fxscope: interrupted\n")
