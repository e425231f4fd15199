"""Reductions, softmax and normalisations against eager, through the plan and through proven instructions."""

import pytest
import torch
import torch.nn.functional as F


def t(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


ALL = {
    "softmax": (lambda x: F.softmax(x, -1), t(6, 50)),
    "softmax-first-dim": (lambda x: F.softmax(x, 0), t(6, 50)),
    "softmax-large": (lambda x: F.softmax(x * 100, -1), t(3, 9)),
    "softmax-wide": (lambda x: F.softmax(x, -1), t(2, 3000)),
    "log-softmax": (lambda x: F.log_softmax(x, -1), t(6, 50)),
    "layer-norm": (lambda x, w, b: F.layer_norm(x, (40,), w, b), t(3, 7, 40), t(40), t(40, seed=2)),
    "layer-norm-2d": (lambda x: F.layer_norm(x, (6, 8)), t(5, 6, 8)),
    "layer-norm-residual": (lambda x, y, w: F.layer_norm(x + y, (40,), w) * 2, t(7, 40), t(7, 40, seed=5), t(40)),
    "group-norm": (lambda x, w, b: F.group_norm(x, 2, w, b), t(3, 6, 4, 5), t(6), t(6, seed=2)),
    "group-norm-of-conv": (lambda x, w: torch.relu(F.group_norm(F.conv2d(x, w), 4)), t(2, 3, 6, 6), t(8, 3, 3, 3)),
    "group-norm-1d": (lambda x: F.group_norm(x, 3), t(4, 9)),
    "instance-norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), t(2, 5, 6, 7), t(5), t(5, seed=2)),
    "batch-norm-1d": (lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), t(7, 5), t(5), t(5).abs() + 0.5, t(5, seed=1), t(5, seed=2)),
    "rms-norm": (lambda x, w: F.rms_norm(x, (40,), w), t(7, 40), t(40)),
    "var-mean": (lambda x: torch.var_mean(x, -1), t(5, 30)),
    "var-unbiased-keepdim": (lambda x: x.var(-1, keepdim=True), t(5, 30)),
    "var-without-freedom": (lambda x: (x.var(-1, correction=30), x[:, :2].var(-1, correction=3)), t(5, 30)),
    "sum-last": (lambda x: x.sum(-1), t(5, 30)),
    "sum-first": (lambda x: x.sum(0), t(37, 30)),
    "sum-middle": (lambda x: x.sum(1), t(5, 7, 9)),
    "sum-all": (lambda x: x.sum(), t(50, 70)),
    "sum-two-dims-keepdim": (lambda x: x.sum((0, 2), keepdim=True), t(5, 7, 9)),
    "mean-nchw": (lambda x: x.mean((2, 3)), t(2, 5, 6, 7)),
    "amax-amin": (lambda x: x.amax(1) - x.amin(1), t(5, 70)),
    "normalise-columns": (lambda x: x / x.abs().sum(0, keepdim=True), t(20, 30)),
    "attention": (
        lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v, t(2, 3, 10, 8), t(2, 3, 10, 8, seed=1), t(2, 3, 10, 8, seed=2)
    ),
    "scaled-dot-product": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), t(1, 2, 9, 8), t(1, 2, 9, 8, seed=1), t(1, 2, 9, 8, seed=2)),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_against_eager(npu, name):
    function, *inputs = ALL[name]
    npu.check(function, *inputs)


# On few lines every loop runs more than once; one case of each kind of loop is enough.
@pytest.mark.parametrize(
    "name",
    [
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
@pytest.mark.parametrize("name", ["attention", "instance-norm"])
def test_against_eager_on_other_presets(npu, name, preset):
    function, *inputs = ALL[name]
    npu.check(function, *inputs, machine=npu.load(preset))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["layer-norm", "attention", "group-norm"])
def test_narrow_types(npu, name, dtype):
    function, *inputs = ALL[name]
    narrow = (x.to(dtype) if x.is_floating_point() else x for x in inputs)
    npu.check(function, *narrow, tolerance=0.03 if dtype == torch.bfloat16 else 0.004)


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
    compiled = npu.check(*ALL["layer-norm-residual"])
    assert [group.kind for group in compiled.groups] == ["vector"]
