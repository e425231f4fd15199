"""Element-wise chains, views and copies against eager, through the plan and through proven, executed instructions."""

import torch

from fxscope.targets.npu.device import TABLE
from fxscope.targets.npu.lowering import LOWERINGS, Island
from fxscope.targets.op_table import OpTable
from tests.unit.npu.programs import t


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
