"""Recordings of small programs on a card; used by the tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def record(folder: Path, name: str, text: str) -> Path:
    """The recording of one program with its launches timed; one process each, because CUDA graphs outlive ``torch._dynamo.reset``."""
    script, out = folder / f"{name}.py", folder / f"{name}.fxscope"
    script.write_text(text)
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "--time-launches", "-o", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [*command, str(script)], capture_output=True, text=True, timeout=280, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out
