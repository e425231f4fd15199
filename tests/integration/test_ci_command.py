""".ci/run, with a make that does nothing: any check that fails fails it, and what a check says is not torn."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = """#!/usr/bin/env bash
for target; do
  case $target in -*) ;; *)
    echo "$target begins"
    [ "$target" != types ] || [ ! -p "$GATE" ] || read -r < "$GATE"  # it ends while the tests run
    [ "$target" != unit ] || [ ! -p "$GATE" ] || echo > "$GATE"
    echo "$target ends"
    [[ " $FAILING " != *" $target "* ]] || exit 2
  esac
done
"""


def run(folder: Path, failing: str = "") -> subprocess.CompletedProcess[str]:
    """Run a copy of .ci/run beside no project, as nobody's root, with the targets of make that are to fail."""
    tools = {"make": MAKE, "id": "#!/bin/sh\necho 1000\n"}
    for name, text in tools.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / ".ci").mkdir()
    command = folder / ".ci" / "run"
    command.write_bytes((ROOT / ".ci" / "run").read_bytes())
    os.mkfifo(folder / "gate")
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    return subprocess.run(
        ["bash", str(command)],
        env={**os.environ, "PATH": path, "FAILING": failing, "GATE": str(folder / "gate"), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_all_that_make_test_runs_is_run_and_told_in_one_piece_each(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    told = done.stdout.split()
    assert told[1::2] == ["begins", "ends"] * 4
    assert set(told[::2]) == targets("test")
    assert told[-2] == "types"
    assert {path.name for path in tmp_path.iterdir()} == {".ci", "gate", "id", "make"}


@pytest.mark.parametrize("target", ["lint", "contracts", "types", "unit"])
def test_one_that_fails_fails_it(tmp_path: Path, target: str) -> None:
    done = run(tmp_path, target)
    assert done.returncode != 0
    if target in ("types", "unit"):
        assert done.stderr == f"failed: {target}\n"
        assert done.stdout.endswith("types begins\ntypes ends\n")
    else:
        assert "unit" not in done.stdout


def targets(name: str) -> set[str]:
    """What a target of the Makefile comes down to."""
    found = re.search(rf"^{name}: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    parts = [part for part in found[1].split() if not part.startswith("$")]
    return set().union(*map(targets, parts)) if parts else {name}
