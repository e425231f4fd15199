"""Reductions, softmax and normalisations against eager, through the plan and through proven instructions."""

import pytest
import torch
import torch.nn.functional as F

from tests.unit.npu.programs import REDUCTIONS, t


@pytest.mark.parametrize("shape", [(6, 5), (3, 5, 9), (2, 5, 4, 6), (2, 5, 3, 2, 4)])
def test_batch_norm_in_training(npu, shape):
    """Result, gradients, and the running statistics that the graph hands back."""

    def step(x, w, b, mean, variance, g):
        x, w, b = (v.detach().requires_grad_() for v in (x, w, b))
        mean, variance = mean.clone(), variance.clone()
        with torch.enable_grad():
            out = F.batch_norm(x, mean, variance, w, b, training=True, momentum=0.3)
            gradients = torch.autograd.grad(out, (x, w, b), g)
        return (out, *gradients, mean, variance)

    inputs = (t(*shape), t(5), t(5, seed=1), t(5, seed=2), t(5).abs() + 0.5, t(*shape, seed=3))
    gm = npu.island(step, *inputs)
    assert any("batch_norm" in str(node.target) for node in gm.graph.nodes)
    npu.check(step, *inputs, gm=gm, tolerance=2e-5)


def test_backward_graphs(npu):
    x, w, g = t(6, 12), t(12, 9), t(6, 9)

    def backward(x, w, g):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return torch.autograd.grad(F.layer_norm(F.gelu(x @ w), (9,)), (x, w), g)

    npu.check(backward, x, w, g, tolerance=2e-5, gm=npu.traced(backward, x, w, g))

    def softmax(x, g):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.log_softmax(x, -1) + F.softmax(x, -1), x, g)

    both = (t(5, 9), t(5, 9, seed=3))
    npu.check(softmax, *both, gm=npu.traced(softmax, *both))


def test_fusion_keeps_a_row_on_chip(npu):
    compiled = npu.check(*REDUCTIONS["layer-norm-residual"])
    assert [group.kind for group in compiled.groups] == ["vector"]
