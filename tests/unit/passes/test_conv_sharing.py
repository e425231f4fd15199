"""Convolutions, norms and weights that are used more than once, and arguments by keyword."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fxscope.errors import UsageError
from fxscope.passes.application import Context
from fxscope.passes.conv_bn import fold_conv_bn
from fxscope.passes.convolution import Convolution, read_convolution
from fxscope.passes.module import clone
from fxscope.passes.stepper import Stepper
from tests.unit.passes.folding import FORMS, ByKeyword, OneConvTwoNorms, Twice, check, graph_of, image, stats


class BothReused(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.bn(self.conv(self.bn(self.conv(x))))


class TwoUsers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x):
        y = self.conv(x)
        return self.bn(y) + y


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 3, 3, padding=1)
        self.b = nn.Conv2d(3, 3, 3, padding=1)
        self.b.weight = self.a.weight
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.b(torch.relu(self.bn(self.a(x))))


class TwoNormsInARow(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.one = nn.BatchNorm2d(3)
        self.two = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.two(self.one(self.conv(x)))


class NormByKeyword(Twice):
    def forward(self, x):
        return self.bn(input=self.conv(input=x))


@pytest.mark.parametrize("form", FORMS)
def test_a_convolution_called_twice_folds_at_one_call_only(form):
    torch.manual_seed(0)
    module = Twice()
    with torch.no_grad():
        for tensor, number in (
            (module.bn.running_mean, 0.5),
            (module.bn.running_var, 2.0),
            (module.bn.weight, 1.3),
            (module.bn.bias, -0.2),
        ):
            tensor.fill_(number)
    inputs = [torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)]
    assert check(module.eval(), inputs, form, tolerance=1e-5)[:2] == (1, [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("build", "shapes", "applied", "skipped"),
    [
        (OneConvTwoNorms, [(2, 3, 8, 8)] * 2, 2, []),
        (BothReused, [(2, 3, 8, 8)], 2, []),
        (Tied, [(2, 3, 8, 8)], 1, []),
        (TwoNormsInARow, [(2, 3, 8, 8)], 2, []),
        (ByKeyword, [(2, 3, 16, 16)], 1, []),
        (NormByKeyword, [(2, 3, 8, 8)], 1, []),
        (TwoUsers, [(2, 3, 8, 8)], 0, ["users"]),
    ],
)
def test_sharing_and_keywords(build, shapes, applied, skipped, form):
    torch.manual_seed(0)
    result = check(stats(build()), [image(*shape) for shape in shapes], form)
    assert result[:2] == (applied, skipped)


@pytest.mark.parametrize("form", FORMS)
def test_a_convolution_with_two_users_is_computed_twice_when_asked(form):
    torch.manual_seed(0)
    module, x = stats(TwoUsers()), image(2, 3, 8, 8)
    gm, inputs = graph_of(module, [x], form)
    context = Context(inputs=inputs, options={"argument": "duplicate"})
    folded = fold_conv_bn(clone(gm), context)
    assert [match.applied for match in context.matches] == [True]
    assert "batch_norm" not in str([node.target for node in folded.graph.nodes])
    convolutions = [node for node in folded.graph.nodes if isinstance(read_convolution(node), Convolution)]
    assert len(convolutions) == 2
    torch.testing.assert_close(torch.utils._pytree.tree_leaves(folded(*inputs))[0], module(x))
    with pytest.raises(UsageError, match="conv-bn-fold takes no 'twice'"):
        fold_conv_bn(gm, Context(options={"argument": "twice"}))


def test_freezing_a_tied_weight_leaves_the_other_user_its_own():
    """The folded copy is a constant of its own; the convolution that shares the weight keeps reading the parameter."""
    torch.manual_seed(0)
    module, x = stats(Tied()), image(2, 3, 8, 8)
    expected = module(x)
    gm, inputs = graph_of(module, [x], "modules")
    stepper = Stepper(gm, "decompose:none,conv-bn-fold,freeze", inputs, inference=True)
    _, fold, frozen = stepper.run()
    assert [fold.status, frozen.status] == ["applied", "applied"]
    torch.testing.assert_close(stepper.current(*inputs), expected)
    nodes = stepper.current.graph.nodes
    weights = [node.args[1].target for node in nodes if isinstance(read_convolution(node), Convolution)]
    assert weights[0].startswith("_folded_")
    assert stepper.current.get_parameter(weights[1]) is module.a.weight
    with torch.no_grad():
        module.a.weight.add_(1)
    assert not torch.allclose(stepper.current(*inputs), expected)


def test_two_folded_layers_get_buffers_of_their_own():
    """Inductor's freezing reads one buffer for both factors."""
    torch.manual_seed(0)
    module, x = (
        stats(nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))),
        image(2, 3, 8, 8),
    )
    gm, inputs = graph_of(module, [x], "modules")
    stepper = Stepper(gm, "conv-bn-fold,freeze", inputs, inference=True)
    stepper.run()
    names = [node.target for node in stepper.current.graph.nodes if node.op == "get_attr"]
    assert len(set(names)) == len(names) == 4
    torch.testing.assert_close(stepper.current(x), module(x))
