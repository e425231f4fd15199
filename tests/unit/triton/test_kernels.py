"""What the generator writes: formulations agree with eager, sources are readable, and all of them compile for an H200."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from fxscope.targets.triton import row_forms, schedule
from fxscope.targets.triton.executable import TritonExecutable
from fxscope.targets.triton.schedule import candidates
from tests.unit.triton.traced import graph

CPU = torch.device("cpu")


def first(nest: Any, write: Any, name: str, values: Any) -> Any:
    return candidates(nest)[0]


def run(function: Any, *args: torch.Tensor, choose: Any = first) -> tuple[TritonExecutable, tuple[Any, ...]]:
    gm = graph(function, *args)
    executable = TritonExecutable(gm, args, choose, CPU, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return executable, executable(*args)


def exact(function: Any, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = function(*(x.double() if x.is_floating_point() else x for x in args))
    return out if isinstance(out, tuple) else (out,)


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 4e-3, torch.float16: 6e-4}.get(got.dtype, 0)
    assert float((got.double() - want.double()).norm()) <= tolerance * float(want.double().norm()) + 1e-7


def chain8(x, b, r):
    return torch.tanh(F.silu(torch.relu(x + b) * 0.5 + r)) + x


def softmax(x):
    return torch.softmax(x, -1)


def rmsnorm(x, w):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def exact_rmsnorm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def layernorm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def layernorm_backward(x, w, g):
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, [x.shape[-1]], w, w, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(g, x, [x.shape[-1]], mean, rstd, w, w, [True, True, True])


def bias_gradient(x, g):
    kept = torch.ops.aten.threshold_backward(g, x, 0)
    return kept, kept.sum(0)


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer the formulations of large tensors on small ones."""
    monkeypatch.setattr(schedule, "BIG", 1)
    for home in (schedule, row_forms):
        monkeypatch.setattr(home, "SMS", 4)
        monkeypatch.setattr(home, "traffic", lambda nest: 2**30)


@pytest.mark.usefixtures("big")
@pytest.mark.parametrize("columns", [1024, 2047])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "layernorm", "layernorm_backward", "bias_gradient"])
def test_every_formulation_computes_the_same(name: str, dtype: torch.dtype, columns: int) -> None:
    torch.manual_seed(0)
    x, g = (torch.randn(5, columns).to(dtype) for _ in range(2))
    w = torch.randn(columns).to(dtype)
    args = {
        "softmax": (x,),
        "rmsnorm": (x, w),
        "layernorm": (x, w, w),
        "layernorm_backward": (x, w, g),
        "bias_gradient": (x, g),
    }[name]
    function = globals()[name]
    wanted = exact(exact_rmsnorm if name == "rmsnorm" else function, *args)
    tried: set[tuple[Any, ...]] = set()

    def nth(nest: Any, write: Any, kernel: str, values: Any) -> Any:
        options = candidates(nest)
        for option in options:
            # Warps and register caps change nothing under the interpreter.
            key = (
                kernel,
                option.form,
                option.tile,
                option.chunks,
                option.window,
                bool(option.programs),
                option.live,
                option.weights,
                option.prefetch,
            )
            if key not in tried:
                tried.add(key)
                return option
        return options[0]

    before = -1
    while len(tried) != before:
        before = len(tried)
        _, got = run(function, *args, choose=nth)
        for one, other in zip(got, wanted, strict=True):
            near(one, other)
    assert len(tried) >= 2


