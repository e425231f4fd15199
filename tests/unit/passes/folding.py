"""Folding a module in each of the forms in which graphs come, and comparing; used by the tests of convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import symbolic_trace

from fxscope.passes.application import REASONS, Context
from fxscope.passes.aten import to_aten
from fxscope.passes.conv_bn import fold_conv_bn
from fxscope.passes.fakes import propagate_named
from fxscope.passes.module import clone

FORMS = ("modules", "dynamo", "aten", "decomposed")


class Twice(nn.Module):
    """PyTorch issue 197539: one convolution called twice, batch norm after one call only."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, x, y):
        return self.bn(self.conv(x)), self.conv(y)


class OneConvTwoNorms(Twice):
    def __init__(self):
        super().__init__()
        self.bn2 = nn.BatchNorm2d(8)

    def forward(self, x, y):
        return self.bn(self.conv(x)), self.bn2(self.conv(y))


class ByKeyword(nn.Module):
    """PyTorch issue 196165: bias, stride and padding by keyword."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.bias = nn.Parameter(torch.randn(4))
        self.bn = nn.BatchNorm2d(4)

    def forward(self, x):
        y = F.conv2d(x, self.weight, bias=self.bias, stride=2, padding=1)
        return F.batch_norm(
            input=y,
            running_mean=self.bn.running_mean,
            running_var=self.bn.running_var,
            weight=self.bn.weight,
            bias=self.bn.bias,
            eps=self.bn.eps,
        )


def stats(module, seed=0):
    """Statistics and affine parameters that make a wrong fold visible."""
    generator = torch.Generator().manual_seed(seed)
    for child in module.modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            for name, low, high in (
                ("running_mean", -1, 1),
                ("running_var", 0.5, 2),
                ("weight", 0.5, 1.5),
                ("bias", -1, 1),
            ):
                tensor = getattr(child, name)
                if tensor is not None:
                    with torch.no_grad():
                        tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)
    return module.eval()


def graph_of(module, inputs, form):
    """The graph of a module in one of FORMS, with the inputs it takes."""
    if form == "modules":
        gm = symbolic_trace(module)
    else:
        kept = []

        def keep(gm, given):
            kept.append((gm, given))
            return gm

        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(module, backend=keep)(*[value.clone() for value in inputs])
        gm, inputs = kept[0]
        if form != "dynamo":
            gm = to_aten(gm, inputs, decompositions="core" if form == "aten" else "inductor")
    propagate_named(gm, inputs)
    return gm, list(inputs)


def flat(value):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def check(module, inputs, form, tolerance=1e-6, run=fold_conv_bn):
    """Fold a copy and compare: (applied, reasons, folded graph)."""
    expected = flat(module(*inputs))
    gm, given = graph_of(module, inputs, form)
    context = Context(inputs=given)
    folded = run(clone(gm), context)
    folded.graph.lint()
    for got, want in zip(flat(folded(*given)), expected, strict=True):
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        assert ((got - want).abs().max() / want.abs().max()).item() <= tolerance
    assert all(match.reason in REASONS for match in context.matches if not match.applied)
    return context.applied, [match.reason for match in context.matches if not match.applied], folded


def image(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)
