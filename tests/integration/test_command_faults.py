"""What the command says when the system refuses it something, and whose fault that is: 2 the user's, 70 ours."""

from __future__ import annotations

import errno
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
    def refused(**_: object) -> None:
        raise error

    monkeypatch.delenv("FXSCOPE_DEBUG", raising=False)
    monkeypatch.setattr(command.cli, "main", refused)
    with pytest.raises(SystemExit) as left:
        command.main()
    assert left.value.code == code
    said = capsys.readouterr().err
    assert said == told if code == 2 else told in said


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
