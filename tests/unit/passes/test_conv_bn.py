"""Folding batch norm: every row of the table of edge cases, in the forms in which graphs come."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import symbolic_trace

from fxscope.passes.affine import fold_affine
from fxscope.passes.application import REASONS, Context
from fxscope.passes.aten import to_aten
from fxscope.passes.conv_bn import fold_conv_bn
from fxscope.passes.fakes import propagate_named
from fxscope.passes.module import clone

FORMS = ("modules", "dynamo", "aten", "decomposed")


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


def test_subclasses_hooks_and_parametrisations_are_refused():
    class Odd(nn.Conv2d):
        def forward(self, x):
            return super().forward(x) + 1

    x = [image(2, 3, 8, 8)]

    class Leaf(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, nn.Conv2d | nn.BatchNorm2d)

    module = stats(nn.Sequential(Odd(3, 4, 3), nn.BatchNorm2d(4)))
    gm = torch.fx.GraphModule(module, Leaf().trace(module))
    context = Context()
    fold_conv_bn(gm, context)
    assert [match.reason for match in context.matches] == ["subclass"]
    torch.testing.assert_close(gm(*x), module(*x))

    class Renamed(nn.Conv2d):
        """Overrides nothing: folds."""

    assert check(stats(nn.Sequential(Renamed(3, 4, 3), nn.BatchNorm2d(4))), x, "dynamo")[0] == 1
    module = stats(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4)))
    gm = torch.fx.GraphModule(module, Leaf().trace(module))
    context = Context()
    fold_conv_bn(gm, context)
    assert [match.reason for match in context.matches] == ["parametrized"]
    assert check(module, x, "dynamo")[0] == 1  # Dynamo writes the parametrisation out, so the weight is an expression
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    module[0].register_forward_hook(lambda module, args, result: result * 2)
    assert check(module, x, "modules", tolerance=1)[1] == ["hook"]


@pytest.mark.parametrize("between", [nn.Dropout(0.5), nn.ReLU()])
def test_something_between_stops_the_fold(between):
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), between, nn.BatchNorm2d(4)))
    assert check(module, [image(2, 3, 8, 8)], "modules")[:2] == (0, ["no-conv"])


def test_a_norm_before_a_padded_convolution_stays():
    module = stats(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1)))
    for form in ("modules", "dynamo", "aten"):
        assert check(module, [image(2, 3, 8, 8)], form)[:2] == (0, ["no-conv"])


def test_unbatched_input_normalises_another_axis():
    class Unbatched(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(3, 4, 3)
            self.bn = nn.BatchNorm1d(7)

        def forward(self, x):
            return self.bn(self.conv(x))

    assert check(stats(Unbatched()), [image(3, 9)], "modules")[:2] == (0, ["unbatched"])


def test_a_write_between_the_two_is_seen():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.bn = nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            x.add_(1)
            return self.bn(y)

    module = stats(Writes())
    gm, inputs = graph_of(module, [image(2, 3, 8, 8)], "dynamo")
    context = Context()
    folded = fold_conv_bn(clone(gm), context)
    assert [match.reason for match in context.matches] == ["mutation"]
    torch.testing.assert_close(folded(*[v.clone() for v in inputs]), gm(*[v.clone() for v in inputs]))


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


class Scaled(nn.Module):
    """Folding of plain arithmetic, where Inductor's freezing is silently wrong."""

    def __init__(self, body):
        super().__init__()
        self.one = nn.Conv2d(4, 4, 3)
        self.two = nn.Conv2d(4, 4, 3)
        self.t = nn.Parameter(torch.randn(4, 1, 1))
        self.body = body

    def forward(self, x):
        return self.body(self, x)


BODIES = {
    "two factors (freezing reads one buffer)": (lambda m, x: m.two(torch.relu(m.one(x) * 2.0)) * 3.0, 2, []),
    "add alpha": (lambda m, x: torch.add(m.one(x), m.t, alpha=2), 1, []),
    "sub alpha": (lambda m, x: torch.sub(m.one(x), m.t, alpha=3), 1, []),
    "reversed add": (lambda m, x: m.t + m.one(x), 1, []),
    "div": (lambda m, x: m.one(x) / m.t, 1, []),
    "chain": (lambda m, x: ((m.one(x) - 0.5) * m.t + 2) / 3, 1, []),
    "const minus conv": (lambda m, x: 1.5 - m.one(x), 0, ["alpha"]),
    "const over conv": (lambda m, x: m.t / m.one(x), 0, ["alpha"]),
    "alpha on the convolution": (lambda m, x: torch.add(m.t, m.one(x), alpha=2), 0, ["alpha"]),
    "spatial factor": (lambda m, x: m.one(x) * x[:1, :, 1:-1, 1:-1], 0, ["not-constant"]),
    "square": (lambda m, x: (lambda y: y * y)(m.one(x)), 0, ["not-constant"]),
    "rounded": (lambda m, x: torch.div(m.one(x), m.t, rounding_mode="floor"), 0, []),
}


@pytest.mark.parametrize("name", BODIES)
def test_arithmetic_after_a_convolution(name):
    body, applied, skipped = BODIES[name]
    torch.manual_seed(0)
    result = check(Scaled(body).eval(), [image(2, 4, 8, 8)], "aten", run=fold_affine, tolerance=2e-6)
    assert result[:2] == (applied, skipped)


def test_a_transposed_convolution_scales_its_output_channels():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.ConvTranspose2d(4, 4, 3)
            self.t = nn.Parameter(torch.randn(4, 1, 1))

        def forward(self, x):
            return self.conv(x) * self.t

    assert check(Model().eval(), [image(2, 4, 8, 8)], "aten", run=fold_affine)[:2] == (1, [])
