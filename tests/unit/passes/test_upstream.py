"""What PyTorch's own folding does, on the modules where it is known to be silently wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from fxscope.passes.application import Context
from fxscope.passes.aten import to_aten
from fxscope.passes.conv_bn import fold_conv_bn
from fxscope.passes.module import clone
from fxscope.passes.upstream import would_do
from tests.unit.passes.folding import ByKeyword, OneConvTwoNorms, Twice
from tests.versions_of_torch import TORCH


def fill(module):
    for child in module.modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            with torch.no_grad():
                child.running_mean.uniform_(0.3, 0.7)
                child.running_var.uniform_(1, 3)
                if child.weight is not None:
                    child.weight.uniform_(0.5, 1.5)
                    child.bias.uniform_(-0.5, 0.5)
    return module.eval()


def pair(seed=0):
    torch.manual_seed(seed)
    return [torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)]


def test_fuse_is_wrong_on_a_convolution_called_twice_and_we_name_it():
    """PyTorch issue 197539."""
    torch.manual_seed(0)
    gm = symbolic_trace(fill(Twice()))
    with torch.no_grad():
        for name, number in (("running_mean", 0.5), ("running_var", 2.0), ("weight", 1.3), ("bias", -0.2)):
            getattr(gm.bn, name).fill_(number)
    found = would_do(gm, pair(), ["fx.optimization.fuse"])[0]
    assert found.status == "wrong"
    assert found.max_abs > 0.5
    assert set(found.nodes) == {"conv", "conv_1"}
    inputs = pair()
    ours = fold_conv_bn(clone(gm), Context())
    for got, want in zip(ours(*inputs), gm(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "inputs", "status"),
    [
        (OneConvTwoNorms, pair(), "wrong"),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), [torch.randn(2, 4, 5)], "wrong"),
        (lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(4)), [torch.randn(2, 4, 5)], "raised"),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False)), [torch.randn(6, 5)], "raised"),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), [torch.randn(2, 3, 8, 8)], "right"),
        (
            lambda: nn.Sequential(nn.ConvTranspose2d(4, 4, 3), nn.BatchNorm2d(4)),
            [torch.randn(2, 4, 8, 8)],
            "not-applied",
        ),
    ],
)
def test_fuse_row_by_row(build, inputs, status):
    torch.manual_seed(0)
    found = would_do(symbolic_trace(fill(build())), inputs, ["fx.optimization.fuse"])[0]
    assert found.status == status, found.text


def test_fuse_raises_for_the_whole_model_in_training():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    found = would_do(symbolic_trace(module), [torch.randn(2, 3, 8, 8)], ["fx.optimization.fuse"])[0]
    assert (found.status, found.text.split(":")[0]) == ("raised", "AssertionError")


class Transposed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.ConvTranspose2d(4, 4, 3), nn.BatchNorm2d(4))


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.two(torch.relu(self.one(x) * 2.0)) * 3.0


class Alpha(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)
        self.t = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        return torch.add(self.conv(x), self.t, alpha=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "shape", "tool", "named"),
    [
        pytest.param(Transposed, (2, 4, 8, 8), "inductor freezing", "convolution", marks=pytest.mark.bench),
        pytest.param(Factors, (2, 4, 8, 8), "inductor freezing", "convolution", marks=pytest.mark.bench),
        (Alpha, (2, 4, 8, 8), "inductor freezing", "convolution"),
        (ByKeyword, (2, 3, 16, 16), "efficient_conv_bn_eval", "conv2d"),
    ],
)
def test_inductors_folding_is_wrong_and_we_name_it(build, shape, tool, named):
    torch.manual_seed(0)
    module = fill(build())
    x = torch.randn(shape)
    gm = symbolic_trace(module)
    if named == "convolution":
        gm = to_aten(gm, [x])
    found = would_do(gm, [x], [tool])[0]
    status = "wrong"
    if build is Alpha and TORCH >= (2, 15):
        status = "right"  # it reads alpha since
    elif build is ByKeyword and TORCH < (2, 13):
        status = "raised"
    assert found.status == status, found.text
    assert any(name.startswith(named) for name in found.nodes) == (status == "wrong")


@pytest.mark.slow
def test_fp64_under_freezing_is_explained():
    torch.manual_seed(0)
    gm = symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 3)).double().eval())
    found = would_do(gm, [torch.randn(2, 3, 8, 8).double()], ["inductor freezing"])[0]
    assert found.status == "raised"
    assert "freezing prepacks convolution weights, which has no float64 form" in found.text
