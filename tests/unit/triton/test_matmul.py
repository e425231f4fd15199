"""Matrix products with their epilogue in one kernel: right in every formulation, taken only where measured to be faster."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

pytest.importorskip("triton")
from fxscope.passes.partition import partition
from fxscope.targets.triton import tune
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from fxscope.targets.triton.matmul import MatmulNest
from fxscope.targets.triton.schedule import LIBRARY, candidates
from fxscope.targets.triton.target import TritonTarget
from tests.unit.triton.traced import graph

CPU = torch.device("cpu")


def fused(number: int = -1) -> Any:
    """A chooser that takes one of the formulations that hold the product."""

    def choose(nest: Any, write: Any, name: str, values: Any) -> Any:
        options = candidates(nest)
        return options[1:][number] if options[0] is LIBRARY else options[0]

    return choose


def run(function: Any, *args: torch.Tensor, choose: Any = first_candidate) -> tuple[TritonExecutable, tuple[Any, ...]]:
    executable = TritonExecutable(graph(function, *args), args, choose, CPU, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the interpreter's own are kept from the user
        return executable, executable(*args)


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 4e-3, torch.float16: 6e-4}[got.dtype]
    assert float((got.double() - want.double()).norm()) <= tolerance * float(want.double().norm()) + 1e-7


def linear(x, w, b, r):
    return torch.relu(F.linear(x, w, b)) + r


def plain(x, w, b, r):
    return F.gelu(x @ w.t()) * 0.5


def matrix_bias(x, w, b, r):
    return torch.sigmoid(torch.addmm(r, x, w.t()) * b)


def row_scale(x, w, b, r):
    return (x @ w.t()) * x[:, :1] + torch.arange(r.shape[1])


def twice(x, w, b, r):
    y = x @ w.t()
    return y * torch.sigmoid(y), torch.tanh(y + r)


def turned(x, w, b, r):
    return torch.relu(x @ w.t()).t().contiguous()


def make(rows: int, depth: int, cols: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * depth + cols)
    return [
        torch.randn(*s, generator=generator).to(dtype) for s in ((rows, depth), (cols, depth), (cols,), (rows, cols))
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [linear, plain, matrix_bias, row_scale, twice, turned])
def test_a_product_and_what_follows_in_one_kernel(function, dtype):
    for sizes in ((70, 45, 33), (3, 16, 130), (64, 64, 64)):
        args = make(*sizes, dtype)
        executable, got = run(function, *args, choose=fused())
        assert executable.launches == 1
        want = function(*(x.double() for x in args))
        for one, other in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            assert one.dtype == dtype
            near(one, other)


def test_every_formulation_computes_the_same():
    args = make(150, 70, 270, torch.float32)
    names = set()
    for number in range(8):
        executable, got = run(linear, *args, choose=fused(number))
        near(got[0], linear(*(x.double() for x in args)))
        names.add(executable.latest.sources[0].schedule.text())
    assert len(names) == 8


def test_operands_in_any_layout_and_non_finite_numbers():
    x, w, b, r = make(40, 30, 50, torch.float32)
    x[3, 4] = float("nan")
    w[7, 1] = float("inf")
    cases = [
        (x, w.t().contiguous().t(), b, r),
        (x.t().contiguous().t(), w, b, r.t().contiguous().t()),
        (torch.cat([x, x], 1)[:, 30:], w, torch.stack([b, b], 1)[:, 1], r),
    ]
    for args in cases:
        _, got = run(linear, *args, choose=fused())
        torch.testing.assert_close(got[0], linear(*args), rtol=1e-5, atol=1e-5, equal_nan=True)


def reused(x, w, b, r):
    y = x @ w.t()
    return torch.relu(y), y


def reduced(x, w, b, r):
    return torch.softmax(x @ w.t(), -1)


def scaled(x, w, b, r):
    return torch.relu(torch.addmm(b, x, w.t(), beta=2))


def two_products(x, w, b, r):
    return torch.relu(x @ w.t()) + (r * 2) @ (w @ w.t())


@pytest.mark.parametrize("function", [reused, reduced, scaled, two_products])
def test_what_cannot_be_one_kernel_stays_two_and_right(function):
    args = make(20, 30, 24, torch.float32)
    executable, got = run(function, *args, choose=fused())
    want = function(*(x.double() for x in args))
    for one, other in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        near(one, other)
    assert "torch.ops.aten" in executable.listings()[-1].text or function is two_products


def test_the_library_is_taken_unless_something_was_measured():
    args = make(64, 32, 64, torch.bfloat16)
    executable, got = run(linear, *args)
    near(got[0], linear(*(x.double() for x in args)))
    assert executable.launches == 2
    host = executable.listings()[-1].text
    assert "torch.ops.aten.addmm.default(" in host
    assert host.index("addmm") < host.index("fused_relu_add(")


def test_the_source_names_its_lines_and_nodes():
    executable, _ = run(linear, *make(64, 256, 64, torch.float16), choose=fused())
    listing = executable.listings()[0]
    assert listing.title == "fused_addmm_relu_add"
    lines = listing.text.splitlines()
    assert any("acc = tl.dot(a_tile, b_tile, acc)" in line for line in lines)
    assert "mask" not in listing.text  # sizes that tiles divide need none
    for number, nodes in listing.lines_to_nodes.items():
        if "tl.dot" in lines[number - 1]:
            assert nodes == ("addmm",)
    listing = run(linear, *make(64, 32, 64, torch.float32), choose=fused())[0].listings()[0]
    assert 'input_precision="ieee"' in listing.text  # as PyTorch is set to multiply float32


@pytest.mark.parametrize(
    ("seconds", "form"), [((2e-5, 1e-5), "matmul"), ((1e-5, 2e-5), "library"), ((1e-5, 1e-5), "library")]
)
def test_the_faster_way_is_taken_and_kept(monkeypatch, tmp_path, seconds, form):
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "made up")
    measured = []

    def measure(self, nest, write, name, options, values):
        assert isinstance(nest, MatmulNest)
        assert nest.tail is not None
        assert options[0] is LIBRARY
        measured.append(name)
        return [(options[0], seconds[0]), (options[-1], seconds[1])]

    monkeypatch.setattr(tune.Tuner, "measure", measure)
    tuner = tune.Tuner(CPU)

    def choose(nest, write, name, values):
        return tuner.choose(nest, write, name, values) if isinstance(nest, MatmulNest) else candidates(nest)[0]

    args = make(64, 32, 64, torch.float32)
    for _ in range(2):
        executable, got = run(linear, *args, choose=choose)
        assert executable.launches == (1 if form == "matmul" else 2)
        near(got[0], linear(*(x.double() for x in args)))
    assert measured == ["fused_mm_add_relu"]  # the second time the choice comes from the disk
    (kept,) = (tmp_path / "triton" / "tuned").rglob("*.json")
    assert json.loads(kept.read_text())["schedule"]["form"] == form


def test_dropout_is_left_out_with_the_reason():
    gm = make_fx(lambda x: torch.ops.aten.native_dropout.default(x, 0.5, True)[0] * 2, tracing_mode="fake")(
        torch.ones(8)
    )
    result = partition(gm, TritonTarget().supports)
    texts = [clause.text for failing in result.clauses.values() for clause in failing]
    assert "triton has no aten.native_dropout.default: its numbers must come from PyTorch's own generator" in texts[0]
    assert [[node.name for node in island.nodes] for island in result.islands] == [["mul"]]
