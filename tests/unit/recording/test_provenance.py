"""Kernel to node and back, by name and by line, on logs of two formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.recording.provenance import kernel_lines, read_provenance
from fxscope.recording.recording import open_recording

CODE = """\
async_compile = AsyncCompile()
triton_a = async_compile.triton('triton_a', '''
import triton
def triton_a(p):
    pass
''', device_str='cuda')

def call(args):
        # [Provenance debug handles] extern_kernels.mm:1
        extern_kernels.mm(x, y, out=b)
        # [Provenance debug handles] triton_a:2
        triton_a.run(b, 128, stream=stream0)
        # [Provenance debug handles] extern_kernels.mm:3
        extern_kernels.mm(b, y, out=c)
        # [Provenance debug handles] triton_a:4
        triton_a.run(c, 128, stream=stream0)
        del c
"""


def test_lines_of_kernels_and_of_each_call() -> None:
    lines = kernel_lines(CODE)
    assert lines["triton_a"] == [2, 3, 4, 5, 6, 12, 16]
    assert lines["extern_kernels.mm"] == [10, 14]
    assert lines["extern_kernels.mm:1"] == [10]
    assert lines["extern_kernels.mm:3"] == [14]
    assert 12 in lines["triton_a:2"]
    assert 16 not in lines["triton_a:2"]
    assert 16 in lines["triton_a:4"]


@pytest.mark.shared
@pytest.mark.parametrize("device", ["jit_cuda", "jit"])
def test_both_directions_agree(shared: Path, device: str) -> None:
    recording = open_recording(shared / "traces" / "tlparse" / f"inductor_provenance_{device}_log.txt")
    (compile_,) = recording.compiles
    (found,) = read_provenance(recording, compile_)
    assert found.stage == "forward.code"
    assert found.kernels
    assert set(found.pre_to_post) == {"x", "x_1", "x_2", "d", "y", "z"}
    code = recording.text(recording.graph(compile_, "forward.code").event).split("\n")
    for kernel in found.kernels:
        assert kernel.lines, kernel.name
        for node in (*kernel.post_grad, *kernel.pre_grad):
            assert kernel in found.of_node(node)
        assert kernel.name.rsplit(":", 1)[0] in code[kernel.lines[-1] - 1]
    assert [k.name for k in found.of_node("z") if "gelu" in k.name]  # z = gelu(y)


@pytest.mark.shared
def test_a_log_without_maps_has_none(shared: Path) -> None:
    recording = open_recording(shared / "traces" / "tlparse" / "cache_hit_miss.log")
    assert all(read_provenance(recording, compile_) == [] for compile_ in recording.compiles)
