"""Rebuilt graphs: those of the shared logs run on the CPU, those of live programs give the live outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fxscope.errors import MissingError, UsageError
from fxscope.graph.execute import run
from fxscope.graph.inputs import backward_inputs, make_inputs
from fxscope.graph.load import load_graph, recorded_symbols
from fxscope.graph.parse import parse_graph
from fxscope.graph.rebuild import rebuild, resolve
from fxscope.graph.records import Graph, Ref, TensorMeta
from fxscope.recording.recording import open_recording

GRAPH = "class GraphModule(torch.nn.Module):\n    def forward(self, {args}):\n        {body}\n"


def graph_of(args: str, *lines: str) -> Graph:
    return parse_graph(GRAPH.format(args=args, body="\n        ".join(lines)))


def outputs_match_the_log(graph: Graph, outputs: tuple[Any, ...], symbols: dict[str, int]) -> None:
    """Shapes and dtypes of what came out are those that the log says."""
    from fxscope.graph.ranges import sizes
    from fxscope.graph.symbols import symbol_values
    from fxscope.graph.tensors import torch_dtype

    described = graph.by_name()
    result = graph.nodes[-1].args[0]
    values = symbol_values(graph, symbols)
    checked = 0
    for arg, value in zip(result if isinstance(result, (list, tuple)) else [result], outputs, strict=True):
        meta = described[arg.node].meta if isinstance(arg, Ref) else None
        if isinstance(meta, TensorMeta):
            assert list(value.shape) == sizes(meta.shape, values), arg
            assert value.dtype == torch_dtype(meta.dtype), arg
            assert value.device.type == "cpu"
            checked += 1
    assert checked


@pytest.mark.shared
@pytest.mark.parametrize("name", ["gpt2", pytest.param("resnet50", marks=pytest.mark.slow), "bert_amp"])
def test_graphs_of_a_cuda_log_run_on_the_cpu(h200: Path, name: str) -> None:
    recording = open_recording(h200 / name)
    ran = 0
    for compile_ in recording.compiles:
        stages = [
            text.stage for text in compile_.graphs if text.stage in ("dynamo", "joint", "forward", "forward.post_grad")
        ]
        symbols = recorded_symbols(recording, compile_)
        if "joint" in stages and name == "resnet50" and compile_.id != "0/0":
            stages.remove("joint")  # two of them would only cost time
        for stage in stages:
            graph = load_graph(recording, compile_, stage)
            gm = rebuild(graph, symbols=symbols)
            outputs = run(gm, make_inputs(graph, symbols=symbols))
            outputs_match_the_log(graph, outputs, symbols)
            ran += 1
            if stage == "forward":
                backward = load_graph(recording, compile_, "backward")
                inputs = backward_inputs(graph, outputs, backward, symbols=symbols)
                gradients = run(rebuild(backward, symbols=symbols), inputs)
                outputs_match_the_log(backward, gradients, symbols)
                wanted = [value for value in gradients if isinstance(value, torch.Tensor) and value.is_floating_point()]
                assert all(torch.isfinite(value).all() for value in wanted)
                ran += 1
    assert ran >= (3 if name == "resnet50" else 8)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.layer(self.embed(ids)).masked_fill(mask[..., None], 0.0)
        x[:, 0] += 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.mT
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (self.norm(y.float() + x.mean()),))


def capture(function: Callable[..., Any], *args: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    found: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        copies = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        found.append((gm, copies))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*args)
    return found[0]


def test_a_rebuilt_dynamo_graph_gives_the_live_outputs() -> None:
    torch.manual_seed(1)
    live, inputs = capture(Network(), torch.randint(0, 11, (3, 6)), torch.rand(3, 6) < 0.3)
    text = live.print_readable(print_output=False, include_stride=True, include_device=True)
    gm = rebuild(parse_graph(text, stage="dynamo"))
    # Twice: running a graph must not change its inputs, running buffers of the batch norm among them.
    for _ in range(2):
        expected = live(*(value.clone() if isinstance(value, torch.Tensor) else value for value in inputs))
        for one, other in zip(run(gm, inputs), expected, strict=True):
            assert torch.equal(one, other)


def test_a_rebuilt_aot_graph_gives_the_live_outputs() -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    calls: list[tuple[torch.fx.GraphModule, list[Any], Any]] = []

    def compiler(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
            output = gm(*args)
            calls.append((gm, copies, output))
            return output

        return make_boxed_func(call)

    torch._dynamo.reset()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    )
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    torch.compile(model, backend=backend)(torch.randn(2, 3, 8, 8, requires_grad=True)).square().sum().backward()
    assert len(calls) == 2
    for gm, inputs, expected in calls:
        text = gm.print_readable(print_output=False, include_stride=True, include_device=True)
        outputs = run(rebuild(parse_graph(text)), inputs)
        for one, other in zip(outputs, expected, strict=True):
            assert (one is None and other is None) or torch.equal(one, other)


def test_nodes_keep_record_source_and_name() -> None:
    graph = parse_graph(
        "class G(torch.nn.Module):\n    def forward(self, x):\n"
        "        # File: /a/b.py:3 in f, code: y = x + 1\n        y = x + 1\n        return (y,)\n"
    )
    gm = rebuild(graph)
    node = next(node for node in gm.graph.nodes if node.name == "y")
    assert node.meta["fxscope"] is graph.nodes[1]
    assert node.meta["stack_trace"] == '  File "/a/b.py", line 3, in f\n    y = x + 1'
    assert "# File: /a/b.py:3 in f, code: y = x + 1" in gm.print_readable(print_output=False)


def test_devices_are_mapped() -> None:
    graph = graph_of(
        'x: "f32[2][1]cuda:1"',
        "a = torch.zeros(2, device = device(type='cuda', index=1));  b = x.to('cuda:1');  c = x.cuda()",
        "d = torch.ops.aten.full.default([2], 1, device = device(type='cpu'))",
        "a1 = a + b",
        "a2 = a1 + c",
        "e = a2 + d",
        "_enter_autocast = torch.amp.autocast_mode._enter_autocast('cuda', torch.bfloat16, True, True)",
        "row = e[None]",
        "f = torch.nn.functional.linear(row, row)",
        "g = torch.amp.autocast_mode._exit_autocast(_enter_autocast)",
        "return (e, f)",
    )
    outputs = run(rebuild(graph), make_inputs(graph))
    assert {value.device.type for value in outputs} == {"cpu"}
    assert outputs[1].dtype == torch.bfloat16


def test_on_another_device_what_was_on_the_cpu_stays() -> None:
    graph = graph_of(
        'x: "f32[2][1]cuda:0", y: "f32[][]cpu"',
        "a = torch.zeros(2, device = device(type='cuda', index=0));  b = torch.zeros((), device = device(type='cpu'))",
        "return (a, b)",
    )
    gm = rebuild(graph, device="meta")
    assert [value.device.type for value in gm(*make_inputs(graph, device="meta"))] == ["meta", "cpu"]
    assert [value.device.type for value in make_inputs(graph, device="meta")] == ["meta", "cpu"]


def test_symbols_get_values() -> None:
    graph = graph_of(
        's0: "Sym(s0)", x: "f32[s0, 2*s0 + 1][2*s0 + 1, 1]cpu", s1: "Sym(s0*4)"',
        "y = x.reshape(-1)",
        "z = torch.ops.aten.full.default([s0, 3*s0], 1)",
        "return (y, z, s1)",
    )
    inputs = make_inputs(graph, symbols={"s0": 5})
    assert inputs[0] == 5
    assert inputs[1].shape == (5, 11)
    assert inputs[2] == 20
    y, z, s1 = run(rebuild(graph, symbols={"s0": 5}), inputs)
    assert (y.shape, z.shape, s1) == ((55,), (5, 15), 20)
    assert make_inputs(graph)[0] == 8


def test_constants_are_given_or_made_up() -> None:
    graph = graph_of("x", '_tensor_constant0: "f32[3][1]cpu" = self.a.b0', "y = x + _tensor_constant0", "return (y,)")
    gm = rebuild(graph, constants={"a.b0": torch.tensor([1.0, 2.0, 3.0])})
    assert torch.equal(gm(torch.zeros(3))[0], torch.tensor([1.0, 2.0, 3.0]))
    made = rebuild(graph)
    assert "made up" in made.meta["fxscope.notes"][0]
    assert torch.equal(made(torch.zeros(3))[0], rebuild(graph)(torch.zeros(3))[0])
    undescribed = graph_of("x", "c = self.c", "return (x, c)")
    with pytest.raises(UsageError, match=r"constant c; record with --save-tensors"):
        rebuild(undescribed)


def test_functions_that_only_steer_torch_are_left_out() -> None:
    graph = graph_of(
        "x", "a = torch._C._log_api_usage_once('python.nn_module');  a = None", "y = x + 1", "return (y, a)"
    )
    gm = rebuild(graph)
    assert gm(torch.ones(1))[1] is None
    assert "left out" in gm.meta["fxscope.notes"][0]


def test_mangled_functions_are_found() -> None:
    graph = graph_of("x", "a = math_sqrt(4)", "b = operator_floordiv_1(x, 2)", "c = max(1, 3)", "return (a, b, c)")
    assert [
        value if isinstance(value, (int, float)) else value.item() for value in run(rebuild(graph), [torch.tensor(5)])
    ] == [
        2.0,
        2,
        3,
    ]


def test_an_operator_that_this_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from fxscope.graph import callables

    groups = {**callables._groups(), "torch.ops.aten": frozenset({"from_the_future", "add"})}
    monkeypatch.setattr(callables, "_groups", lambda: groups)
    with pytest.raises(MissingError, match=r"no torch\.ops\.aten\.from_the_future\.default"):
        resolve("torch.ops.aten.from_the_future.default")
    with pytest.raises(MissingError, match=r"no torch\.ops\.aten\.add\.nonsense"):
        resolve("torch.ops.aten.add.nonsense")


def test_a_graph_with_problems_is_not_rebuilt() -> None:
    with pytest.raises(UsageError, match="is no Python"):
        rebuild(graph_of("x", "y = torch.relu(x, <object at 0x7f>)", "return (y,)"))


def test_a_module_that_the_log_lacks_is_named() -> None:
    with pytest.raises(UsageError, match="calls the module submod_0, which is not in the log"):
        rebuild(graph_of("x", "y = self.submod_0(x)", "return (y,)"))


def recurrent(x: torch.Tensor) -> torch.Tensor:
    weights = [torch.ones(8, 3), torch.ones(8, 2), torch.ones(8), torch.ones(8)]
    state = (torch.zeros(1, 4, 2), torch.zeros(1, 4, 2))
    return torch.lstm(x, state, weights, True, 1, 0.0, False, False, False)[0]


def several(x: torch.Tensor) -> torch.Tensor:
    parts = torch.split(x, [1, 3], dim=0)
    grid = torch.meshgrid(x[0, 0], x[0, 1], indexing="ij")[0]
    pooled = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    norm = torch.linalg.vector_norm(x) + torch.norm(x) + torch.special.expit(x).sum() + torch.fft.rfft(x).abs().sum()
    return (
        parts[1].sum()
        + torch.einsum("abc->ac", x).sum()
        + grid.sum()
        + pooled[0].sum()
        + norm
        + torch.cdist(x, x).sum()
    )


@pytest.mark.parametrize("function", [recurrent, several])
def test_functions_that_torch_prints_by_their_python_module(function: Callable[..., Any]) -> None:
    live, inputs = capture(function, torch.rand(4, 4, 3))
    text = live.print_readable(print_output=False, include_stride=True, include_device=True)
    outputs = run(rebuild(parse_graph(text)), inputs)
    torch.testing.assert_close(outputs[0], live(*inputs)[0])
