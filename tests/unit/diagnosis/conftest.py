"""The problems of tests/data/diagnosis, recorded once per test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "data" / "diagnosis"


@pytest.fixture(scope="session")
def problems(store: Path) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """``problems("breaks")``: folder of the recordings and the facts of every problem in that script, recorded once."""
    from filelock import FileLock

    def make(script: str) -> tuple[Path, dict[str, Any]]:
        folder = store / f"problems-{script}"
        with FileLock(str(folder) + ".lock"):
            if not (folder / "results.json").exists():
                folder.mkdir(exist_ok=True)
                env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
                env.pop("TORCH_TRACE", None)
                command = [sys.executable, "-W", "ignore", str(DATA / f"{script}.py"), str(folder)]
                halves = [
                    subprocess.Popen([*command, str(half), "2"], stderr=subprocess.PIPE, text=True, env=env)
                    for half in (0, 1)
                ]
                results: dict[str, Any] = {}
                for half, process in enumerate(halves):
                    _, stderr = process.communicate(timeout=800)
                    assert process.returncode == 0, stderr[-3000:]
                    results |= json.loads((folder / f"results-{half}.json").read_text())
                (folder / "results.json").write_text(json.dumps(results))
        return folder, json.loads((folder / "results.json").read_text())

    return make
