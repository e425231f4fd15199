"""Drawings: always valid dot, whatever the graph; what is asked for is drawn."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fxscope.errors import UsageError
from fxscope.graph.load import load_graph
from fxscope.graph.parse import parse_graph
from fxscope.graph.records import Graph
from fxscope.recording.recording import open_recording
from fxscope.report.dot import to_dot
from fxscope.report.dot_style import KINDS, quoted

pydot = pytest.importorskip("pydot")
GRAPHVIZ, NOP = shutil.which("dot"), shutil.which("nop")
HEAD = "class G(torch.nn.Module):\n    def forward(self, x, y):\n        "


def of(*lines: str) -> Graph:
    return parse_graph(HEAD + "\n        ".join(lines) + "\n")


def render(dot: str, form: str = "svg") -> bytes:
    """Graphviz's own verdict: it exits with 1, or warns, on a bad label."""
    assert GRAPHVIZ is not None
    done = subprocess.run([GRAPHVIZ, f"-T{form}"], input=dot.encode(), capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode(errors="replace")[:500]
    return done.stdout


def parsed(dot: str) -> object:
    graphs = pydot.graph_from_dot_data(dot)
    assert graphs is not None
    assert len(graphs) == 1
    return graphs[0]


def drawn_nodes(dot: str) -> int:
    return sum("fillcolor=" in line and not line.startswith("legend") for line in dot.splitlines())


STRING = r'"(?:[^"\\]|\\.)*"'
VALUE = rf"(?:{STRING}|[A-Za-z_][\w]*|-?[\d.]+)"
PAIR = rf"\w+={VALUE}"
STATEMENT = re.compile(rf"digraph \w+ \{{|subgraph \w+ \{{|\}}|{PAIR};|\w+(?: -> \w+)?(?: \[{PAIR}(?:, {PAIR})*\])?;")


def assert_valid(dot: str) -> None:
    """Every line is a statement of the dot grammar's part that we use, braces match, and edges join drawn nodes."""
    depth = 0
    nodes: set[str] = set()
    ends: set[str] = set()
    for line in dot.strip().split("\n"):
        assert STATEMENT.fullmatch(line), line
        depth += line.endswith("{") - (line == "}")
        words = line.split(" ")
        if len(words) > 2 and words[1] == "->":
            ends |= {words[0], words[2].rstrip(";")}
        elif "fillcolor=" in line:
            assert words[0] not in nodes, f"{words[0]} twice"
            nodes.add(words[0])
    assert depth == 0
    assert ends <= nodes


@pytest.mark.shared
def test_every_graph_of_the_logs_gives_valid_dot(log_graphs: list[tuple[str, str, str]]) -> None:
    texts = {text: (key, stage) for key, stage, text in log_graphs}
    drawings: list[str] = []
    for text, (key, stage) in texts.items():
        graph = parse_graph(text, stage=stage)
        if len(graph.nodes) > 1000 and stage != "forward":
            continue  # others of that size would only cost time
        dot = to_dot(graph, sources=True)
        assert_valid(dot)
        labels = set(re.findall(r'label="(\w+)', dot))
        assert all(node.name in labels for node in graph.nodes if node.op != "output"), (key, stage)
        drawings.append(dot)
    smallest = min(drawings, key=len)
    if len(smallest) < 4000:  # pydot's own parser takes seconds for a large one
        parsed(smallest)
    if NOP:  # graphviz's own parser, without a layout
        done = subprocess.run([NOP], input="\n".join(drawings).encode(), capture_output=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"digraph fxscope") == len(drawings)


NASTY = [
    'z = torch.einsum("a,a->a", x, y)',
    "z = torch.einsum('b{}|<a>,\\\\n->\\\"', x, y)",
    "z = f('\\\\', '\\\\\\\\', '\"', '\\n', '<b>', '{|}', '&amp;', '\\\\l\\\\N\\\\G', '%s')",
    "z = f(x, {'k': '}', '{': x})",
    "z = f('\\x00\\x1b[31m\\u202e\\ud800', x)",
    "z = f('" + "long " * 200 + "', x)",
    "z = f('日本語 ümläut 🙂', x)",
]


@pytest.mark.parametrize("line", NASTY)
def test_labels_are_escaped(line: str) -> None:
    source = '# File: we"ird\\path {a|b}.py:1 in f<g>, code: x = \'\\\\N\' + "{|}"'
    graph = of(source, line, "return (z,)")
    assert graph.problems == []
    dot = to_dot(graph, sources=True, highlight={"z": 'label "with" \\ {odd|} <characters>'}, title='a "b" \\N {c|d}')
    parsed(dot)
    assert_valid(dot)
    if GRAPHVIZ:
        svg = render(dot).decode()
        assert "einsum" in svg or "einsum" not in line


@pytest.mark.skipif(GRAPHVIZ is None, reason="graphviz is not installed")
@pytest.mark.parametrize(
    "text", ['a "quoted" word', "back\\slash", "{a|b}", "<html>", "two\nlines", "\\N", "\\l", "tab\there"]
)
def test_a_label_shows_exactly_its_text(text: str) -> None:
    import html
    import re

    svg = render(f"digraph g {{ a [shape=box, label={quoted(text)}]; }}").decode()
    shown = [html.unescape(found) for found in re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)]
    expected = [line.replace("\t", " ") for line in text.split("\n")]
    assert [line.replace("\xa0", " ") for line in shown] == expected


