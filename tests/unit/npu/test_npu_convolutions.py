"""Convolutions, their gradients, and pooling against eager, through the plan and through proven, executed instructions."""

import pytest
import torch
import torch.nn.functional as F


def t(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


ALL = {
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), t(2, 5, 9, 11), t(7, 5, 3, 3), t(7)),
    "conv2d-stride-dilation": (lambda x, w: F.conv2d(x, w, stride=2, padding=2, dilation=2), t(1, 4, 13, 12), t(6, 4, 3, 3)),
    "conv2d-1x1": (lambda x, w: F.conv2d(x, w), t(2, 8, 6, 5), t(3, 8, 1, 1)),
    "conv2d-1x1-stride": (lambda x, w: F.conv2d(x, w, stride=2), t(1, 8, 7, 9), t(3, 8, 1, 1)),
    "conv2d-groups": (lambda x, w: F.conv2d(x, w, padding=1, groups=2), t(1, 6, 7, 7), t(4, 3, 3, 3)),
    "conv2d-depthwise": (lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2, groups=20), t(2, 20, 9, 9), t(20, 1, 3, 3), t(20)),
    "conv2d-depthwise-multiplier": (lambda x, w: F.conv2d(x, w, groups=3), t(1, 3, 6, 6), t(6, 1, 3, 3)),
    "conv2d-asymmetric": (lambda x, w: F.conv2d(x, w, padding=(2, 0), stride=(1, 3)), t(1, 2, 5, 10), t(3, 2, 5, 1)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=2, stride=2), t(2, 4, 15), t(6, 4, 5), t(6)),
    "conv-transpose": (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1), t(1, 4, 5, 6), t(4, 3, 3, 3)),
    "conv-transpose-groups": (lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2, dilation=2), t(2, 4, 4, 4), t(4, 2, 2, 3)),
    "conv-transpose-depthwise": (lambda x, w: F.conv_transpose2d(x, w, padding=1, groups=6), t(2, 6, 5, 7), t(6, 1, 3, 3)),
    "conv-transpose-depthwise-stride": (lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=6), t(1, 6, 5, 7), t(6, 1, 3, 2)),
    "conv1d-channels-2": (lambda x, w, v: F.conv1d(torch.relu(F.conv1d(x, w)), v, groups=4), t(2, 3, 15), t(8, 3, 1), t(8, 2, 3)),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b, padding=1), t(2, 3, 4, 5, 6), t(7, 3, 3, 3, 3), t(7)),
    "conv3d-stride-dilation": (lambda x, w: F.conv3d(x, w, stride=2, padding=(2, 1, 0), dilation=(2, 1, 2)), t(1, 4, 7, 6, 9), t(6, 4, 3, 3, 3)),
    "conv3d-flat-kernel": (lambda x, w: F.conv3d(x, w, stride=(2, 1, 1)), t(2, 4, 5, 5, 4), t(6, 4, 1, 3, 3)),
    "conv3d-groups": (lambda x, w: F.conv3d(x, w, padding=(1, 0, 0), groups=2), t(1, 4, 4, 5, 4), t(6, 2, 2, 3, 2)),
    "conv3d-depthwise": (lambda x, w: F.conv3d(x, w, padding=(0, 1, 1), groups=5), t(2, 5, 3, 5, 4), t(5, 1, 1, 3, 3)),
    "conv3d-chain": (lambda x, w, v: F.conv3d(torch.relu(F.conv3d(x, w)), v, padding=1), t(1, 3, 4, 5, 5), t(4, 3, 2, 2, 2), t(5, 4, 3, 3, 3)),
    "conv-transpose3d": (lambda x, w: F.conv_transpose3d(x, w, stride=2, padding=1, output_padding=1), t(1, 4, 3, 4, 3), t(4, 3, 3, 3, 3)),
    "conv-conv": (lambda x, w, v: F.conv2d(torch.relu(F.conv2d(x, w, padding=1)), v, padding=1), t(1, 3, 8, 8), t(6, 3, 3, 3), t(4, 6, 3, 3)),
    "conv-bn-relu": (
        lambda x, w, m, v, g, b: torch.relu(F.batch_norm(F.conv2d(x, w), m, v, g, b)),
        t(2, 3, 8, 8), t(6, 3, 3, 3), t(6), t(6).abs() + 0.5, t(6, seed=1), t(6, seed=2),
    ),
    "residual": (lambda x, w: torch.relu(F.conv2d(x, w, padding=1) + x), t(1, 4, 6, 6), t(4, 4, 3, 3)),
    "max-pool": (lambda x: F.max_pool2d(x, 3, 2, 1), t(2, 5, 9, 8)),
    "max-pool-ceil": (lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), t(1, 5, 7, 7)),
    "avg-pool": (lambda x: F.avg_pool2d(x, 2), t(2, 20, 6, 6)),
    "avg-pool-pad": (lambda x: F.avg_pool2d(x, 3, 1, 1), t(1, 3, 6, 6)),
    "adaptive-pool": (lambda x: F.adaptive_avg_pool2d(x, 2), t(1, 5, 6, 8)),
    "global-pool": (lambda x: F.adaptive_avg_pool2d(x, 1), t(2, 9, 5, 7)),
    "max-pool3d": (lambda x: F.max_pool3d(x, 2), t(2, 5, 4, 6, 5)),
    "max-pool3d-pad-stride": (lambda x: F.max_pool3d(x, 3, 2, 1), t(1, 3, 7, 6, 5)),
    "max-pool-unbatched": (lambda x: F.max_pool2d(x, 2), t(5, 6, 5)),
    "avg-pool3d": (lambda x: F.avg_pool3d(x, (2, 3, 1), 1, (1, 1, 0)), t(2, 3, 4, 6, 5)),
    "adaptive-pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)), t(1, 3, 4, 5, 6)),
    "adaptive-pool-unbatched": (lambda x: F.adaptive_avg_pool2d(x, 2), t(3, 4, 6)),
    "patches": (lambda x, w: F.conv2d(x, w, stride=4).flatten(2).transpose(1, 2), t(2, 3, 12, 8), t(10, 3, 4, 4)),
}  # fmt: skip


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
    ],
)
def test_against_eager_on_a_tiny_machine(npu, name):
    function, *inputs = ALL[name]
    npu.check(function, *inputs, machine=npu.tiny)