PROGRAM = """
import re
import sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from fxscope.targets.triton import module
from fxscope.targets.triton.executable import Compiled, first_candidate
from fxscope.targets.triton.schedule import candidates

def chain(x, b):
    return torch.tanh(torch.relu(x + b) * 0.5) + x

def loss(x, w, g):
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, [x.shape[-1]], w, w, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(g, x, [x.shape[-1]], mean, rstd, w, w, [True, True, True])

def tiles(nest, write, name, values):
    options = candidates(nest)
    return next((o for o in options if (o.form, o.tile, o.block) == ("matmul", 64, 64)), options[0])

def words_in_chunks(nest, write, name, values):
    options = candidates(nest)
    return next((o for o in options if o.words and o.chunks == 4), options[0])

def check(function, *shapes, dtype, choose=first_candidate):
    with FakeTensorMode():
        args = [torch.empty(shape, dtype=dtype) for shape in shapes]
        gm = make_fx(function, tracing_mode="real")(*args)
    written(gm, args, choose)

def written(gm, args, choose):
    out = gm.graph.output_node()
    out.args = (tuple(out.args[0]) if isinstance(out.args[0], (tuple, list)) else (out.args[0],),)
    gm.recompile()
    sources = Compiled(gm, args, choose, torch.device("cpu"), False, bind=False).sources
    for source in sources:
        ptx = module.compile_binary(source, (9, 0)).kernel.asm["ptx"]
        print(source.name, all(re.search(rf"{kind}\\.global\\S*\\.v4", ptx) for kind in ("ld", "st")))
    return [source.schedule for source in sources]

big = (16384, 16383)
check(lambda x: torch.softmax(x, -1), big, dtype=torch.bfloat16)
check(lambda x: torch.amax(x, -1) + torch.argmax(x, -1), (64, 1000), dtype=torch.float32)
check(chain, big, (16383,), dtype=torch.bfloat16)
check(loss, (4096, 256), (256,), (4096, 256), dtype=torch.bfloat16)
check(lambda a, b: torch.div(a, b, rounding_mode="floor") + a % b, (64, 100), (64, 100), dtype=torch.float32)
check(lambda a, b, c: torch.relu(torch.addmm(c, a, b)), (256, 128), (128, 256), (256,), dtype=torch.bfloat16, choose=tiles)
check(lambda a, b, c, d: (a.bfloat16(), b + 1, c.sum(0), d.bfloat16()), (300,), (5, 40), (70, 33), (300,), dtype=torch.float32)
check(lambda x, y: torch.tanh(x.t()) * y, (4096, 512), (512, 4096), dtype=torch.bfloat16)
x = torch.zeros(4 * 8200 + 1, dtype=torch.float16)[1:].view(4, 8200)
made = written(make_fx(lambda x: (x / x.amax(-1, keepdim=True), x.float().sum(0)))(x), [x], words_in_chunks)
assert any(schedule.words and schedule.chunks == 4 for schedule in made)
"""


def test_kernels_compile_for_an_h200_without_one_with_16_byte_accesses_on_ragged_rows(tmp_path: Path) -> None:
    """In a process of its own: here Triton is in its interpreter's mode."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "FXSCOPE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert lines["fused_softmax"] == lines["fused_add_relu_mul_tanh"] == lines["fused_tanh_mul"] == "True"
    assert {"fused_addmm_relu", "fused_to_copy_add_sum"} <= set(lines)
    assert len(lines) >= 8


def test_source_names_tensors_and_cites_each_line_once() -> None:
    x, b, r = torch.randn(6, 100), torch.randn(100), torch.randn(6, 100)
    executable, _ = run(chain8, x, b, r)
    kernel, host = executable.listings()
    for text in ("tl.load(x_1_ptr", "relu = ", "tanh = ", "mask=mask", '"""600 elements'):
        assert text in kernel.text
    comments = [line.strip() for line in kernel.text.splitlines() if line.strip().startswith("#")]
    assert len(comments) == len(set(comments)) == 7  # one per op of the chain
    lines = kernel.text.splitlines()
    for number, nodes in kernel.lines_to_nodes.items():
        assert (
            nodes[0].split("_")[0] in lines[number - 1] or "load" in lines[number - 1] or "store" in lines[number - 1]
        )
    assert "def call(x_1, b_1, r_1):" in host.text


def test_one_kernel_for_a_chain_around_a_reduction_and_two_for_a_weight_gradient() -> None:
    x, w = torch.randn(6, 100), torch.randn(100)
    assert run(lambda x, w: torch.softmax(torch.relu(x) * w, -1) + 1, x, w)[0].launches == 1
    assert run(layernorm_backward, x, w, torch.randn(6, 100))[0].launches == 2


def test_the_interpreter_rounds_to_bfloat16_like_a_gpu() -> None:
    x = torch.cat([torch.randn(1000), torch.tensor([float("nan"), float("inf"), -0.0, 3.4e38])])
    _, (got,) = run(lambda x: (x * 1).to(torch.bfloat16), x)
    assert torch.equal(got.nan_to_num(7), x.to(torch.bfloat16).nan_to_num(7))


def test_views_between_ops_cost_no_kernel() -> None:
    x, b = torch.randn(4, 6, 10), torch.randn(10)

    def f(x, b):
        y = (x + b).view(4, 6, 2, 5).permute(0, 2, 1, 3)
        return torch.relu(y * 2).transpose(1, 2).reshape(4, 6, 10) + 1

    executable, (got,) = run(f, x, b)
    assert executable.launches == 1
    near(got, f(x, b))


