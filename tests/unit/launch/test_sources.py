"""Sources beside nodes: every name that a source's lines speak of is a node whose line is told."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxscope.launch.executors import prepare
from fxscope.targets.provenance import lines_to_nodes

pytest.importorskip("triton")


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.cumsum(torch.sin(x) + 1, 0) * 2)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> torch.fx.GraphModule:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return make_fx(function, tracing_mode="fake")(torch.randn(5, 7))


def test_sources_of_several_islands_say_which_and_name_nodes_that_are_told(graph: torch.fx.GraphModule) -> None:
    found = prepare("triton", graph, [torch.randn(5, 7)])
    assert [one.title for one in found.listings] == [
        "island 0: fused_sin_add", "island 0: host", "island 1: fused_mul_relu", "island 1: host",
    ]  # fmt: skip
    named = {name for one in found.listings for names in one.lines_to_nodes.values() for name in names}
    assert named == {"sin", "add", "mul", "relu"}
    assert list(found.nodes) == ["sin", "add", "cumsum", "mul", "relu"]
    assert found.nodes["relu"] == "relu: f32[5, 7] = aten.relu.default(mul)"


def test_lines_of_inductors_kernels_are_those_of_the_same_nodes(graph: torch.fx.GraphModule) -> None:
    if shutil.which("g++") is None:
        pytest.skip("Inductor needs a C++ compiler")
    (listing,) = prepare("inductor", graph, [torch.randn(5, 7)]).listings
    lines = listing.text.split("\n")
    nodes = {name for names in listing.lines_to_nodes.values() for name in names}
    assert {"sin", "add", "mul", "relu"} <= nodes <= set(prepare("triton", graph, [torch.randn(5, 7)]).nodes)
    first = min(number for number, names in listing.lines_to_nodes.items() if "relu" in names)
    assert "async_compile" in lines[first - 1]
    assert not {1, len(lines)} & set(listing.lines_to_nodes)


def test_a_kernels_text_ends_where_the_next_begins() -> None:
    code = "import a\nk0 = async_compile.cpp('''\n  body(x)\n''')\n\nk1 = async_compile.cpp('''\n''')\ndef call():\n    k1(k0(x))\n    k2.run(x)"
    found = lines_to_nodes(code, {"k0": ("add",), "k1": ("mul",), "k2.run": ("sum",)})
    assert found == {2: ("add",), 3: ("add",), 4: ("add",), 6: ("mul",), 7: ("mul",), 9: ("mul",), 10: ("sum",)}