@pytest.mark.parametrize("preset", ["ethos-u65-512", "tpu-v1-256x256"])
@pytest.mark.parametrize("name", ["conv-bn-relu", "max-pool", "conv2d-depthwise", "conv3d"])
def test_against_eager_on_other_presets(npu, name, preset):
    function, *inputs = ALL[name]
    npu.check(function, *inputs, machine=npu.load(preset))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["conv-bn-relu", "max-pool", "conv3d"])
def test_narrow_types(npu, name, dtype):
    function, *inputs = ALL[name]
    narrow = (x.to(dtype) if x.is_floating_point() else x for x in inputs)
    npu.check(function, *narrow, tolerance=0.03 if dtype == torch.bfloat16 else 0.004)


def gradients(function):
    """Gradients of a function by all its inputs but the last, which is the gradient of its result."""

    def backward(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs[:-1]]
        return torch.autograd.grad(function(*leaves), leaves, inputs[-1])

    return backward


BACKWARD = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), t(2, 3, 11), t(4, 3, 3), t(4)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), t(2, 5, 6, 7), t(4, 5, 3, 3), t(4)),
    "stride-dilation": (lambda x, w: F.conv2d(x, w, stride=(2, 3), padding=(1, 2), dilation=(2, 1)), t(2, 3, 9, 10), t(4, 3, 3, 2)),
    "left-over-pixels": (lambda x, w: F.conv2d(x, w, stride=3), t(1, 3, 8, 9), t(4, 3, 2, 2)),
    "large-padding": (lambda x, w: F.conv2d(x, w, padding=2), t(1, 2, 4, 4), t(3, 2, 2, 2)),
    "1x1": (lambda x, w: F.conv2d(x, w), t(2, 4, 5, 5), t(3, 4, 1, 1)),
    "one-channel": (lambda x, w: F.conv2d(x, w), t(2, 1, 6, 6), t(4, 1, 3, 3)),
    "groups": (lambda x, w: F.conv2d(x, w, padding=1, groups=2), t(2, 4, 5, 5), t(6, 2, 3, 3)),
    "depthwise": (lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2, groups=5), t(2, 5, 7, 6), t(5, 1, 3, 3), t(5)),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1), t(2, 4, 4, 5), t(4, 3, 3, 3)),
    "transposed-groups": (lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2), t(1, 4, 4, 3), t(4, 3, 2, 2)),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b, padding=1, stride=(1, 2, 1)), t(2, 3, 4, 5, 4), t(4, 3, 3, 3, 2), t(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_of_convolutions(npu, name):
    function, *inputs = BACKWARD[name]
    result = function(*inputs)
    inputs.append(t(*result.shape, seed=7))
    backward = gradients(function)
    gm = npu.traced(backward, *inputs)
    assert "aten.convolution_backward.default" in {str(node.target) for node in gm.graph.nodes}
    npu.check(backward, *inputs, gm=gm, machine=npu.tiny if name in ("conv2d", "depthwise", "conv3d") else npu.gemmini)


def test_backward_of_a_narrow_convolution(npu):
    function, *inputs = BACKWARD["conv2d"]
    inputs = [x.bfloat16() for x in (*inputs, t(2, 4, 6, 7, seed=7))]
    backward = gradients(function)
    npu.check(backward, *inputs, gm=npu.traced(backward, *inputs), tolerance=0.03)


def test_only_the_gradients_that_are_wanted(npu):
    def of_weight(x, w, g):
        w = w.detach().requires_grad_()
        return torch.autograd.grad(F.conv2d(x, w), w, g)

    inputs = (t(1, 3, 5, 5), t(4, 3, 2, 2), t(1, 4, 4, 4))
    gm = npu.traced(of_weight, *inputs)
    (node,) = [n for n in gm.graph.nodes if "convolution_backward" in str(n.target)]
    assert list(node.args[-1]) == [False, True, False]
    npu.check(of_weight, *inputs, gm=gm)


def test_bound_of_a_convolution_counts_image_and_weights_once(npu):
    compiled = npu.check(*ALL["conv2d"])
    note = compiled.groups[-1].note
    pixels, weights, results = 2 * 5 * 9 * 11, 7 * 5 * 9, 2 * 7 * 9 * 11
    assert note["refetch"] == 9
    assert note["bound"] == 4 * (pixels + weights + results)
    assert npu.check(*ALL["conv2d-1x1"]).groups[-1].note["refetch"] == 1


def test_fusion_keeps_a_chain_on_chip(npu):
    compiled = npu.check(*ALL["conv-bn-relu"])
    assert [group.kind for group in compiled.groups] == ["vector", "matrix"]
    compiled = npu.check(*ALL["residual"])
    assert [group.kind for group in compiled.groups] == ["matrix"]
