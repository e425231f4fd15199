"""Every program against eager, through the plan and through proven, executed instructions."""

import pytest
import torch

from tests.unit.npu.programs import ALL


@pytest.mark.parametrize("name", ALL)
def test_against_eager(npu, name):
    function, *inputs = ALL[name]
    npu.check(function, *inputs)


# On few lines every loop runs more than once; one case of each kind of loop is enough.
@pytest.mark.parametrize(
    "name",
    [
        "conv2d",
        "conv2d-groups",
        "conv2d-depthwise",
        "conv-transpose",
        "conv-bn-relu",
        "conv3d-stride-dilation",
        "conv-transpose3d",
        "max-pool",
        "avg-pool",
        "global-pool",
        "max-pool3d-pad-stride",
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
        "mm",
        "mm-transposed-a",
        "bmm",
        "addmm-alpha-beta",
        "mlp-3d",
        "softmax",
        "layer-norm-residual",
        "sum-first",
        "sum-all",
        "sum-two-dims-keepdim",
        "attention",
        "group-norm-of-conv",
    ],
)
def test_against_eager_on_a_tiny_machine(npu, name):
    function, *inputs = ALL[name]
    npu.check(function, *inputs, machine=npu.tiny)


@pytest.mark.parametrize("preset", ["ethos-u65-512", "tpu-v1-256x256"])
@pytest.mark.parametrize(
    "name",
    [
        "conv-bn-relu",
        "max-pool",
        "conv2d-depthwise",
        "conv3d",
        "transpose-copy",
        "mlp-3d",
        "attention",
        "instance-norm",
    ],
)
def test_against_eager_on_other_presets(npu, name, preset):
    function, *inputs = ALL[name]
    npu.check(function, *inputs, machine=npu.load(preset))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name",
    [
        "conv-bn-relu",
        "max-pool",
        "conv3d",
        "cat",
        "chain",
        "elu",
        "mm",
        "mlp-3d",
        "layer-norm",
        "attention",
        "group-norm",
    ],
)
def test_narrow_types(npu, name, dtype):
    function, *inputs = ALL[name]
    narrow = (x.to(dtype) if x.is_floating_point() else x for x in inputs)
    npu.check(function, *narrow, tolerance=0.03 if dtype == torch.bfloat16 else 0.004)
