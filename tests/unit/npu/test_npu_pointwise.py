"""Element-wise chains, views and copies against eager, through the plan and through proven, executed instructions."""

import pytest
import torch
import torch.nn.functional as F

from fxscope.targets.npu.device import TABLE
from fxscope.targets.npu.lowering import LOWERINGS, Island
from fxscope.targets.op_table import OpTable


def t(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


VECTOR = {
    "chain": (lambda x: torch.sigmoid(x * 2 + 1) - 0.5, t(7, 33)),
    "broadcast-row": (lambda x, y: x + y, t(5, 40), t(40)),
    "broadcast-col": (lambda x, y: x * y, t(5, 40), t(5, 1)),
    "broadcast-both": (lambda x, y: x - y, t(1, 40), t(5, 1)),
    "broadcast-middle": (lambda x, y: x + y, t(3, 4, 5), t(3, 1, 5)),
    "scalar-tensor": (lambda x, y: x / y, t(6, 6), t(1).abs() + 1),
    "transposed-operand": (lambda x, y: x + y.t(), t(9, 6), t(6, 9)),
    "channels-last": (
        lambda x, s: torch.relu(x) * s,
        t(2, 5, 4, 3).to(memory_format=torch.channels_last),
        t(5, 1, 1),
    ),
    "zero-d": (lambda x: x.sum() * 2, t(5, 6)),
    "one-d": (lambda x: torch.tanh(x), t(1037)),
    "comparison": (lambda x, y: torch.where(x > y, x, y * 0.1), t(9, 20), t(9, 20, seed=4)),
    "where-constants": (lambda x: torch.where(x > 0, 1.0, -1.0), t(9, 20)),
    "where-row-mask": (lambda x, m: x.masked_fill(m, float("-inf")), t(4, 9, 9), t(9, 9) > 0),
    "where-nan": (lambda x: torch.where(x > 0, x, float("nan")), t(6, 6)),
    "bool-out": (lambda x: x > 0, t(5, 9)),
    "clamp": (lambda x: torch.clamp(x, -0.5, 0.5), t(30)),
    "relu6": (lambda x: F.relu6(x), t(30)),
    "leaky": (lambda x: F.leaky_relu(x), t(30)),
    "leaky-whole-slope": (lambda x: F.leaky_relu(x, 2), t(30)),
    "pow": (lambda x: x**3 + x**2, t(30)),
    "rsub": (lambda x: 1 - x, t(30)),
    "elu": (lambda x: F.elu(x, 0.7) + F.selu(x), t(30)),
    "silu": (lambda x: F.silu(x), t(30)),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), t(30)),
    "alpha": (lambda x, y: torch.add(x, y, alpha=2) - torch.sub(x, y, alpha=3), t(12), t(12, seed=2)),
    "many-values": (lambda *x: sum(torch.exp(-v) * v.sin() for v in x), *(t(8, 16, seed=s) for s in range(12))),
    "two-outputs": (lambda x: (x + 1, (x + 1) * 2), t(5, 5)),
    "input-as-output": (lambda x: (x, x * 1.5), t(5, 5)),
    "same-output-twice": (lambda x: (lambda y: (y, y))(x * 1.5), t(5, 5)),
}
SHAPES = {
    "cat": (lambda x, y: torch.cat([x * 2, y, x], 1), t(4, 5, 6), t(4, 3, 6)),
    "cat-channels": (
        lambda x, w: torch.cat([F.conv2d(x, w), x[:, :, 1:-1, 1:-1]], 1),
        t(1, 3, 6, 6),
        t(5, 3, 3, 3),
    ),
    "slice-step": (lambda x: x[1:9:3] * 2, t(10, 6)),
    "slice-negative": (lambda x: x[:, -3:-1] + 1, t(4, 9)),
    "select": (lambda x: x[:, 2] + 1, t(4, 9, 3)),
    "permute-add": (lambda x, y: x.permute(2, 0, 1) + y, t(4, 5, 6), t(6, 4, 5)),
    "transpose-copy": (lambda x: x.transpose(0, 1).contiguous().view(-1) + 1, t(30, 20)),
    "view-of-result": (lambda x: (x * 2).view(6, 20).sum(1), t(4, 5, 6)),
    "view-transposed-result": (lambda x: (x * 2).transpose(1, 2).reshape(4, 30) + 1, t(4, 5, 6)),
    "expand": (lambda x: x.expand(4, 5, 6) * 1.5, t(4, 1, 6)),
    "repeat": (lambda x: x.repeat(2, 1, 3) + 1, t(4, 5)),
    "repeat-channels": (lambda x, w: F.conv2d(x, w).repeat(1, 2, 1, 1) * 2, t(1, 3, 6, 6), t(5, 3, 3, 3)),
    "squeeze": (lambda x: (x + 1).squeeze(1).unsqueeze(0), t(4, 1, 6)),
    "split": (lambda x: [p * 2 for p in x.split(4, 1)][2] + 1, t(3, 10)),
    "unbind": (lambda x: x.unbind(0)[1] + x.unbind(0)[0], t(2, 3, 4)),
    "pad": (lambda x: F.pad(x * 2, (1, 2, 0, 3), value=7.0), t(4, 5)),
    "pad-cut": (lambda x: F.pad(x, (-1, 2)), t(4, 5)),
    "constants": (lambda x: x + torch.ones_like(x) * 3 - torch.full_like(x, 0.5), t(4, 5)),
    "heads": (
        lambda x: (x.view(2, 6, 3, 4).transpose(1, 2) @ x.view(2, 6, 3, 4).permute(0, 2, 3, 1)).sum(-1),
        t(2, 6, 12),
    ),
}
ALL = {**VECTOR, **SHAPES}


