"""What kernels do for a card alone: early launches, rows asked for ahead; and what the interpreter has to do like a card."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")
from fxscope.targets.triton import module
from fxscope.targets.triton.executable import Compiled, TritonExecutable, first_candidate
from fxscope.targets.triton.schedule import candidates
from tests.unit.triton.traced import graph

CPU = torch.device("cpu")


def interpreted(function: Any, *args: torch.Tensor, choose: Any = first_candidate) -> tuple[Any, tuple[Any, ...]]:
    executable = TritonExecutable(graph(function, *args), args, choose, CPU, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return executable, executable(*args)


def sources(function: Any, *shapes: tuple[int, ...], choose: Any = first_candidate) -> list[Any]:
    """Written for a card, of bfloat16."""
    with FakeTensorMode():
        args = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
        return Compiled(graph(function, *args), args, choose, CPU, False, bind=False).sources


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 4e-3}[got.dtype]
    assert float((got.double() - want).norm()) <= tolerance * float(want.norm()) + 1e-7


def test_launches_overlap_where_programs_are_few_or_long_and_the_kernel_waits_first() -> None:
    """Written for a card: nothing is read before what the kernel ahead wrote is there."""

    def softmax(x):
        return torch.softmax(x, -1)

    def one_row(nest: Any, write: Any, name: str, values: Any) -> Any:
        return next(option for option in candidates(nest) if option.tile == 1)

    for shape, choose, overlap in (
        ((64, 1024), first_candidate, True),
        ((8192, 8192), first_candidate, True),
        ((262144, 1023), one_row, False),  # a queue of rows of two kilobytes
        ((2000, 1023), one_row, True),
    ):
        (source,) = sources(softmax, shape, choose=choose)
        assert source.overlap is overlap, shape
        lines = [line.strip() for line in source.text.splitlines()]
        assert ("gdc_wait()" in lines) is overlap
        reads = [at for at, line in enumerate(lines) if "tl.load" in line or "tl.store" in line]
        assert not overlap or lines.index("gdc_wait()") < min(reads)
        assert ("gdc_wait" in module.header(source.text, interpreted=False)) is overlap


@pytest.mark.parametrize(("shape", "overlap"), [((64, 1024), True), ((1024, 1024), False)])
def test_a_launch_of_several_waits_before_it_calls_a_member(shape: tuple[int, ...], overlap: bool) -> None:
    """Unless it is a long queue of short programs: 3,072 that move four kilobytes each."""
    (source,) = sources(lambda x, y, z: (x * 2, torch.relu(y), z + 1), shape, shape, shape)
    assert source.schedule.form == "several"
    assert source.overlap is overlap
    assert ("gdc_wait" in module.header(source.text, interpreted=False)) is overlap
    *members, body = source.text.split("@triton.jit")
    assert "_part(" in body
    assert not any("gdc_" in member for member in members)
    lines = [line.strip() for line in body.splitlines()]
    assert ("gdc_wait()" in lines) is overlap
    assert ("gdc_launch_dependents()" in lines) is overlap
    assert not overlap or lines.index("gdc_wait()") < lines.index("program = tl.program_id(0)")


def test_what_follows_a_librarys_kernel_waits_for_it_outside() -> None:
    def function(x, w):
        return torch.softmax(torch.softmax(x @ w, -1), 0)

    with FakeTensorMode():
        args = [torch.empty(64, 512, dtype=torch.bfloat16), torch.empty(512, 512, dtype=torch.bfloat16)]
        behind, later = Compiled(graph(function, *args), args, first_candidate, CPU, False, bind=False).sources
    assert (behind.overlap, later.overlap) == (False, True)
    assert "gdc_wait" not in behind.text


def test_the_next_row_is_asked_for_within_the_tensor() -> None:
    def bwd(g, x, mean, rstd, w):
        return torch.ops.aten.native_layer_norm_backward(g, x, [8200], mean, rstd, w, w, [True, True, True])

    g, x = torch.randn(6, 8200).bfloat16(), torch.randn(6, 8200).bfloat16()
    mean, rstd, w = (each.bfloat16() for each in (torch.randn(6, 1), torch.rand(6, 1) + 0.5, torch.randn(8200)))

    def ahead(nest: Any, write: Any, name: str, values: Any) -> Any:
        return next((option for option in candidates(nest) if option.ahead), candidates(nest)[0])

    executable, got = interpreted(bwd, g, x, mean, rstd, w, choose=ahead)
    text = executable.latest.sources[0].text
    assert text.count("device.fetch(") == 2
    assert "tl.minimum(row + PROGRAMS, ROWS - 1)" in text
    assert "tl.minimum(tl.arange(0, 256) * 64, N - 1)" in text
    for one, other in zip(got, bwd(*(each.double() for each in (g, x, mean, rstd, w))), strict=True):
        near(one, other)


@pytest.mark.parametrize("kind", [torch.bool, torch.int32, torch.int64, torch.float16])
def test_the_interpreter_converts_numbers_not_bits_to_bfloat16(kind: torch.dtype) -> None:
    """A dropout's mask on the way to its gradient."""
    x = torch.tensor([0, 1, 1, 3, 0, 257, 2, 1]).to(kind).repeat(40)
    y = torch.randn(320).bfloat16()
    _, (got,) = interpreted(lambda x, y: x.to(torch.bfloat16) * 1.25 * y, x, y)
    assert torch.equal(got, x.to(torch.bfloat16) * 1.25 * y)
