"""Convolutions and pooling: gradients, refusals and what the compiler makes of them."""

import pytest
import torch
import torch.nn.functional as F

from tests.unit.npu.programs import CONVOLUTIONS, t


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
    compiled = npu.check(*CONVOLUTIONS["conv2d"])
    note = compiled.groups[-1].note
    pixels, weights, results = 2 * 5 * 9 * 11, 7 * 5 * 9, 2 * 7 * 9 * 11
    assert note["refetch"] == 9
    assert note["bound"] == 4 * (pixels + weights + results)
    assert npu.check(*CONVOLUTIONS["conv2d-1x1"]).groups[-1].note["refetch"] == 1


def test_fusion_keeps_a_chain_on_chip(npu):
    compiled = npu.check(*CONVOLUTIONS["conv-bn-relu"])
    assert [group.kind for group in compiled.groups] == ["vector", "matrix"]
    compiled = npu.check(*CONVOLUTIONS["residual"])
    assert [group.kind for group in compiled.groups] == ["matrix"]
