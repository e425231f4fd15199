"""Convolutions and norms that must be left alone, or folded with a warning."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fxscope.errors import CheckFailed
from fxscope.passes.application import Context
from fxscope.passes.conv_bn import fold_conv_bn
from fxscope.passes.document import step_row
from fxscope.passes.module import clone
from fxscope.passes.stepper import Stepper
from tests.unit.passes.folding import FORMS, check, graph_of, image, stats


def test_subclasses_and_parametrisations_are_refused():
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


@pytest.mark.parametrize("between", [nn.Dropout(0.5), nn.ReLU()])
def test_something_between_stops_the_fold(between):
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), between, nn.BatchNorm2d(4)))
    assert check(module, [image(2, 3, 8, 8)], "modules")[:2] == (0, ["no-conv"])


def test_a_norm_before_a_padded_convolution_stays():
    module = stats(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1)))
    for form in ("modules", "dynamo", "aten"):
        assert check(module, [image(2, 3, 8, 8)], form)[:2] == (0, ["no-conv"])


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


def test_a_forward_hook_that_looks_on_stays_and_is_warned_about():
    torch.manual_seed(0)
    module, x = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), image(2, 3, 8, 8)
    seen = []
    module[0].register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
    gm, inputs = graph_of(module, [x], "modules")
    context = Context(inputs=inputs)
    folded = fold_conv_bn(clone(gm), context)
    assert [match.applied for match in context.matches] == [True]
    assert "warning: the forward hooks of 0 now see the folded output" in context.matches[0].text
    seen.clear()
    expected = module(x)
    result = folded(x)
    torch.testing.assert_close(result, expected)
    assert seen[1][1] is result  # not what the convolution alone gives, and that is what the warning says
    assert torch.equal(seen[1][0], x)
    assert not torch.allclose(seen[0][1], expected)
    module[0].register_forward_hook(lambda module, args, output: output + 1)
    with pytest.raises(CheckFailed, match="a forward hook of 0 returns a value"):
        folded(x)


def test_hooks_that_could_change_the_numbers_are_refused():
    x = image(2, 3, 8, 8)

    def built():
        return stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))

    module = built()
    module[0].register_forward_hook(lambda module, args, output: output * 2)
    assert check(module, [x], "modules")[1] == ["hook"]
    module = built()
    module[0].register_forward_hook(lambda module, args, kwargs, output: None, with_kwargs=True)
    assert check(module, [x], "modules")[0] == 1
    gm, _ = graph_of(module, [x], "modules")
    context = Context()  # no inputs: whether it looks on only is not known
    fold_conv_bn(gm, context)
    assert [match.reason for match in context.matches] == ["hook"]
    module = built()
    module[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    assert check(module, [x], "modules")[1] == ["hook"]
    module = built()
    module[1].register_forward_hook(lambda module, args, output: output * 2)
    assert check(module, [x], "modules")[1] == ["hook"]


def test_keys_of_the_state_dict_that_come_and_go_are_told():
    torch.manual_seed(0)
    module, x = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), image(2, 3, 8, 8)
    gm, inputs = graph_of(module, [x], "modules")
    stepper = Stepper(gm, "conv-bn-fold,freeze", inputs, inference=True)
    fold, frozen = stepper.run()
    assert (fold.state_removed, fold.state_added) == (["1.num_batches_tracked"], [])
    assert frozen.state_added == ["_folded_0", "_folded_1"]
    assert frozen.state_removed == ["0.bias", "0.weight", "1.bias", "1.running_mean", "1.running_var", "1.weight"]
    assert [match.text.split(" replaces ")[0] for match in frozen.matches] == frozen.state_added
    assert all(key in frozen.before.state_dict() for key in frozen.state_removed)  # the way back
    row = step_row(frozen)
    assert (row.state_removed, row.state_added) == (frozen.state_removed, frozen.state_added)


def test_freezing_a_fold_that_needs_a_gradient_is_refused():
    torch.manual_seed(0)
    module, x = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), image(2, 3, 8, 8)
    gm, inputs = graph_of(module, [x], "modules")
    fold, frozen = Stepper(gm, "conv-bn-fold,freeze", inputs).run()
    assert (fold.status, frozen.status) == ("applied", "unchanged")
    assert {match.reason for match in frozen.matches} == {"grad"}


def test_every_fold_is_told_with_its_own_difference():
    torch.manual_seed(0)
    module, x = (
        stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))),
        image(2, 3, 8, 8),
    )
    for form in FORMS:
        gm, inputs = graph_of(module, [x], form)
        stepper = Stepper(gm, "conv-bn-fold", inputs)
        (step,) = stepper.run()
        stepper.measure_matches(step)
        assert len(step.matches) == 2
        assert all(0 < match.max_rel_diff < 1e-5 for match in step.matches), (form, step.matches)
        assert all("weight axis 0" in match.text and "computed in float32" in match.text for match in step.matches)


def test_fp64_is_folded_and_frozen_here():
    torch.manual_seed(0)
    module = stats(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).double()
    gm, inputs = graph_of(module, [image(2, 3, 8, 8, dtype=torch.float64)], "modules")
    fold, frozen = Stepper(gm, "conv-bn-fold,freeze", inputs, inference=True).run()
    assert [fold.status, frozen.status] == ["applied", "applied"]
    assert frozen.to_start.max_rel < 1e-12


@pytest.mark.parametrize("used", [False, True])
def test_a_norm_whose_statistics_are_used_stays(used):
    class Native(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            bn = self.bn
            out = torch.ops.aten._native_batch_norm_legit_no_training.default(
                self.conv(x), bn.weight, bn.bias, bn.running_mean, bn.running_var, 0.1, 1e-5
            )
            return (out[0], out[1]) if used else out[0]

    module, x = stats(Native()), image(2, 3, 8, 8)
    steps = Stepper(torch.fx.symbolic_trace(module), "shapes,conv-bn-fold", [x]).run()
    assert [match.reason for match in steps[1].matches] == (["stats-used"] if used else [None])
    assert steps[1].status == ("unchanged" if used else "applied")


@pytest.mark.parametrize("looks_on", [False, True])
def test_a_hooked_convolution_is_not_copied(looks_on):
    """Its copy would call the hooks a second time."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            return self.bn(y), y

    module, x = stats(Shared()), image(2, 3, 8, 8)
    if looks_on:
        module.conv.register_forward_hook(lambda module, args, output: None)
    steps = Stepper(torch.fx.symbolic_trace(module), "shapes,conv-bn-fold:duplicate", [x]).run()
    assert [match.reason for match in steps[1].matches] == (["hook"] if looks_on else [None])
    assert not looks_on or "which a copy of it would call twice" in steps[1].matches[0].text
