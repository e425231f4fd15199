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
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", str(DATA / f"{script}.py"), str(folder)],
                    capture_output=True,
                    text=True,
                    timeout=800,
                    env=env,
                    check=False,
                )
                assert done.returncode == 0, done.stderr[-3000:]
        return folder, json.loads((folder / "results.json").read_text())

    return make
