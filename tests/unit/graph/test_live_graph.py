"""What is parsed from the printed text equals the live torch.fx graph, node by node."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.node import _get_qualified_name  # type: ignore[attr-defined]

from fxscope.graph.arguments import arg_text, node_refs
from fxscope.graph.parse import parse_graph
from fxscope.graph.records import Graph, Ref, Symbolic, TensorMeta


def live_target(node: torch.fx.Node) -> str:
    """A target as the text shows it."""
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, types.BuiltinFunctionType) and node.target.__module__ == "_operator":
        return f"operator.{node.target.__name__}"
    return _get_qualified_name(node.target)


def same_argument(parsed: Any, live: Any) -> bool:
    if isinstance(live, torch.fx.Node):
        return parsed == Ref(live.name)
    if isinstance(parsed, Symbolic):
        if isinstance(live, float):
            return parsed.text.lstrip("-") in ("inf", "nan")
        text = live.__str__() if not callable(live) else _get_qualified_name(live)
        if live is Ellipsis:
            text = "Ellipsis"
        if isinstance(live, torch.device):
            text = repr(live)
        return parsed.text.replace(" ", "") == str(text).replace(" ", "")
    if isinstance(live, (tuple, list)):
        kinds = type(parsed) is (tuple if isinstance(live, tuple) else list)
        return kinds and len(parsed) == len(live) and all(map(same_argument, parsed, live))
    if isinstance(live, dict):
        return list(parsed) == list(live) and all(same_argument(parsed[key], live[key]) for key in live)
    if isinstance(live, slice):
        ends = ((parsed.start, live.start), (parsed.stop, live.stop), (parsed.step, live.step))
        return all(same_argument(one, other) for one, other in ends)
    return type(parsed) is type(live) and parsed == live


def assert_same(parsed: Graph, live: torch.fx.GraphModule) -> None:
    assert parsed.problems == []
    # The text has all inputs in the signature, wherever they stand among the constants in the graph.
    nodes = sorted(live.graph.nodes, key=lambda node: node.op != "placeholder")
    assert [node.name for node in parsed.nodes] == [node.name for node in nodes]
    for record, node in zip(parsed.nodes, nodes, strict=True):
        assert record.op == node.op, node.format_node()
        target = live_target(node)
        # torch.fx mangles the path of a function that is not reached through `torch`.
        assert record.target in (target, re.sub(r"\W+", "_", target)), node.format_node()
        assert len(record.args) == len(node.args), node.format_node()
        assert list(record.kwargs) == list(node.kwargs)
        for one, other in zip(
            [*record.args, *record.kwargs.values()], [*node.args, *node.kwargs.values()], strict=True
        ):
            assert same_argument(one, other), f"{node.format_node()}: {arg_text(one)}"
        assert set(record.users) == {user.name for user in node.users}
        assert {*node_refs(record)} == {used.name for used in node.all_input_nodes}
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, torch.Tensor):
            assert isinstance(record.meta, TensorMeta)
            assert [str(size) for size in record.meta.shape] == [str(size) for size in value.shape]
            assert [str(step) for step in record.meta.stride or ()] == [str(step) for step in value.stride()]
            assert record.meta.device == str(value.device)
        elif isinstance(value, torch.SymInt):
            assert record.symbol == str(value)
    children = {name: child for name, child in live.named_children() if isinstance(child, torch.fx.GraphModule)}
    assert set(parsed.subgraphs) == set(children)
    for name, child in children.items():
        assert_same(parsed.subgraphs[name], child)


def printed(gm: torch.fx.GraphModule, expanded: bool = False) -> str:
    """As torch's structured trace prints it (torch/_dynamo/output_graph.py, torch/_functorch/_aot_autograd)."""
    return gm.print_readable(print_output=False, include_stride=True, include_device=True, expanded_def=expanded)


def captured(function: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> list[torch.fx.GraphModule]:
    """The Dynamo graphs of one call."""
    found: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        found.append(gm)
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    return found


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y += 1
    y[0] = float("inf")
    y[1:3] = x[1:3]
    y *= x
    y.mul_(2)
    return y @ x.T


def modes(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        a = x.sin()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = x @ x.T
    return a.sum() + b.float().sum()


def literals(x: torch.Tensor) -> Any:
    a = torch.full((2, 3), float("-inf"), dtype=torch.float64, device=torch.device("cpu"))
    b = torch.clamp(x, min=-2, max=None)
    c = x.to(torch.float16, memory_format=torch.contiguous_format)
    d = torch.where(x > 0, x, float("nan"))
    e = 2**x + (-1) ** x.abs().ceil() - x % 3 // 2
    f = x[..., None, ::2, -1]
    g = torch.nn.functional.pad(x, (1, 1), mode="constant", value=1e-05)
    h = torch.max(x, dim=1)
    return a, b, c, d, e, f, g, h.values, h.indices, ~(x > 1), -x, x.shape


def control(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos(), (x,))


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: row.sum() * row)(x)


def attention(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.125)


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda v: torch.relu(v).sin(), x, use_reentrant=False)


