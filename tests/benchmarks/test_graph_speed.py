"""Speed of graph work on large graphs: ratios against a peer in the same run, and growth with size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from fxscope.graph.diff import diff_graphs
from fxscope.graph.gutter import gutter
from fxscope.graph.parse import parse_graph
from fxscope.graph.records import Graph
from fxscope.report.dot import to_dot

pytestmark = pytest.mark.bench


def text_of(nodes: int, layers: int | None = None, start: int = 0) -> str:
    """A printed graph of residual blocks: products, views, pointwise, long-lived inputs, source lines."""
    blocks = nodes // 8
    weights = ", ".join(
        f'L_self_modules_layers_modules_{block}_parameters_w_: "f32[64, 64][64, 1]cuda:0"'
        for block in range(min(blocks, 200))
    )
    lines = [f'class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: "f32[8, 64][64, 1]cuda:0", {weights}):']
    lines.append("        h0 = L_x_")
    meta = '"f32[8, 64][64, 1]cuda:0"'
    number = start
    hidden = "h0"
    for block in range(blocks):
        weight = f"L_self_modules_layers_modules_{block % 200}_parameters_w_"
        names = [f"v{number + offset}" for offset in range(8)]
        number += 8
        a, b, c, d, e, f, g, h = names
        lines += [
            f"        # File: /home/me/model.py:{block % 97} in forward, code: x = x + self.block{block % 97}(x)",
            f"        {a}: {meta} = torch._C._nn.linear({hidden}, {weight})",
            f"        {b}: {meta} = {a}.view(8, 64);  {a} = None",
            f"        {c}: {meta} = torch.nn.functional.relu({b}, inplace = False)",
            f"        {d}: {meta} = {c} * 0.5",
            f"        {e}: {meta} = torch.tanh({b});  {b} = None",
            f"        {f}: {meta} = {d} + {e};  {d} = {e} = None",
            f"        {g}: {meta} = torch.nn.functional.dropout({f}, 0.1, True, False)",
            f"        {h}: {meta} = {hidden} + {g};  {hidden} = {g} = None",
        ]
        hidden = h
    return "\n".join([*lines, f"        return ({hidden},)", ""])


def seconds(work: Callable[[], Any]) -> float:
    begin = time.process_time()  # others on the machine must not count
    work()
    return time.process_time() - begin


def interleaved(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int = 5) -> float:
    """Median of our time over their time, taken one after the other."""
    return statistics.median(seconds(ours) / seconds(theirs) for _ in range(rounds))


def live(nodes: int) -> Any:
    """The same graph for torch.fx.passes.graph_drawer."""
    import torch

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for _ in range(nodes // 4):
        y = graph.call_function(torch.relu, (x,))
        z = graph.call_method("view", (y, 8, 64))
        y = graph.call_function(torch.add, (z, 0.5))
        x = graph.call_function(torch.add, (x, y))
    graph.output(x)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_dot_of_10000_nodes_is_no_slower_than_fx_graph_drawer() -> None:
    from torch.fx.passes.graph_drawer import FxGraphDrawer

    gm = live(10_000)
    graph = parse_graph(gm.print_readable(print_output=False))
    assert len(graph.nodes) == len(gm.graph.nodes) >= 10_000
    ratio = interleaved(lambda: to_dot(graph), lambda: FxGraphDrawer(gm, "g").get_dot_graph().to_string())
    print(f"\ndot of 10,000 nodes: {ratio:.2f} of FxGraphDrawer's time")
    assert ratio <= 1.0


def test_diff_of_10000_nodes_costs_about_what_parsing_them_costs() -> None:
    """Against parsing, which is one pass of Python's own C parser and of ours: the diff is a few such passes, so linear."""
    texts = text_of(10_000), text_of(10_000, start=5).replace("0.5", "0.25", 3)
    a, b = parse_graph(texts[0]), parse_graph(texts[1])
    assert len(a.nodes) > 10_000
    took = statistics.median(seconds(lambda: diff_graphs(a, b)) for _ in range(3))
    diff = diff_graphs(a, b)
    assert len(diff.changed) == 3
    ratio = interleaved(lambda: diff_graphs(a, b), lambda: [parse_graph(text) for text in texts], 3)
    print(f"\ndiff of two graphs of 10,000 nodes: {took:.2f} s, {ratio:.2f} of parsing both")
    assert ratio < 1.5


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("parse", lambda text, graph: parse_graph(text)),
        ("gutter", lambda text, graph: gutter(graph)),
        ("dot", lambda text, graph: to_dot(graph)),
        ("diff", lambda text, graph: diff_graphs(graph, parse_graph(text))),
    ],
)
def test_ten_times_the_nodes_cost_about_ten_times_the_time(name: str, work: Callable[[str, Graph], Any]) -> None:
    small, large = text_of(4_000), text_of(40_000)
    graphs = parse_graph(small), parse_graph(large)
    ratio = interleaved(lambda: work(large, graphs[1]), lambda: work(small, graphs[0]), 3)
    print(f"\n{name}: {ratio:.1f} times for 10 times the nodes")
    assert ratio < 25


def test_100000_nodes_are_drawn() -> None:
    graph = parse_graph(text_of(100_000))
    assert len(graph.nodes) > 100_000
    took = seconds(lambda: to_dot(graph))
    print(f"\ndot of 100,000 nodes: {took:.1f} s")
    assert to_dot(graph, collapse=2, legend=False).count("box3d") == 200