@pytest.mark.parametrize("name", ALL)
def test_against_eager(npu, name):
    function, *inputs = ALL[name]
    npu.check(function, *inputs)


# On few lines every loop runs more than once; one case of each kind of loop is enough.
@pytest.mark.parametrize(
    "name",
    [
        "broadcast-both",
        "channels-last",
        "where-row-mask",
        "many-values",
        "cat-channels",
        "permute-add",
        "transpose-copy",
        "pad",
        "heads",
        "repeat",
    ],
)
def test_against_eager_on_a_tiny_machine(npu, name):
    function, *inputs = ALL[name]
    npu.check(function, *inputs, machine=npu.tiny)


@pytest.mark.parametrize("preset", ["ethos-u65-512", "tpu-v1-256x256"])
@pytest.mark.parametrize("name", ["transpose-copy"])
def test_against_eager_on_other_presets(npu, name, preset):
    function, *inputs = ALL[name]
    npu.check(function, *inputs, machine=npu.load(preset))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["cat", "chain", "elu"])
def test_narrow_types(npu, name, dtype):
    function, *inputs = ALL[name]
    narrow = (x.to(dtype) if x.is_floating_point() else x for x in inputs)
    npu.check(function, *narrow, tolerance=0.03 if dtype == torch.bfloat16 else 0.004)


def test_casts(npu):
    npu.check(
        lambda x: (x.to(torch.bfloat16), x.to(torch.float16), x.to(torch.int32), x.to(torch.int8), x.bool()),
        t(5, 40) * 9,
    )
    npu.check(lambda x: (x.float() * 0.5, x.to(torch.bool)), torch.arange(-60, 60, dtype=torch.int8).view(6, 20))
    npu.check(lambda x: x.float() + 0.25, torch.arange(-60, 60, dtype=torch.int32).view(6, 20))
    npu.check(lambda x: x.float() + 1, t(5, 9) > 0)


def test_table_and_lowerings_name_the_same_ops(npu):
    Island(npu.island(lambda x: x + 1, t(3)), npu.gemmini)  # registers them
    table = {op for row in OpTable.load(TABLE).rows for op in row.ops}
    assert table == set(LOWERINGS)
