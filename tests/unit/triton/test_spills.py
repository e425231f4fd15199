"""What is offered for wide rows with sums over them, compiled for an H200, which needs no GPU: its registers are not spilled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
import triton

from tests.unit.triton.every import rmsnorm_backward, tensors
from tests.unit.triton.tuning import kernel

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ROOT = Path(__file__).resolve().parents[3]
HALF, FULL = torch.float16, torch.float32

# Prints for each of the first candidates of a kernel how many registers it keeps in memory, up to one that keeps none.
PROGRAM = """
import re, subprocess, sys
from pathlib import Path
import torch
from fxscope.targets.triton.module import compile_binary
from tests.unit.triton.every import layernorm_backward, tensors
from tests.unit.triton.tuning import kernel

cuobjdump, dtype, cols = sys.argv[1], getattr(torch, sys.argv[2]), int(sys.argv[3])
made = kernel(layernorm_backward, *tensors(dtype, 0, (132, cols), (132, cols), (cols,), (132, 1), (132, 1)))
for option in made.options[:5]:
    Path("kernel.cubin").write_bytes(compile_binary(made.write(made.nest, option), (9, 0)).kernel.asm["cubin"])
    told = subprocess.run(
        [cuobjdump, "--dump-resource-usage", "kernel.cubin"], capture_output=True, text=True, check=True
    ).stdout
    (stack,) = re.findall(r"REG:\\d+ STACK:(\\d+)", told)
    print(int(stack) // 4)
    if stack == "0":
        break
"""


@pytest.mark.skipif(not CUOBJDUMP.exists(), reason="this triton brings no cuobjdump")
@pytest.mark.parametrize(("dtype", "cols"), [("float32", 16383), ("float16", 16384)])
def test_two_sums_over_wide_rows_do_not_spill(dtype: str, cols: int, tmp_path: Path) -> None:
    """In a process of its own: here Triton may be in its interpreter's mode."""
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, CUOBJDUMP, dtype, str(cols)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts = [int(count) for count in done.stdout.split()]
    assert counts[0] <= 8  # taken untimed
    assert counts[-1] == 0  # may win


def test_rows_of_a_quarter_are_read_again_in_parts_where_nothing_is_timed() -> None:
    for dtype, ahead in ((FULL, False), (HALF, True)):
        made = kernel(rmsnorm_backward, *tensors(dtype, 0, (132, 16384), (132, 16384), (16384,), (132, 1)))
        first = made.options[0]
        assert (first.live, first.warps, first.chunks, first.ahead) == ("reread", 8, 4, ahead)
