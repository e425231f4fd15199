"""Lowering to ATen: functional, same signature, same values, the user's lines kept; op-wise decomposition; analysis."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import symbolic_trace

from fxscope.errors import UsageError
from fxscope.passes.analysis import categorise, node_bytes, node_flops
from fxscope.passes.application import Context
from fxscope.passes.aten import to_aten
from fxscope.passes.decompose import became, decompose
from fxscope.passes.fakes import fake_mismatches, propagate_named
from fxscope.passes.fx_records import records, source_site
from fxscope.passes.module import clone, is_aten
from fxscope.passes.order import is_compute, written


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.tied = self.conv

    def forward(self, x):
        y = self.norm(self.conv(x)).flatten(1)
        y.add_(1)
        return F.gelu(y), {"y": y, "none": None}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("choice", ["none", "core", "inductor", "prims"])
def test_lowered_graphs_compute_the_same_and_write_the_same_buffers(choice, training):
    torch.manual_seed(0)
    model = Model().train(training)
    x = torch.randn(2, 3, 8, 8)
    gm = to_aten(symbolic_trace(model), [x], decompositions=choice)
    assert is_aten(gm)
    for node in gm.graph.nodes:  # pure, but for one copy to each written buffer
        assert not is_compute(node) or not written(node) or node.target is torch.ops.aten.copy_.default
    state = {name: value.clone() for name, value in model.state_dict().items()}
    want = model(x)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    got = gm(x)
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[1]["y"], want[1]["y"], rtol=1e-5, atol=1e-5)
    assert got[1]["none"] is None
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, after[name])
    assert gm.get_parameter("conv.weight") is model.conv.weight  # the same objects under their old names


def test_an_input_that_is_written_is_written_once_at_the_end():
    def forward(x):
        x.mul_(2)
        x.masked_fill_(x > 5, 1)
        return x.sum()

    gm = to_aten(symbolic_trace(forward), [torch.ones(3)])
    x = torch.tensor([3.0, 1.0, 2.0])
    assert gm(x).item() == 7
    assert x.tolist() == [1.0, 2.0, 4.0]
    assert sum(node.target is torch.ops.aten.copy_.default for node in gm.graph.nodes) == 1


def test_dynamic_sizes_stay_symbolic():
    gm = to_aten(symbolic_trace(lambda x: x.sin().view(-1)), [torch.randn(3, 4)], dynamic=True)
    assert gm(torch.randn(5, 7)).shape == (35,)


def test_what_cannot_be_traced_is_one_line():
    with pytest.raises(UsageError, match="takes 1 input; 2 were given"):
        to_aten(symbolic_trace(lambda x: x), [torch.ones(1), torch.ones(1)])
    with pytest.raises(UsageError, match="cannot be lowered to ATen") as caught:
        to_aten(symbolic_trace(lambda x: torch.mm(x, x)), [torch.ones(2, 3)])
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no table of decompositions 'cor'"):
        to_aten(symbolic_trace(lambda x: x), [torch.ones(1)], decompositions="cor")


def test_lines_survive_lowering():
    kept = []

    def keep(gm, inputs):
        kept.append((gm, inputs))
        return gm

    def forward(x):
        return F.gelu(x) + 1  # the line

    torch._dynamo.reset()
    torch.compile(forward, backend=keep)(torch.randn(3))
    gm, inputs = kept[0]
    line = forward.__code__.co_firstlineno + 1
    made = to_aten(gm, inputs, decompositions="inductor")
    sites = {source_site(node) for node in made.graph.nodes if is_compute(node)}
    assert sites == {f"test_lowering.py:{line}"}
    parts = became(gm, made)
    gelu = next(node for node in parts if "gelu" in node.name)
    assert torch.ops.aten.erf.default in [node.target for node in parts[gelu]]
    found = records(made)
    assert [node.source.line for node in found.nodes if node.op == "call_function"] == [line] * len(parts[gelu]) + [
        line
    ]
    assert found.nodes[1].meta.dtype == "f32"


def test_decompose_op_by_op():
    def forward(x):
        return F.silu(F.gelu(x)).add_(1)

    gm = symbolic_trace(forward)
    x = torch.randn(5)
    context = Context(inputs=[x])
    context.options["argument"] = "aten.gelu"
    made = decompose(clone(gm), context)
    targets = [node.target for node in made.graph.nodes]
    assert torch.ops.aten.erf.default in targets
    assert torch.ops.aten.silu.default in targets
    torch.testing.assert_close(made(x), forward(x))
    assert any("no longer in place" in match.text for match in context.matches)
    for bad in ("aten.nothing", "core,"):
        context.options["argument"] = bad
        with pytest.raises(UsageError, match="neither a table"):
            decompose(clone(gm), context)


def test_bytes_and_flops_of_nodes():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10), nn.Softmax(-1))
    x = torch.randn(2, 3, 8, 8)
    modules = symbolic_trace(model)
    assert propagate_named(modules, [x]) == []
    modules = [node for node in modules.graph.nodes if is_compute(node)]
    aten = {node.name: node for node in to_aten(symbolic_trace(model), [x]).graph.nodes if is_compute(node)}
    conv, linear = 2 * 2 * 8 * 36 * 27, 2 * 2 * 288 * 10
    assert node_flops(modules[0]) == node_flops(next(iter(aten.values()))) == conv
    assert node_flops(modules[3]) == node_flops(aten["addmm"]) == linear
    assert node_bytes(modules[3]) == (4 * (2 * 288 + 288 * 10 + 10), 4 * 2 * 10)
    assert (node_bytes(aten["relu"]), node_flops(aten["relu"])) == ((2304, 2304), 576)
    assert node_bytes(aten["view"]) == (0, 0)
    assert list(map(categorise, modules)) == ["convolution", "pointwise", "other", "matmul", "reduction"]
    assert categorise(aten["view"]) == "view"


def test_attention_on_torch_level_has_flops():
    gm = symbolic_trace(lambda q: F.scaled_dot_product_attention(q, q, q))
    assert propagate_named(gm, [torch.randn(1, 2, 8, 16)]) == []
    node = next(node for node in gm.graph.nodes if is_compute(node))
    assert node_flops(node) == 2 * 2 * 2 * 8 * 8 * 16


@torch.library.custom_op("fxscope_test::nofake", mutates_args=())
def nofake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("fxscope_test::liar", mutates_args=())
def liar(x: torch.Tensor) -> torch.Tensor:
    return x.double().clone()


@liar.register_fake
def _(x):
    return torch.empty_like(x)


def test_custom_ops_without_or_with_lying_fake_kernels_are_named():
    def graph(op):
        made = torch.fx.Graph()
        made.output(made.call_function(op, (made.placeholder("x"),)))
        return torch.fx.GraphModule(nn.Module(), made)

    (problem,) = propagate_named(graph(torch.ops.fxscope_test.nofake.default), [torch.ones(2)])
    assert problem.startswith("nofake_default (torch.ops.fxscope_test.nofake.default) cannot run on fake tensors")
    gm = graph(torch.ops.fxscope_test.liar.default)
    assert propagate_named(gm, [torch.ones(2)]) == []
    assert fake_mismatches(gm, [torch.ones(2)]) == [
        "liar_default (torch.ops.fxscope_test.liar.default): the fake kernel says dtype torch.float32, the real one torch.float64"
    ]
