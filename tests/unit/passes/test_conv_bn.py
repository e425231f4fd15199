"""Folding batch norm: every kind of layer, dtype and statistics, in the forms in which graphs come."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from fxscope.passes.application import Context
from fxscope.passes.conv_bn import fold_conv_bn
from fxscope.passes.fakes import propagate_named
from fxscope.passes.module import clone
from tests.unit.passes.folding import FORMS, check, graph_of, image, stats

SIMPLE = {
    "conv1d": (lambda: [nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)], (2, 3, 9)),
    "conv2d": (lambda: [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)], (2, 3, 8, 8)),
    "conv3d": (lambda: [nn.Conv3d(3, 4, 2), nn.BatchNorm3d(4)], (2, 3, 4, 4, 4)),
    "no conv bias": (lambda: [nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)], (2, 3, 8, 8)),
    "not affine": (lambda: [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)], (2, 3, 8, 8)),
    "neither": (lambda: [nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, affine=False)], (2, 3, 8, 8)),
    "grouped": (lambda: [nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8)], (2, 4, 8, 8)),
    "depthwise": (lambda: [nn.Conv2d(4, 8, 3, groups=4, stride=2, padding=1), nn.BatchNorm2d(8)], (2, 4, 8, 8)),
    "same padding": (lambda: [nn.Conv2d(3, 4, 3, padding="same", dilation=2), nn.BatchNorm2d(4)], (2, 3, 8, 8)),
    "reflected": (lambda: [nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4)], (2, 3, 8, 8)),
    "transposed 1d": (lambda: [nn.ConvTranspose1d(3, 4, 3, stride=2), nn.BatchNorm1d(4)], (2, 3, 8)),
    "transposed, Cin == Cout": (lambda: [nn.ConvTranspose2d(4, 4, 3), nn.BatchNorm2d(4)], (2, 4, 8, 8)),
    "transposed, output padding": (
        lambda: [nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1, dilation=2), nn.BatchNorm2d(4)],
        (2, 3, 8, 8),
    ),
    "transposed, groups (pytorch 180995)": (
        lambda: [nn.ConvTranspose2d(4, 4, 3, 1, 1, groups=2, bias=False), nn.BatchNorm2d(4)],
        (2, 4, 8, 8),
    ),
    "transposed 3d, groups": (lambda: [nn.ConvTranspose3d(4, 6, 2, groups=2), nn.BatchNorm3d(6)], (2, 4, 4, 4, 4)),
    "linear": (lambda: [nn.Linear(5, 4), nn.BatchNorm1d(4)], (6, 5)),
    "linear, no bias": (lambda: [nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4)], (6, 5)),
    "linear, not affine": (lambda: [nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False)], (6, 5)),
    "sync": (lambda: [nn.Conv2d(3, 4, 3), nn.SyncBatchNorm(4)], (2, 3, 8, 8)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", SIMPLE)
def test_every_kind_of_layer_folds(case, form):
    build, shape = SIMPLE[case]
    torch.manual_seed(0)
    module = stats(nn.Sequential(*build()))
    applied, skipped, folded = check(module, [image(*shape)], form)
    assert (applied, skipped) == (1, [])
    text = str([node.target for node in folded.graph.nodes])
    assert "batch_norm" not in text
    assert not folded.graph.find_nodes(op="call_module", target="1")


@pytest.mark.parametrize("form", FORMS)
def test_fp64_to_1e_12(form):
    torch.manual_seed(0)
    module = stats(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))).double()
    assert check(module, [image(2, 3, 8, 8, dtype=torch.float64)], form, tolerance=1e-12)[0] == 1


@pytest.mark.parametrize("form", ["modules", "dynamo", "aten"])
def test_linear_before_a_norm_over_another_axis_stays(form):
    """(N, C, L): batch norm's channels are axis 1, the linear layer's the last; equal sizes hide the fault upstream."""
    torch.manual_seed(0)
    module = stats(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)))
    assert check(module, [image(2, 4, 5)], form)[:2] == (0, ["linear-rank" if form != "aten" else "no-conv"])
    module = stats(nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(4)))
    assert check(module, [image(2, 4, 5)], form)[0] == 0


def test_training_is_skipped_node_by_node():
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)))
    module[1].train()
    for form in FORMS:
        context = Context()
        gm, _ = graph_of(copy.deepcopy(module), [image(2, 3, 8, 8)], form)
        fold_conv_bn(gm, context)
        assert [(match.applied, match.reason) for match in context.matches] == [
            (False, "training"),
            (True, None),
        ] or form == ("decomposed")
        assert {(match.applied, match.reason) for match in context.matches} == {(False, "training"), (True, None)}


@pytest.mark.parametrize("form", ["modules", "dynamo"])
def test_missing_statistics(form):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    assert check(module, [image(2, 3, 8, 8)], form)[:2] in ((0, ["no-stats"]), (0, ["training"]))


def test_unbatched_input_normalises_another_axis():
    class Unbatched(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(3, 4, 3)
            self.bn = nn.BatchNorm1d(7)

        def forward(self, x):
            return self.bn(self.conv(x))

    assert check(stats(Unbatched()), [image(3, 9)], "modules")[:2] == (0, ["unbatched"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_folds_in_fp32_and_casts_once(dtype):
    torch.manual_seed(0)
    exact = stats(nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16))).double()
    x = image(2, 16, 16, 16, dtype=torch.float64)
    half = copy.deepcopy(exact).to(dtype)
    want = copy.deepcopy(half).double()(x.to(dtype).double())
    gm, inputs = graph_of(half, [x.to(dtype)], "dynamo")
    context = Context()
    folded = fold_conv_bn(clone(gm), context)
    assert "computed in float32" in context.matches[0].text
    error = (folded(*inputs)[0].double() - want).abs().max()
    before = (gm(*inputs)[0].double() - want).abs().max()
    assert error <= before * 1.5
    weight = next(node for node in folded.graph.nodes if node.target is torch.conv2d).args[1]
    assert weight.meta["val"].dtype == dtype


def test_statistics_in_fp32_beside_half_weights():
    torch.manual_seed(0)
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3).bfloat16(), nn.BatchNorm2d(4)))
    for form in ("dynamo", "aten", "decomposed"):
        assert check(module, [image(2, 3, 8, 8, dtype=torch.bfloat16)], form, tolerance=2e-2)[0] == 1


def test_zero_variance_is_said():
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=0)))
    module[1].running_var[2] = 0
    context = Context()
    fold_conv_bn(symbolic_trace(module).eval(), context)
    gm = symbolic_trace(module)
    propagate_named(gm, [image(2, 3, 8, 8)])
    context = Context()
    fold_conv_bn(gm, context)
    assert "var + eps is 0 in 1 channels" in context.matches[0].text


def test_the_fold_stays_true_when_parameters_change_and_lets_gradients_through():
    torch.manual_seed(0)
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    x = image(2, 3, 8, 8)
    gm, _ = graph_of(module, [x], "modules")
    folded = fold_conv_bn(gm, Context())
    with torch.no_grad():
        module[1].weight.mul_(3)
        module[0].weight.add_(0.1)
    torch.testing.assert_close(folded(x), module(x))
    want = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    got = torch.autograd.grad(folded(x).square().sum(), list(module.parameters()))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-2)


def test_a_limit_applies_so_many():
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)))
    x = image(2, 3, 8, 8)
    gm, _ = graph_of(module, [x], "modules")
    context = Context(limit=1)
    folded = fold_conv_bn(gm, context)
    assert [match.reason for match in context.matches] == [None, "limit"]
    torch.testing.assert_close(folded(x), module(x))