def test_views_that_do_not_nest_become_two_kernels() -> None:
    x = torch.randn(4, 3)

    def f(x):
        y = torch.relu(x + 1)
        return y.view(3, 4) * 2 + y.t()

    _, (got,) = run(f, x)
    near(got, f(x))


def test_a_value_added_to_its_own_transpose() -> None:
    x = torch.randn(7, 7)

    def f(x):
        y = torch.relu(x)
        return y + y.t()

    executable, (got,) = run(f, x)
    near(got, f(x))
    assert executable.launches == 2


def test_matmul_with_a_fused_tail() -> None:
    a, b, bias, r = torch.randn(6, 8), torch.randn(8, 10), torch.randn(10), torch.randn(6, 10)

    def f(a, b, bias, r):
        return F.gelu(torch.addmm(bias, a, b)) + r

    executable, (got,) = run(f, a, b, bias, r)
    near(got, f(a, b, bias, r))
    assert executable.launches == 2


def test_cross_entropy_forward_and_backward() -> None:
    x, target = torch.randn(9, 33), torch.randint(0, 33, (9,))
    target[2] = -100

    def f(x, t):
        loss = F.cross_entropy(x, t)
        return loss, *torch.autograd.grad(loss, x)

    gm = graph(f, x.requires_grad_(), target)
    with torch.no_grad():
        got = TritonExecutable(gm, (x, target), first, CPU, True)(x, target)
    for one, other in zip(got, f(x, target), strict=True):
        near(one, other)


def test_group_norm_batch_norm_and_variance() -> None:
    x, w, b = torch.randn(2, 6, 5, 7), torch.randn(6), torch.randn(6)

    def f(x, w, b):
        y = F.group_norm(x, 3, w, b)
        y = torch.ops.aten._native_batch_norm_legit_no_training(y, w, b, b, w.abs(), 0.1, 1e-5)[0]
        return y, *torch.var_mean(x, (0, 2, 3))

    for one, other in zip(run(f, x, w, b)[1], f(x, w, b), strict=True):
        near(one, other)


def test_integers_booleans_and_rounding_follow_pytorch() -> None:
    i, x = torch.tensor([-7, -1, 0, 3, 9]), torch.tensor([-2.5, -0.5, 0.0, 0.5, 1.5])
    j = torch.tensor([2, -3, 5, -2, 4])

    def f(i, j, x):
        return (
            i // j, i % j, torch.div(i, j, rounding_mode="trunc"), i / 2, (i > 0) & (x < 1), torch.round(x), torch.remainder(x, 1.5),
            (x > 0).sum(), i.sum(), torch.where(i > 0, i, x), (x * 3).to(torch.int32), i.clamp(0, 5), x.to(torch.bool),
        )  # fmt: skip

    for position, (one, other) in enumerate(zip(run(f, i, j, x)[1], f(i, j, x), strict=True)):
        assert one.dtype == other.dtype, position
        assert torch.equal(one, other), position


def test_another_signature_is_compiled_anew_and_an_empty_one_runs_eagerly() -> None:
    gm = graph(lambda x: torch.relu(x) + 1, torch.randn(4, 8))
    executable = TritonExecutable(gm, (torch.randn(4, 8),), first, CPU, True)
    for x in (
        torch.randn(4, 8),
        torch.randn(8, 4).t(),
        torch.randn(5, 8),
        torch.randn(41)[1:33].view(4, 8),
        torch.empty(0, 8),
    ):
        assert torch.equal(executable(x)[0], torch.relu(x) + 1)
    assert len(executable.variants) == 5
    assert operator.attrgetter("latest")(executable) is None


def test_every_op_of_the_table_exists_and_has_an_expression_or_a_rule() -> None:
    from fxscope.targets.triton.builder import POINTWISE
    from fxscope.targets.triton.nodes import EXTERN, VIEWS
    from fxscope.targets.triton.rowwise import RULES
    from fxscope.targets.triton.target import op_table

    overloads = [op for row in op_table().rows for op in row.ops]
    for overload in overloads:
        namespace, packet, name = overload.split(".")
        assert hasattr(getattr(getattr(torch.ops, namespace), packet), name), overload
    assert {op.rsplit(".", 1)[0] for op in overloads} == set(POINTWISE) | set(RULES) | VIEWS | EXTERN
