"""Random graphs: whatever the builder fuses, both executors agree with eager and the program is proven legal."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from fxscope.targets.npu import machine as machines
from fxscope.targets.npu.compile import compile_island
from fxscope.targets.npu.executable import NpuExecutable

GEMMINI = machines.load("gemmini-16x16")
TINY = machines.with_values(GEMMINI, {"local.scratchpad": 8192, "local.accumulator": 8192, "chip.bytes": 4096})


def random_function(seed, steps=14):
    """A function of three matrices and an image, of random ops on random earlier values."""
    chance = random.Random(seed)
    plan = [(chance.randrange(24), chance.random(), chance.random()) for _ in range(steps)]
    kept = [chance.random() for _ in range(steps)]

    def function(a, b, w, image, kernel):
        values = [a, b, image]

        def pick(rank, where):
            fitting = [v for v in values if v.dim() == rank]
            return fitting[int(where * len(fitting)) % len(fitting)]

        for number, first, second in plan:
            rank = 2 if first < 0.6 else 4
            x, y = pick(rank, first * 7 % 1), pick(rank, second * 5 % 1)
            if number < 4:
                out = torch.relu(x) + 0.5
            elif number < 8:
                out = x * 0.5 + y if x.shape == y.shape else x - x.mean()
            elif number == 8:
                out = F.softmax(x, -1)
            elif number == 9:
                out = x - x.amax(-1, keepdim=True)
            elif number == 10:
                out = F.layer_norm(x, x.shape[-1:])
            elif number == 11:
                out = x.transpose(-1, -2).contiguous().transpose(-1, -2) * 1.5
            elif number == 12:
                out = torch.where(x > 0, x, y if x.shape == y.shape else x * 0.1)
            elif number == 13:
                out = x - x.sum(0, keepdim=True) * 0.1
            elif number == 14:
                out = torch.cat([x[..., :2], x[..., 2:] * 2], -1)
            elif number == 15:
                out = torch.tanh(x)
            elif number == 16:
                out = x.reshape(-1).reshape(x.shape) + 1
            elif number < 20:
                x = pick(2, first)
                out = torch.tanh(x @ w) if x.shape[1] == w.shape[0] else x
            elif number < 22:
                out = F.conv2d(pick(4, first), kernel, padding=1)
                out = torch.relu(out) if number == 20 else out
            else:
                x = pick(4, first)
                out = F.max_pool2d(x, 3, 1, 1) if number == 22 else F.avg_pool2d(x, 3, 1, 1)
            values.append(out / 2)
        return tuple(v for v, keep in zip(values[3:], kept, strict=True) if keep < 0.4) or (values[-1],)

    return function


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(9, 12), (9, 12), (12, 12), (2, 4, 5, 6), (4, 4, 3, 3)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def check(seed, machine):
    function, values = random_function(seed), inputs(seed)
    gm = make_fx(function, tracing_mode="fake", decomposition_table=torch._decomp.core_aten_decompositions())(*values)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    compiled = compile_island(gm, machine, tried=1)
    expected = function(*values)
    for mode in ("plan", "instructions"):
        for got, wanted in zip(NpuExecutable(compiled, gm, mode=mode)(*values), expected, strict=True):
            torch.testing.assert_close(
                got, wanted, rtol=1e-3, atol=1e-4, msg=lambda m, k=mode: f"seed {seed}, {k}: {m}"
            )


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    check(seed, TINY if seed % 2 else GEMMINI)
