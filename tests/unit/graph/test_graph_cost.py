"""Estimated operations and bytes, against torch's own counter and by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fxscope.graph.cost import graph_cost, node_cost
from fxscope.graph.execute import run
from fxscope.graph.inputs import make_inputs
from fxscope.graph.load import load_graph
from fxscope.graph.parse import parse_graph
from fxscope.graph.rebuild import rebuild
from fxscope.graph.records import Graph
from fxscope.recording.recording import open_recording


def of(args: str, *code: str) -> Graph:
    return parse_graph(
        f"class G(torch.nn.Module):\n    def forward(self, {args}):\n        " + "\n        ".join(code) + "\n"
    )


COUNTED = {
    "linear": ('x: "f32[4, 5, 6]", w: "f32[7, 6]", b: "f32[7]"', 'y: "f32[4, 5, 7]" = torch._C._nn.linear(x, w, b)'),
    "mm": ('x: "f32[4, 6]", w: "f32[6, 7]"', 'y: "f32[4, 7]" = torch.ops.aten.mm.default(x, w)'),
    "addmm": ('b: "f32[7]", x: "f32[4, 6]", w: "f32[6, 7]"', 'y: "f32[4, 7]" = torch.addmm(b, x, w)'),
    "bmm": ('x: "f32[3, 4, 6]", w: "f32[3, 6, 7]"', 'y: "f32[3, 4, 7]" = torch.ops.aten.bmm.default(x, w)'),
    "matmul": ('x: "f32[3, 4, 6]", w: "f32[3, 6, 7]"', 'y: "f32[3, 4, 7]" = x @ w'),
    "conv2d": (
        'x: "f32[2, 4, 9, 9]", w: "f32[8, 2, 3, 3]"',
        'y: "f32[2, 8, 5, 5]" = torch.conv2d(x, w, None, (2, 2), (1, 1), (1, 1), 2)',
    ),
    "convolution": (
        'x: "f32[2, 4, 9, 9]", w: "f32[8, 4, 3, 3]"',
        'y: "f32[2, 8, 9, 9]" = torch.ops.aten.convolution.default(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)',
    ),
    "transposed": (
        'x: "f32[2, 4, 5, 5]", w: "f32[4, 6, 3, 3]"',
        'y: "f32[2, 6, 7, 7]" = torch.ops.aten.convolution.default(x, w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)',
    ),
    "attention": (
        'q: "f32[2, 3, 8, 16]", k: "f32[2, 3, 8, 16]", v: "f32[2, 3, 8, 16]"',
        # Runs as its stand-in, so torch counts the two products in it.
        "a = torch.ops.aten._scaled_dot_product_efficient_attention.default(q, k, v, None, True)",
        'y: "f32[2, 3, 8, 16]" = a[0]',
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_products_cost_what_torch_counts(name: str) -> None:
    args, *code = COUNTED[name]
    graph = of(args, *code, "return (y,)")
    with FlopCounterMode(display=False) as counter:
        run(rebuild(graph), make_inputs(graph))
    cost = graph_cost(graph)
    assert cost.flops == counter.get_total_flops() > 0
    assert cost.unknown == {}


def test_a_convolutions_backward_costs_what_torch_counts() -> None:
    graph = of(
        'g: "f32[2, 8, 9, 9]", x: "f32[2, 4, 9, 9]", w: "f32[8, 4, 3, 3]"',
        "b = torch.ops.aten.convolution_backward.default("
        "g, x, w, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])",
        'y: "f32[2, 4, 9, 9]" = b[0]',
        'z: "f32[8, 4, 3, 3]" = b[1]',
        "return (y, z)",
    )
    with FlopCounterMode(display=False) as counter:
        run(rebuild(graph), make_inputs(graph))
    assert graph_cost(graph).flops == counter.get_total_flops()


def test_bytes_are_what_is_read_and_written() -> None:
    graph = of(
        'x: "f32[4, 8][8, 1]cpu", t: "bf16[100, 8]", i: "i64[3]"',
        'a: "f32[4, 8]" = x + x',
        'v: "f32[32]" = a.view(-1)',
        'e: "bf16[3, 8]" = torch.nn.functional.embedding(i, t)',
        'z: "f32[4, 8]" = torch.ops.aten.full.default([4, 8], 0)',
        "return (a, v, e, z)",
    )
    nodes = graph_cost(graph).nodes
    assert (nodes["a"].flops, nodes["a"].read, nodes["a"].written) == (32, 128, 128)
    assert (nodes["v"].flops, nodes["v"].bytes) == (0, 0)
    assert (nodes["e"].read, nodes["e"].written) == (48, 48)  # the rows it takes, not the table
    assert (nodes["z"].read, nodes["z"].written) == (0, 128)
    assert nodes["a"].intensity == 32 / 256
    assert nodes["v"].intensity is None


def test_what_is_unknown_is_named_and_in_no_sum() -> None:
    graph = of('x: "f32[4]"', 'a: "f32[4]" = torch.ops.mylib.op.default(x)', "b = x + 1", "return (a, b)")
    cost = graph_cost(graph)
    assert cost.unknown == {"torch.ops.mylib.op.default": 1, "operator.add": 1}
    assert cost.nodes["a"].flops is None
    assert (cost.nodes["b"].flops, cost.nodes["b"].written) == (4, None)
    assert cost.flops == 4


def test_symbols_are_given_values() -> None:
    graph = of('s0: "Sym(s0)", x: "f32[s0, 4]"', 'y: "f32[s0, 4]" = torch.relu(x)', "return (y,)")
    assert graph_cost(graph, {"s0": 10}).flops == 40
    assert graph_cost(graph, {"s0": 10}).symbols == {"s0": 10}
    assert node_cost(graph.nodes[2], graph.by_name()).flops is None


@pytest.mark.shared
def test_a_whole_model_costs_what_torch_counts(h200: Path) -> None:
    recording = open_recording(h200 / "gpt2")
    graph = load_graph(recording, recording.find("1/0"))
    with FlopCounterMode(display=False) as counter:
        run(rebuild(graph), make_inputs(graph))
    cost = graph_cost(graph)
    assert cost.unknown == {}
    # The rest is pointwise work, which torch's counter leaves out.
    assert counter.get_total_flops() < cost.flops < 1.05 * counter.get_total_flops()
    assert torch.is_grad_enabled()
