"""tests/bin/g++, before a compiler that counts its calls: what is compiled once per test run, and what it must not cost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

WRAPPER = Path(__file__).resolve().parents[1] / "bin" / "g++"


class Machine:
    """A folder of tools before those of the machine, and the store of the libraries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.store = folder / "store"
        self.tools.mkdir()
        self.store.mkdir()
        self.tool("g++", f'echo "$*" >> {folder}/calls; while [ "$1" != -o ]; do shift; done; echo library > "$2"')

    def tool(self, name: str, text: str, tools: str = "tools") -> None:
        """Put a script before the machine's tool of this name."""
        path = self.folder / tools / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def compiles(self, cache: str, source: str = "int a;\n", tools: str = "tools", **env: str) -> bool:
        """Compile in the folder of a cache; whether the compiler itself was called."""
        folder = self.folder / cache
        folder.mkdir(exist_ok=True)
        (folder / "k.cpp").write_text(source)
        before = self.calls()
        path = os.pathsep.join([str(self.folder / tools), os.environ["PATH"]])
        command = [str(WRAPPER), str(folder / "k.cpp"), "-shared", "-o", str(folder / "k.so")]
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": path, "FXSCOPE_COMPILED": str(self.store), **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (folder / "k.so").read_text() == "library\n"
        return self.calls() > before

    def calls(self) -> int:
        """Calls of the compiler so far."""
        log = self.folder / "calls"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_library_is_compiled_once(machine: Machine) -> None:
    assert machine.compiles("one")
    assert not machine.compiles("two")
    assert machine.compiles("one", "int b;\n")


def test_another_compiler_or_search_path_is_another_library(machine: Machine) -> None:
    assert machine.compiles("one")
    assert machine.compiles("two", CPATH="/opt/include")
    machine.tool("g++", (machine.tools / "g++").read_text().partition("\n")[2], tools="newer")
    assert machine.compiles("three", tools="newer")


def test_a_source_with_a_header_beside_it_is_not_kept(machine: Machine) -> None:
    for cache in ("one", "two"):
        (machine.folder / cache).mkdir()
        (machine.folder / cache / "k.h").write_text(f"// {cache}\n")
        assert machine.compiles(cache, '# include "k.h"\nint a;\n')


def test_a_store_that_cannot_be_written_costs_nothing(machine: Machine) -> None:
    machine.tool("cp", "echo 'cp: No space left on device' >&2; exit 1")
    assert machine.compiles("one")
    assert machine.compiles("two")
    assert list(machine.store.iterdir()) == []


def test_without_a_digest_every_library_is_compiled(machine: Machine) -> None:
    machine.tool("sha256sum", "echo 'sha256sum: not found' >&2; exit 127")
    assert machine.compiles("one")
    assert machine.compiles("two")
