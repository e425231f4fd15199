"""``fxscope stages`` on a program whose compiled results differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# The program asks whether it is compiled.
CAPTURE = """
import torch
def f(x):
    return x + (1 if torch.compiler.is_compiling() else 2)
fast = torch.compile(f, backend="aot_eager")
print([fast(torch.zeros(1)).item() for _ in range(3)])
"""


def stages(program: str, folder: Path) -> tuple[int, dict[str, Any]]:
    from fxscope.cli.stages import json_schema

    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "fxscope", "stages", "--json", "-o", folder / "out", folder / "program.py"],
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema())
    return done.returncode, document


def test_the_stage_is_named(tmp_path: Path) -> None:
    code, document = stages(CAPTURE, tmp_path)
    assert code == 1
    assert document["conclusion"]["change"] == "backend:eager", document
    assert [each["result"] for each in document["stages"]] == ["changed"] * 4
    assert document["reference"]["output"] == "[2.0, 2.0, 2.0]\n"
    assert document["stages"][0]["detail"] == "output line 1: '[2.0, 2.0, 2.0]' -> '[1.0, 1.0, 1.0]'"