def einsum(x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("ab,cb->ac", x, x)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.head = torch.nn.Linear(4, 5)
        self.register_buffer("scale", torch.ones(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean((2, 3))) * self.scale + torch.rand(5)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "in_place": (in_place, (4, 4)),
    "modes": (modes, (4, 4)),
    "literals": (literals, (4, 6)),
    "control": (control, (3, 3)),
    "mapped": (mapped, (3, 4)),
    "attention": (attention, (2, 4, 8, 16)),
    "checkpointed": (checkpointed, (4, 4)),
    "einsum": (einsum, (4, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamo_graphs_equal_the_live_ones(name: str) -> None:
    function, shape = PROGRAMS[name]
    graphs = captured(function, torch.randn(shape))
    assert graphs
    for gm in graphs:
        assert_same(parse_graph(printed(gm), stage="dynamo"), gm)


def test_dynamic_sizes_equal_the_live_ones() -> None:
    graphs = captured(
        lambda x: (x.view(-1), x.reshape(x.shape[0] // 2, -1) * x.shape[1]), torch.randn(4, 6), dynamic=True
    )
    parsed = parse_graph(printed(graphs[0]), stage="dynamo")
    assert_same(parsed, graphs[0])
    assert [node.role for node in parsed.nodes if node.op == "placeholder"].count("symbol") == 2


def test_parameters_and_buffers_keep_their_names_and_modules() -> None:
    graphs = captured(Network(), torch.randn(2, 3, 8, 8))
    parsed = parse_graph(printed(graphs[0]), stage="dynamo")
    assert_same(parsed, graphs[0])
    found = {node.original: (node.role, node.module) for node in parsed.nodes if node.op == "placeholder"}
    assert found["L['self'].layers.0.weight"] == ("parameter", "layers.0")
    assert found["L['self'].layers.1.running_var"] == ("buffer", "layers.1")
    assert found["L['self'].head.bias"] == ("parameter", "head")
    assert found["L['self'].scale"] == ("buffer", "")
    assert found["L['x']"] == ("input", None)
    lines = {node.source.code for node in parsed.nodes if node.source is not None}
    assert any("self.head(self.layers(x)" in line for line in lines)


@pytest.mark.parametrize("expanded", [True, False])
def test_aot_graphs_equal_the_live_ones(expanded: bool) -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    found: list[torch.fx.GraphModule] = []

    def compiler(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        found.append(gm)
        return make_boxed_func(gm.forward)

    torch._dynamo.reset()
    model = Network()
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    torch.compile(model, backend=backend)(torch.randn(2, 3, 8, 8)).sum().backward()
    assert len(found) == 2
    for gm, stage in zip(found, ("forward", "backward"), strict=True):
        assert_same(parse_graph(printed(gm, expanded), stage=stage), gm)


def test_an_exported_program_equals_the_live_one() -> None:
    program = torch.export.export(Network().eval(), (torch.randn(2, 3, 8, 8),))
    parsed = parse_graph(str(program))
    assert [node.name for node in parsed.nodes] == [node.name for node in program.graph.nodes]
    assert parsed.problems == []
    assert {node.role for node in parsed.nodes if node.op == "placeholder"} == {"parameter", "buffer", "input"}
    module = program.module()
    assert_same(parse_graph(printed(module)), module)


def test_a_boxed_graph_equals_the_live_one() -> None:
    boxed = getattr(torch.fx.graph, "_BoxedCodeGen", None)
    if boxed is None:
        pytest.skip("this torch prints no boxed graphs")
    gm = torch.fx.symbolic_trace(lambda x, y: torch.relu(x) + y)
    gm.graph.set_codegen(boxed())
    gm.recompile()
    assert_same(parse_graph(printed(gm)), gm)


def test_compiled_autograd_equals_the_live_graph() -> None:
    found: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule) -> Callable[..., Any]:
        found.append(gm)
        return gm

    from torch._dynamo import compiled_autograd

    torch._dynamo.reset()
    x = torch.randn(4, requires_grad=True)
    loss = (x.sin() * 2).sum()
    with compiled_autograd._enable(backend):
        loss.backward()
    assert found
    parsed = parse_graph(printed(found[0]))
    assert parsed.problems == []
    assert [node.name for node in parsed.nodes] == [node.name for node in found[0].graph.nodes]
