"""The listing of a graph: gutter, table, def-use steps, module groups, histogram."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxscope.graph.gutter import gutter
from fxscope.graph.histogram import histogram, short_target
from fxscope.graph.load import load_graph
from fxscope.graph.modules import adopt_originals, places
from fxscope.graph.navigate import neighbourhood
from fxscope.graph.parse import link, parse_graph
from fxscope.graph.records import Graph, Node, Ref
from fxscope.graph.table import lines, rows
from fxscope.recording.recording import open_recording

HEAD = "class G(torch.nn.Module):\n    def forward(self, x, y):\n        "


def of(*code: str) -> Graph:
    return parse_graph(HEAD + "\n        ".join(code) + "\n")


DIAMOND = of("a = x + 1", "b = a.sin()", "c = a.cos()", "d = b * c", "e = d + y", "return (e, a)")


def test_the_gutter_of_a_diamond() -> None:
    assert gutter(DIAMOND) == [
        "○",
        "○",
        "●",
        "├─●",
        "├─│─●",
        "│ ●─╯",
        "│ ●",
        "●─╯",
    ]


def test_a_filtered_gutter_leaves_out_edges_to_hidden_nodes() -> None:
    names = ("a", "d", "e")
    assert gutter(DIAMOND, nodes=[node for node in DIAMOND.nodes if node.name in names]) == ["●", "●", "●"]


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    nodes = [Node(name="n0", op="call_function", target="f")]
    for index in range(1, draw(st.integers(1, 25))):
        reads = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True))
        nodes.append(
            Node(name=f"n{index}", op="call_function", target="f", args=tuple(Ref(f"n{read}") for read in reads))
        )
    return link(Graph(nodes=nodes))


@settings(max_examples=80, derandomize=True)
@given(chains(), st.integers(1, 6))
def test_every_row_shows_its_node_once_and_is_bounded(graph: Graph, lanes: int) -> None:
    cells = gutter(graph, lanes)
    assert len(cells) == len(graph.nodes)
    for node, cell in zip(graph.nodes, cells, strict=True):
        assert cell.count("●") == 1
        assert len(cell) <= 2 * lanes + 5
        # What a row joins is what the node reads, drawn or counted.
        ends = sum(cell.count(mark) for mark in "├┤┼╰╯┴")
        hidden = int(cell.partition("+")[2] or 0)
        straight = bool(node.args) and ends + hidden == len(node.args) - 1  # one operand ends in the node's own lane
        assert straight or ends + hidden == len(node.args), cell


def test_rows_of_a_table() -> None:
    graph = parse_graph(
        'class G(torch.nn.Module):\n    def forward(self, L_x_: "f32[2, s0][s0, 1]cuda:0", s0: "Sym(s0)"):\n        l_x_ = L_x_\n'
        "        # File: a/b.py:7 in f, code: y = x.view(-1)\n"
        '        y: "f32[2*s0][1]cuda:0" = l_x_.view(-1)\n        z = torch.nn.functional.relu(y, inplace = True)\n        return (z,)\n'
    )
    listed = rows(graph)
    assert [(row.name, row.target, row.args, row.shape, row.users, row.source) for row in listed] == [
        ("l_x_", "L_x_", "", "f32[2, s0]", 1, ""),
        ("s0", "s0", "", "Sym(s0)", 0, ""),
        ("y", ".view", "l_x_, -1", "f32[2*s0]", 1, "b.py:7"),
        ("z", "F.relu", "y, inplace = True", "", 1, "b.py:7"),
        ("output", "output", "(z,)", "", 0, ""),
    ]
    assert listed[0].device == "cuda:0"
    text = list(lines(graph))
    assert len(text) == len(listed) + 1
    assert text[0].split() == ["name", "target", "shape", "users", "source"]
    assert "b.py:7" in text[3]
    assert list(lines(Graph())) == []


def test_lines_are_as_wide_as_what_is_in_them() -> None:
    graph = of(
        "pair = torch.max(x, 0)",
        'longest_name: "f32[4][1]cpu" = pair[0]',
        "return longest_name",
    )
    graph.nodes[2].meta = (graph.nodes[3].meta, None)
    assert list(lines(graph)) == [
        "   name          target   shape        users  source",
        "○  x             input                     1",
        "○  y             input                     0",
        "●  pair          max      (f32[4], ?)      1",
        "●  longest_name  getitem  f32[4]           1",
        "●  output        output                    0",
    ]
    only = Graph(nodes=[Node(name="x", op="placeholder", target="x", role="parameter")])
    assert list(lines(only)) == ["   name  target  shape  users  source", "○  x     parameter             0"]


def test_the_neighbourhood_follows_edges_in_both_directions() -> None:
    assert neighbourhood(DIAMOND, ["d"], 0) == ["d"]
    assert neighbourhood(DIAMOND, ["d"], 1) == ["b", "c", "d", "e"]
    assert neighbourhood(DIAMOND, ["x"], 2) == ["x", "a", "b", "c", "output"]
    assert neighbourhood(DIAMOND, ["e", "x"], 1) == ["x", "y", "a", "d", "e", "output"]
    assert neighbourhood(DIAMOND, ["y"], 1) == ["y", "e"]


@pytest.mark.shared
def test_modules_of_a_real_graph(h200: Path) -> None:
    recording = open_recording(h200 / "gpt2")
    graph = load_graph(recording, recording.find("1/0"))
    where = places(graph)
    paths = [where[node.name].path for node in graph.nodes]
    blocks = [[path for path in paths if f"{path}.".startswith(f"transformer.h.{layer}.")] for layer in range(4)]
    assert [len(block) for block in blocks] == [54] * 4  # four equal blocks
    assert list(dict.fromkeys(path.split(".")[3] for path in blocks[0] if path.count(".") > 2)) == [
        "ln_1",
        "attn",
        "ln_2",
        "mlp",
    ]
    by_line = [node for node in graph.nodes if node.source and node.source.file.endswith("modeling_gpt2.py")]
    by_line = [node for node in by_line if node.source.line == 273]
    assert [where[node.name].path for node in by_line] == [f"transformer.h.{layer}.ln_1" for layer in range(4)]
    attention = [node for node in graph.nodes if node.target == "torch._C._nn.scaled_dot_product_attention"]
    assert [where[node.name].path for node in attention] == [f"transformer.h.{layer}.attn" for layer in range(4)]
    assert not any(where[node.name].known for node in attention)  # it reads no parameter: inferred from its neighbours


@pytest.mark.shared
def test_aot_inputs_take_the_names_of_the_program(h200: Path) -> None:
    recording = open_recording(h200 / "resnet50")
    forward = load_graph(recording, recording.find("0/0"), "forward")
    weights = [node for node in forward.nodes if node.op == "placeholder" and node.role == "parameter"]
    assert "L['self'].layer1.0.conv1.weight" in {node.original for node in weights}
    convolutions = [node for node in forward.nodes if node.target == "torch.ops.aten.convolution.default"]
    assert places(forward)[convolutions[1].name].path == "layer1.0.conv1"


def test_older_aot_inputs_are_numbered_from_one_or_zero() -> None:
    dynamo = parse_graph(
        "class G(torch.nn.Module):\n    def forward(self, L_self_modules_lin_parameters_weight_, L_x_):\n"
        "        w = L_self_modules_lin_parameters_weight_\n        x = L_x_\n        return (w, x)\n"
    )
    for names in ("primals_1, primals_2", "arg0_1, arg1_1"):
        aot = parse_graph(f"class G(torch.nn.Module):\n    def forward(self, {names}):\n        return ()\n")
        adopted = adopt_originals(aot, dynamo)
        assert [node.original for node in adopted.nodes[:2]] == ["L['self'].lin.weight", "L['x']"]
        assert [node.role for node in adopted.nodes[:2]] == ["parameter", "input"]


def test_histogram_counts_nested_graphs_too() -> None:
    graph = parse_graph(
        "class G(torch.nn.Module):\n    def forward(self, x):\n        b0 = self.b0\n        a = x.sin()\n"
        "        c = torch.ops.higher_order.cond(x, b0, b0, (x,))\n        return (c,)\n\n"
        "    class b0(torch.nn.Module):\n        def forward(self, x):\n            s = x.sin();  t = x + 1\n            return (s, t)\n"
    )
    assert histogram(graph) == [(".sin", 2), ("operator.add", 1), ("torch.ops.higher_order.cond", 1)]
    assert histogram(graph, nested=False) == [(".sin", 1), ("torch.ops.higher_order.cond", 1)]
    assert [
        short_target(target)
        for target in ("torch.ops.aten.add.Tensor", "torch.nn.functional.relu", "operator.add", "f")
    ] == [
        "aten.add.Tensor",
        "F.relu",
        "add",
        "f",
    ]
