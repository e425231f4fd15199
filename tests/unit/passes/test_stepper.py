"""Stepping: what each step says, what failed passes leave behind, and which application is to blame."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from fxscope.errors import UsageError
from fxscope.passes import pipeline
from fxscope.passes.document import passes_document
from fxscope.passes.stepper import Stepper, bisect


def network():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.GELU(),
        nn.Flatten(), nn.Linear(8 * 16, 10), nn.Softmax(-1),
    ).eval()  # fmt: skip
    for module in model:
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    return symbolic_trace(model), [torch.randn(2, 3, 8, 8)]


FULL = "shapes,conv-bn-fold,decompose:inductor,freeze,cse,constant-fold,dce,group-pointwise"


def test_a_pipeline_steps_with_numbers_and_structure():
    gm, inputs = network()
    code = gm.code
    stepper = Stepper(gm, FULL, inputs, inference=True)
    steps = stepper.run()
    assert [step.name for step in steps] == FULL.split(",")
    assert {step.status for step in steps} <= {"applied", "unchanged"}
    assert all(step.to_start.within for step in steps)
    fold = steps[1]
    assert [match.applied for match in fold.matches] == [True, True]
    diff = fold.diff().to_json()
    assert {"_1", "_4"} <= set(diff["removed"]) | {change["was"] for change in diff["changed"]}
    frozen = steps[3]
    assert frozen.status == "applied"
    assert frozen.to_previous.max_abs == 0
    assert gm.code == code  # the caller's graph is left as it is
    assert all(a.after is b.before for a, b in pairwise(steps))


def test_single_applications_are_steps():
    gm, inputs = network()
    steps = Stepper(gm, "conv-bn-fold", inputs, single=True).run()
    assert [(step.application, step.status) for step in steps] == [(1, "applied"), (2, "applied")]
    assert [step.matches[0].nodes for step in steps] == [["_0", "_1"], ["_3", "_4"]]
    steps = Stepper(gm, "decompose:aten.gelu,group-pointwise,dce", inputs, single=True).run()
    assert {step.status for step in steps} == {"applied", "unchanged"}
    assert all(len([m for m in step.matches if m.applied]) == 1 for step in steps if step.status == "applied")


def test_any_pass_can_be_left_out_or_moved_and_needs_are_checked():
    gm, inputs = network()
    for text in ("decompose,conv-bn-fold,dce", "cse,decompose:inductor,conv-bn-fold", "dce"):
        assert all(step.status in ("applied", "unchanged") for step in Stepper(gm, text, inputs).run())
    steps = Stepper(gm, "shapes,group-pointwise,dce", inputs).run()
    assert [step.status for step in steps] == ["unchanged", "failed"]
    assert steps[1].error == "group-pointwise needs functional ATen ops; put decompose before it"


def returns_nothing(gm):
    gm.graph.eliminate_dead_code()


def raises(gm):
    raise ValueError("second thoughts\nand more")


def breaks_lint(gm):
    node = next(node for node in gm.graph.nodes if node.op == "call_module")
    last = gm.graph.output_node()
    last.append(node)
    return gm


def breaks_run(gm):
    for node in gm.graph.nodes:
        if node.op == "call_module" and node.target == "7":
            node.args = (gm.graph.find_nodes(op="placeholder")[0],)
    gm.recompile()
    return gm


def returns_text(gm):
    return "graph"


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (returns_nothing, "the pass returned nothing; it must return the GraphModule"),
        (returns_text, "the pass returned a str; it must return the GraphModule"),
        (raises, "raises raised ValueError: second thoughts"),
        (breaks_lint, "the graph is broken: RuntimeError"),
        (breaks_run, "the graph that breaks_run made does not run: RuntimeError"),
    ],
)
def test_a_bad_pass_is_one_line_and_the_steps_before_remain(function, error):
    gm, inputs = network()
    stepper = Stepper(gm, ["conv-bn-fold", function, "dce"], inputs)
    steps = stepper.run()
    assert [step.status for step in steps] == ["applied", "failed"]
    assert steps[1].error.startswith(error)
    assert "\n" not in steps[1].error
    assert stepper.current is steps[0].after
    torch.testing.assert_close(stepper.current(*inputs), gm(*inputs))


def wrong_twice(gm, context):
    """Scales the second and third of three things it touches: wrong numbers."""
    for at, node in enumerate([node for node in gm.graph.nodes if node.op == "call_module"][:3]):
        if context.apply([node], f"touch {at}") and at >= 1:
            with gm.graph.inserting_after(node):
                new = gm.graph.call_function(torch.mul, (node, 1.5))
            node.replace_all_uses_with(new)
            new.args = (node, 1.5)
    gm.recompile()
    return gm


def test_numbers_beyond_rounding_are_marked_and_bisected_to_the_application():
    gm, inputs = network()
    stepper = Stepper(gm, ["conv-bn-fold", wrong_twice, "dce"], inputs)
    stepper.run()
    assert [step.status for step in stepper.steps] == ["applied", "numbers", "unchanged"]
    culprit = bisect(stepper)
    assert culprit.step.name == "wrong_twice"
    assert culprit.match.text == "touch 1"
    assert culprit.difference.max_rel > 1e-3
    assert bisect(Stepper(gm, "conv-bn-fold,dce", inputs)) is None
    document = passes_document(stepper, graph="0/0", stage="dynamo", notes=[], culprit=culprit, code=True)
    assert document.culprit.match.nodes == culprit.match.nodes
    assert document.steps[1].within is False
    assert len(document.steps[1].lines) == document.steps[1].nodes_after


def test_dropout_and_its_decomposition_are_comparable():
    gm = symbolic_trace(lambda x: torch.nn.functional.dropout(torch.relu(x), 0.3, True) + torch.rand_like(x))
    steps = Stepper(gm, "decompose:inductor", [torch.randn(64)]).run()
    assert steps[0].to_previous.within


def test_shape_dtype_and_nan_changes_are_said():
    def with_nan(gm):
        out = gm.graph.output_node()
        with gm.graph.inserting_before(out):
            out.args = (gm.graph.call_function(torch.div, (out.args[0], 0.0)),)
        gm.recompile()
        return gm

    def to_half(gm):
        out = gm.graph.output_node()
        with gm.graph.inserting_before(out):
            out.args = (gm.graph.call_method("half", (out.args[0],)),)
        gm.recompile()
        return gm

    gm, inputs = network()
    steps = Stepper(gm, [to_half], inputs).run()
    assert steps[0].status == "numbers"
    assert "float16 instead of torch.float32" in steps[0].to_previous.text
    steps = Stepper(gm, [with_nan], inputs).run()
    assert "finite in one graph only" in steps[0].to_previous.text


def test_passes_from_files_and_names(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import torch\ndef my_pass(gm):\n    return gm\n\ndef other(gm):\n    return gm\n")
    gm, inputs = network()
    assert [s.status for s in Stepper(gm, f"dce,{file}:my_pass", inputs).run()] == ["unchanged", "unchanged"]
    for text, message in (
        ("conv-bn", "no pass 'conv-bn'; did you mean 'conv-bn-fold'"),
        (f"{file}:my_pas", "has no function 'my_pas'; did you mean 'my_pass'"),
        (f"{file}", "has 2 functions; name one"),
        (f"{tmp_path}/none.py:f", "does not exist"),
        (",", "the pipeline is empty"),
    ):
        with pytest.raises(UsageError, match=message):
            pipeline.parse(text)
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no')")
    with pytest.raises(UsageError, match="cannot be run: RuntimeError: no"):
        pipeline.parse(f"{broken}:f")


def test_an_installed_pass_gets_its_argument_or_says_that_it_takes_none(monkeypatch):
    given = []

    def listening(gm, context):
        given.append(context.options["argument"])
        return gm

    loads = {"listens": SimpleNamespace(load=lambda: listening), "deaf": SimpleNamespace(load=lambda: lambda gm: gm)}
    monkeypatch.setattr(pipeline, "_installed", lambda: loads)
    gm, inputs = network()
    assert [step.status for step in Stepper(gm, "listens:a+b,deaf", inputs).run()] == ["unchanged", "unchanged"]
    assert given == ["a+b"]
    with pytest.raises(UsageError, match="pass 'deaf' takes no argument"):
        pipeline.parse("deaf:x")


def test_every_pass_teaches():
    for item in pipeline.BUILT_IN:
        assert len(item.doc) > 60, item.name


def test_without_inputs_structure_is_stepped():
    gm, _ = network()
    steps = Stepper(gm, "conv-bn-fold,dce").run()
    assert [(step.name, step.status) for step in steps] == [("conv-bn-fold", "unchanged"), ("dce", "unchanged")]
    assert [match.applied for match in steps[0].matches] == [False, False]
    assert all(step.to_previous is None for step in steps)


def test_numbers_can_be_left_out():
    gm, inputs = network()
    stepper = Stepper(gm, "shapes,conv-bn-fold", inputs, numbers=False)
    assert [step.to_previous for step in stepper.run()] == [None, None]
    assert stepper.steps[1].status == "applied"


def test_a_graph_that_does_not_run_is_stepped_with_a_note():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.mm, (x, x)))
    stepper = Stepper(torch.fx.GraphModule(nn.Module(), graph), "dce", [torch.randn(2, 3)])
    assert stepper.run()[0].status == "unchanged"
    assert any("does not run on the probe inputs" in note for note in stepper.notes)


def test_a_graph_that_computes_something_else_in_fp64_is_no_judge():
    class Absorbs(torch.nn.Module):
        def forward(self, x):
            return torch.argmax(x + 1e8, 0), torch.sin(x)  # in fp32 all sums are equal, in fp64 they are not

    def wrong(gm):
        for node in gm.graph.nodes:
            if node.target is torch.sin:
                node.target = torch.cos
        gm.recompile()
        return gm

    (step,) = Stepper(symbolic_trace(Absorbs()), [wrong], [torch.linspace(0, 1, 50)]).run()
    assert step.status == "numbers"


class Cancels(nn.Module):
    """Loses digits in fp32: how many, the constant decides."""

    def forward(self, x):
        return (x + 1e4) - 1e4


@pytest.mark.parametrize(("constant", "status"), [(1e4, "unchanged"), (2e5, "numbers"), (1e2, "applied")])
def test_a_result_may_differ_as_long_as_it_is_no_further_from_the_truth(constant, status):
    """In exact arithmetic all of these are x; twenty times the rounding error is no rounding."""

    def changed(gm):
        for node in gm.graph.nodes:
            if node.op == "call_function":
                node.args = (node.args[0], constant)
        gm.recompile()
        return gm

    stepper = Stepper(symbolic_trace(Cancels()), [changed], [torch.linspace(0.1, 1, 101)], tolerances={"float32": 1e-7})
    (step,) = stepper.run()
    assert step.status == status
    assert ("against fp64" in step.to_previous.text) == (status != "unchanged")


def test_a_note_is_told_once_however_many_passes_meet_it():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.mm, (x, x)))
    stepper = Stepper(torch.fx.GraphModule(nn.Module(), graph), "dce,cse,dce", [torch.randn(2, 3)])
    stepper.run()
    assert len(stepper.notes) == len(set(stepper.notes)) > 0


def test_what_a_pass_refused_stands_in_its_last_application():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4)).eval()
    steps = Stepper(symbolic_trace(model), "conv-bn-fold", [torch.randn(1, 3, 8, 8)], single=True).run()
    assert [[(match.applied, match.reason) for match in step.matches] for step in steps] == [
        [(True, None), (False, "no-conv")]
    ]


def test_a_step_whose_graph_does_not_run_leaves_the_one_before():
    gm, inputs = network()
    stepper = Stepper(gm, [breaks_run], inputs)
    (step,) = stepper.run()
    assert step.status == "failed"
    assert step.after is step.before
