"""Commands in the documentation run: every ``$ `` line of a ``console`` block, in order, in one folder per page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"\s+# exits? (\d+)$")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def commands(text: str) -> list[tuple[str, int]]:
    """Each command with the exit code that it should have (``# exits 1`` behind it; 0 otherwise)."""
    found = []
    for block in _BLOCK.findall(text):
        joined = block.replace("\\\n", " ")
        for line in joined.split("\n"):
            if line.startswith("$ "):
                expected = _EXIT.search(line)
                found.append((_EXIT.sub("", line[2:]), int(expected[1]) if expected else 0))
    return found


def test_the_reader_of_blocks() -> None:
    text = "```console\n$ a \\\n  b\nout\n$ c  # exits 1\n```\n```text\n$ no\n```\n"
    assert commands(text) == [("a    b", 0), ("c", 1)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in _LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p.read_text("utf-8"))], ids=lambda p: p.name)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {
        **os.environ,
        "PATH": path,
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
    }
    for command, expected in commands(page.read_text("utf-8")):
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            executable="/bin/bash",
        )
        assert done.returncode == expected, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback (most recent call last)" not in done.stdout + done.stderr, command