MODEL = """\
class G(torch.nn.Module):
    def forward(self, L_x_: "f32[2, 3][3, 1]cpu", L_self_modules_a_modules_lin_parameters_weight_: "f32[3, 3][3, 1]cpu", \
L_self_modules_b_modules_lin_parameters_weight_: "f32[3, 3][3, 1]cpu"):
        l_x_ = L_x_
        wa = L_self_modules_a_modules_lin_parameters_weight_
        wb = L_self_modules_b_modules_lin_parameters_weight_
        # File: m.py:3 in forward, code: x = self.a(x)
        p: "f32[2, 3][3, 1]cpu" = torch._C._nn.linear(l_x_, wa)
        q: "f32[2, 3][3, 1]cpu" = torch.relu(p)
        r: "f32[2, 3][3, 1]cpu" = torch._C._nn.linear(q, wb)
        s: "f32[2, 3][3, 1]cpu" = torch.sin(r)
        return (s, p)
"""


def test_modules_become_boxes_and_collapse_to_nodes() -> None:
    graph = parse_graph(MODEL, stage="dynamo")
    dot = to_dot(graph)
    assert dot.count("subgraph cluster_n") == 4  # a, a.lin, b, b.lin
    assert 'label="lin"' in dot
    assert "f32[2, 3]" in dot
    assert "subgraph cluster_n" not in to_dot(graph, clusters=False)
    collapsed = to_dot(graph, collapse=1)
    assert 'label="a\\n1 node\\n' in collapsed
    assert 'label="b\\n1 node\\n' in collapsed
    assert "box3d" in collapsed
    assert drawn_nodes(collapsed) == drawn_nodes(dot) - 2  # a and b each stand for a product and its weight
    one = to_dot(graph, collapse={"a.lin"})
    assert 'label="a.lin\\n1 node\\n' in one
    assert drawn_nodes(one) == drawn_nodes(dot) - 1
    for each in (dot, collapsed, one):
        parsed(each)


def test_only_the_neighbourhood_is_drawn() -> None:
    graph = of(*(f"a{index} = {'x' if not index else f'a{index - 1}'} + 1" for index in range(20)), "return (a19, y)")
    dot = to_dot(graph, around=["a10"], hops=2)
    assert [f'label="a{index}\\n' in dot for index in range(7, 14)] == [False, True, True, True, True, True, False]
    assert "(1 input, 0 users not shown)" in dot
    with pytest.raises(UsageError, match="no node a100 in graph 'G'; did you mean a1"):
        to_dot(graph, around=["a100"])


def test_highlights_are_drawn_and_explained() -> None:
    graph = of("a = x + 1", "b = a * y", "return (b,)")
    dot = to_dot(graph, highlight={"a": "first", "b": "second"})
    assert dot.count("penwidth=") == 4  # two nodes, two entries of the legend
    assert 'label="first"' in dot
    assert 'label="first"' not in to_dot(graph, highlight={"a": "first"}, legend=False)


def test_the_legend_explains_what_occurs() -> None:
    dot = to_dot(
        of("a = torch.mm(x, y)", "b = torch.relu(a)", "c = b.view(-1)", "d = c.sum()", "e = f(d)", "return (e,)")
    )
    for kind in ("input", "matmul", "pointwise", "view", "reduction", "call", "output"):
        assert f'label="{KINDS[kind][1]}"' in dot
    assert KINDS["tangent"][1] not in dot


def test_nested_graphs_are_drawn_with_their_callers() -> None:
    graph = parse_graph(
        "class G(torch.nn.Module):\n    def forward(self, x):\n        b0 = self.b0;  b1 = self.b1\n"
        "        c = torch.ops.higher_order.cond(x, b0, b1, (x,))\n        return c\n\n"
        "    class b0(torch.nn.Module):\n        def forward(self, x):\n            s = x.sin()\n            return (s,)\n\n"
        "    class b1(torch.nn.Module):\n        def forward(self, x):\n            return (x,)\n"
    )
    dot = to_dot(graph)
    parsed(dot)
    assert dot.count('label="calls"') == 2
    assert dot.count('style="dashed,rounded"') == 2
    identifiers = [line.split(" [")[0] for line in dot.splitlines() if "fillcolor=" in line]
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.parametrize("lines", [("return ()",), ("return x",), ("return (x, x)",)])
def test_degenerate_graphs(lines: tuple[str, ...]) -> None:
    parsed(to_dot(of(*lines)))
    parsed(to_dot(Graph()))


@pytest.mark.shared
@pytest.mark.skipif(GRAPHVIZ is None, reason="graphviz is not installed")
def test_a_real_graph_renders(h200: Path) -> None:
    recording = open_recording(h200 / "gpt2")
    graph = load_graph(recording, recording.find("1/0"))
    svg = render(to_dot(graph, collapse=3, sources=True)).decode()
    assert "transformer.h.3" in svg
    assert render(to_dot(graph, around=["tanh"]), "png").startswith(b"\x89PNG")
