"""Generated chains and reductions under Triton's interpreter, against eager."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")
from fxscope.errors import UsageError
from fxscope.targets.triton.target import TritonTarget
from tests.unit.triton.traced import INTERPRETED, graph, on_device

SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 16, 17, 33])
FLOATS = [torch.float32, torch.float32, torch.bfloat16, torch.float16]
UNARY = ["relu", "sigmoid", "tanh", "neg", "abs", "silu", "gelu", "exp", "square", "hardswish", "leaky_relu"]
BINARY = ["add", "sub", "mul", "maximum", "where", "div"]
REDUCE = ["sum", "mean", "amax", "amin", "softmax", "log_softmax", "var", "layer_norm", "logsumexp", "argmax", "any"]


def run(gm: torch.fx.GraphModule, args: list[torch.Tensor]) -> tuple[Any, ...]:
    """The results; what has no elements is refused with that reason, and is eager's."""
    target = TritonTarget()
    values = [(node, node.meta["val"]) for node in gm.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    if any(value.numel() == 0 for _, value in values):
        with pytest.raises(UsageError, match="has no elements"):
            target.compile(gm, args)
        left = {node for node, value in values if node.op == "call_function" and value.numel() == 0}
        assert all(target.supports(node) for node in left)
        return gm(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, about the NaN and infinity that the interpreter meets
        return target.compile(gm, args)(*args)


def agree(got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor) -> None:
    """As near to float64 as eager is, but for a few roundings of the result's dtype."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert all(
        a == b for a, b, size in zip(got.stride(), want.stride(), want.shape, strict=True) if size > 1 and want.numel()
    )
    if not want.dtype.is_floating_point:
        assert torch.equal(got, want)
        return
    assert torch.equal(torch.isnan(got), torch.isnan(want))
    finite = torch.isfinite(want)
    assert torch.equal(got[~finite & ~torch.isnan(want)], want[~finite & ~torch.isnan(want)])
    step = torch.finfo(want.dtype).eps
    scale = exact[finite].abs() + 1.0
    allowed = (
        8 * step * scale + 4 * (want[finite].double() - exact[finite]).abs().max().nan_to_num() if finite.any() else 0
    )
    assert (((got[finite].double() - exact[finite]).abs()) <= allowed).all()


def strided(data: st.DataObject, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that is contiguous, transposed, sliced, expanded or a broadcast of the shape."""
    layout = data.draw(st.sampled_from(["plain", "plain", "transposed", "sliced", "expanded", "broadcast"]))
    seed = data.draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    if layout == "transposed" and len(shape) > 1:
        return torch.randn(shape[::-1], generator=generator).to(dtype).permute(*reversed(range(len(shape))))
    if layout == "sliced" and shape:
        return torch.randn([*shape[:-1], 2 * shape[-1] + 1], generator=generator).to(dtype)[..., 1::2]
    if layout == "expanded" and shape:
        return torch.randn([1, *shape[1:]], generator=generator).to(dtype).expand(shape)
    if layout == "broadcast" and shape:
        return torch.randn(
            [n if data.draw(st.booleans()) else 1 for n in shape][-data.draw(st.integers(1, len(shape))) :],
            generator=generator,
        ).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def apply_unary(name: str, x: torch.Tensor) -> torch.Tensor:
    special = {"square": torch.square, "neg": torch.neg, "exp": lambda t: torch.exp(t.clamp(-4, 4))}
    if name in special:
        return special[name](x)
    return getattr(torch, name)(x) if hasattr(torch, name) else getattr(torch.nn.functional, name)(x)


def apply_binary(name: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if name == "where":
        return torch.where(y != y, x * 0.5, y)
    if name == "div":
        return x / (y.abs() + 1)
    return getattr(torch, name)(x, y)


def apply_reduce(name: str, x: torch.Tensor, dim: int) -> torch.Tensor:
    if name in ("softmax", "log_softmax"):
        return getattr(torch, name)(x, dim)
    if name == "layer_norm":
        return torch.nn.functional.layer_norm(x, x.shape[-1:])
    if name == "any":
        return torch.any(x > 0, dim, keepdim=True)
    if name == "var":
        return torch.var(x, dim, correction=0, keepdim=True)
    return getattr(torch, name)(x, dim, keepdim=True)


class Program:
    """A drawn program: the same steps on any dtype."""

    def __init__(self, data: st.DataObject, *, reduces: bool) -> None:
        self.steps: list[tuple[Any, ...]] = []
        rank = data.draw(st.integers(1 if reduces else 0, 3))
        self.shape = [data.draw(SIZES) for _ in range(rank)]
        if rank and not reduces and data.draw(st.integers(0, 12)) == 0:
            self.shape[0] = 0
        count = data.draw(st.integers(1, 3))
        self.inputs = [strided(data, self.shape, data.draw(st.sampled_from(FLOATS))) for _ in range(count)]
        if self.inputs[0].shape != torch.Size(self.shape):
            self.inputs[0] = self.inputs[0].expand(self.shape)
        if self.inputs[0].numel() and data.draw(st.integers(0, 4)) == 0:
            poisoned = self.inputs[0].clone()
            poisoned.reshape(-1)[0] = data.draw(st.sampled_from([float("nan"), float("inf"), float("-inf")]))
            self.inputs[0] = poisoned
        for _ in range(data.draw(st.integers(1, 6))):
            kind = data.draw(st.sampled_from(["unary", "binary", "scalar", "cast", "view"]))
            if kind == "unary":
                self.steps.append((kind, data.draw(st.sampled_from(UNARY))))
            elif kind == "binary":
                self.steps.append((kind, data.draw(st.sampled_from(BINARY)), data.draw(st.integers(0, count - 1))))
            elif kind == "scalar":
                self.steps.append((kind, data.draw(st.sampled_from([2, 0.5, -1.25]))))
            else:
                self.steps.append((kind,))
        if reduces:
            place = data.draw(st.integers(0, len(self.steps)))
            self.steps.insert(
                place, ("reduce", data.draw(st.sampled_from(REDUCE)), data.draw(st.integers(0, rank - 1)))
            )
        self.side = data.draw(st.booleans())

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, first = inputs[0], None
        for step in self.steps:
            if step[0] == "unary":
                x = apply_unary(step[1], x)
            elif step[0] == "binary":
                x = apply_binary(step[1], x, inputs[step[2]])
            elif step[0] == "scalar":
                x = x * step[1] + 1
            elif step[0] == "cast":
                x = x.to(torch.float64 if inputs[0].dtype == torch.float64 else torch.float32)
            elif step[0] == "view":
                x = x.unsqueeze(0).reshape(-1, *x.shape[1:]) if x.dim() else x
            else:
                before, x = x, apply_reduce(step[1], x, step[2])
                if not x.is_floating_point():
                    self.before = before
                    return (x,)
            first = x if first is None else first
        return (x, first) if self.side and first is not x else (x,)


@pytest.fixture(autouse=True, scope="module")
def interpreted() -> Iterator[None]:
    """On the CPU, also where there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if INTERPRETED:
            patch.setenv("TRITON_INTERPRET", "1")
        yield


SHARD, SHARDS = (int(n) for n in os.environ.get("FXSCOPE_TEST_SHARD", "0/1").split("/"))
seen = itertools.count()


def check(program: Program) -> None:
    if next(seen) % SHARDS != SHARD:
        return
    program.inputs = [on_device(x) for x in program.inputs]
    gm = graph(program, *program.inputs)
    want = gm(*program.inputs)
    exact = program(*(x.double() for x in program.inputs))
    exact = exact if len(exact) == len(want) else exact[:1] * len(want)  # a cast that changes nothing in float64
    got = run(gm, program.inputs)
    assert len(got) == len(want)
    if got[0].dtype == torch.int64 and not torch.equal(got[0], want[0]):  # argmax: rounding may break a tie another way
        values = program.before.double().nan_to_num()
        dim = next(step[2] for step in program.steps if step[0] == "reduce")
        near = values.gather(dim, got[0]) - values.amax(dim, keepdim=True)
        assert near.abs().max() < 0.02 * values.abs().max()
        return
    if got[0].dtype == torch.bool:
        near_zero = program.before.double().abs().amin() < 0.02
        assert near_zero or torch.equal(got[0], want[0])
        return
    for one, other, true in zip(got, want, exact, strict=True):
        agree(one, other, true.double())


COMMON = settings(
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@settings(COMMON, max_examples=170)
@given(st.data())
def test_pointwise_chains_agree_with_eager(data: st.DataObject) -> None:
    check(Program(data, reduces=False))


@settings(COMMON, max_examples=130)
@given(st.data())
def test_chains_around_a_reduction_agree_with_eager(data: st.DataObject) -> None:
    check(Program(data, reduces=True))
