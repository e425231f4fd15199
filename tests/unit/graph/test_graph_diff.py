"""Structural diff: its laws on random graphs, and what it says of real ones."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxscope.graph.alignment import align
from fxscope.graph.arguments import node_refs, rename
from fxscope.graph.diff import apply_diff, diff_graphs
from fxscope.graph.load import load_graph
from fxscope.graph.modules import adopt_originals
from fxscope.graph.parse import link, parse_graph
from fxscope.graph.records import Graph, Node, Ref, TensorMeta
from fxscope.recording.recording import open_recording
from fxscope.source import SourceLine

TARGETS = ["torch.relu", "torch.add", "operator.add", "torch.ops.aten.mul.Tensor", "torch.sin"]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A random graph in which every argument names an earlier node."""
    inputs = draw(st.integers(1, 4))
    nodes = [
        Node(
            name=f"p{index}",
            op="placeholder",
            target=f"L_p{index}_",
            role="input",
            meta=TensorMeta(dtype="f32", shape=(draw(st.integers(1, 3)), 4)),
        )
        for index in range(inputs)
    ]
    for index in range(draw(st.integers(0, 14))):
        names = [node.name for node in nodes]
        args = [Ref(draw(st.sampled_from(names))) for _ in range(draw(st.integers(0, 2)))]
        line = draw(st.integers(1, 5))
        nodes.append(
            Node(
                name=f"n{index}",
                op="call_function",
                target=draw(st.sampled_from(TARGETS)),
                args=(*args, draw(st.sampled_from([1, 2, 1.0, True, None, "s"]))),
                kwargs=draw(st.sampled_from([{}, {"alpha": 2}, {"other": Ref(names[0])}])),
                meta=draw(st.sampled_from([None, TensorMeta(dtype="f32", shape=(2, "s0"))])),
                source=SourceLine(file="a.py", line=line, code=f"line {line}") if draw(st.booleans()) else None,
            )
        )
    output = tuple(Ref(draw(st.sampled_from([node.name for node in nodes]))) for _ in range(draw(st.integers(0, 3))))
    nodes.append(Node(name="output", op="output", target="output", args=(output,)))
    return link(Graph(name="G", stage="dynamo", nodes=nodes))


def renumbered(graph: Graph, by: int) -> Graph:
    """The same graph with other names."""
    names = {node.name: f"renamed_{index + by}" for index, node in enumerate(graph.nodes)}
    nodes = [
        msgspec.structs.replace(
            node, name=names[node.name], args=rename(node.args, names), kwargs=rename(node.kwargs, names)
        )
        for node in graph.nodes
    ]
    return link(msgspec.structs.replace(graph, nodes=nodes))


@st.composite
def edited(draw: st.DrawFn) -> tuple[Graph, Graph, list[str]]:
    """A graph, a copy with up to three edits, and what the edits were."""
    before = draw(graphs())
    nodes = [msgspec.structs.replace(node, users=[]) for node in before.nodes]
    edits: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        calls = [position for position, node in enumerate(nodes) if node.op == "call_function"]
        kind = draw(st.sampled_from(["insert", "constant", "delete", "target"]))
        if kind == "insert":
            place = draw(st.integers(sum(node.op == "placeholder" for node in nodes), len(nodes) - 1))
            name = f"new{len(edits)}"
            nodes.insert(place, Node(name=name, op="call_function", target="torch.new", args=(Ref(nodes[0].name),)))
        elif not calls:
            continue
        else:
            place = draw(st.sampled_from(calls))
            node = nodes[place]
            if kind == "constant":
                nodes[place] = msgspec.structs.replace(node, args=(*node.args[:-1], 77))
            elif kind == "target":
                nodes[place] = msgspec.structs.replace(node, target="torch.other")
            elif not any(node.name in node_refs(other) for other in nodes):
                del nodes[place]
            else:
                continue
        edits.append(kind)
    return before, link(msgspec.structs.replace(before, nodes=nodes)), edits


@settings(max_examples=60, derandomize=True)
@given(graphs(), st.integers(0, 3))
def test_a_graph_does_not_differ_from_itself_whatever_its_names(graph: Graph, by: int) -> None:
    copy = msgspec.structs.replace(graph, nodes=[msgspec.structs.replace(node) for node in graph.nodes])
    assert diff_graphs(graph, graph).empty
    assert diff_graphs(graph, copy).empty
    other = renumbered(graph, by)
    diff = diff_graphs(graph, other)
    assert diff.empty, diff.summary()
    assert len(diff.pairs) == len(graph.nodes)
    assert apply_diff(graph, diff) == other


@settings(max_examples=80, derandomize=True)
@given(graphs(), graphs())
def test_applying_a_diff_gives_the_other_graph(a: Graph, b: Graph) -> None:
    diff = diff_graphs(a, b)
    assert apply_diff(a, diff) == b
    assert diff.empty == (not list(diff.lines()))
    assert len({*diff.pairs.values(), *(node.name for node in diff.added)}) == len(b.nodes)
    assert {*diff.pairs, *diff.removed} == {node.name for node in a.nodes}


@settings(max_examples=80, derandomize=True)
@given(edited())
def test_the_diff_of_an_edit_is_no_larger_than_the_edit(case: tuple[Graph, Graph, list[str]]) -> None:
    before, after, edits = case
    diff = diff_graphs(before, after)
    assert apply_diff(before, diff) == after
    touched = len(diff.added) + len(diff.removed) + len(diff.changed)
    # A node whose target changed may at worst be one removed and one added.
    assert touched <= 2 * len(edits), (edits, diff.summary(), list(diff.lines()))
    if edits == ["insert"]:
        assert [node.target for node in diff.added] == ["torch.new"]
        assert not diff.removed
        assert not diff.changed
    if edits == ["constant"] and not diff.empty:
        assert [change.what for change in diff.changed] == [["arguments"]]
        assert not diff.added


@settings(derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_alignment_is_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    pairs = align(a, b)
    assert all(a[one] == b[other] for one, other in pairs)
    assert all(p[0] < q[0] and p[1] < q[1] for p, q in itertools.pairwise(pairs))
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a)):
        for j in range(len(b)):
            best[i + 1][j + 1] = best[i][j] + 1 if a[i] == b[j] else max(best[i][j + 1], best[i + 1][j])
    assert len(pairs) == best[-1][-1]


def test_alignment_of_very_different_sequences_stays_linear() -> None:
    a = [f"a{index}" for index in range(3000)] + ["same"]
    b = ["same"] + [f"b{index}" for index in range(3000)]
    assert align(a, b) == [(3000, 0)]


HEAD = "class G(torch.nn.Module):\n    def forward(self, x, y):\n        "


def of(*lines: str) -> Graph:
    return parse_graph(HEAD + "\n        ".join(lines) + "\n")


def test_rewiring_is_told_from_change() -> None:
    a = of("s = x.sin()", "c = x.cos()", "r = s + y", "return (r, c)")
    b = of("s = x.sin()", "c = x.cos()", "r = c + y", "return (r, c)")
    diff = diff_graphs(a, b)
    assert (diff.summary(), [change.what for change in diff.rewired]) == (
        "0 added, 0 removed, 0 changed, 1 rewired",
        [["inputs"]],
    )
    assert list(diff.lines()) == ["> r: inputs: s, y → c, y"]
    assert diff_graphs(a, a).summary() == "no difference"
    swapped = (of("r = torch.add(x, y, alpha = 2)", "return (r,)"), of("r = torch.add(y, x, alpha = 3)", "return (r,)"))
    assert [change.what for change in diff_graphs(*swapped).changed] == [["arguments", "inputs"]]


def test_a_size_that_became_an_input_is_a_size_only() -> None:
    a = of("v = x.view(2, 3)", "r = v + y", "return (r,)")
    text = HEAD.replace("x, y", 's0: "Sym(s0)", x, y') + "v = x.view({}, 3)\n        r = v + y\n        return (r,)\n"
    diff = diff_graphs(a, parse_graph(text.format("s0")))
    assert diff.summary() == "1 added, 0 removed, 1 changed (1 in size only), 1 rewired"
    other = diff_graphs(a, parse_graph(text.format("y")))
    assert [change.sizes_only for change in other.changed] == [False]


def test_a_replaced_operator_is_a_change_of_target() -> None:
    a = of("h = torch.relu(x)", "r = h + y", "return (r,)")
    b = of("h = torch.nn.functional.gelu(x)", "r = h + y", "return (r,)")
    change = diff_graphs(a, b).changed[0]
    assert change.what == ["target"]
    assert (change.before["target"], change.after["target"]) == ("torch.relu", "torch.nn.functional.gelu")


def test_a_moved_node_is_the_only_one_that_moved() -> None:
    a = of("p = x.sin()", "q = x.cos()", "s = y.tan()", "return (p, q, s)")
    b = of("s = y.tan()", "p = x.sin()", "q = x.cos()", "return (p, q, s)")
    assert diff_graphs(a, b).moved == ["s"]
    assert diff_graphs(a, b).summary() == "0 added, 0 removed, 0 changed, 0 rewired, 1 moved"


def test_true_is_not_one() -> None:
    diff = diff_graphs(of("a = torch.add(x, 1)", "return (a,)"), of("a = torch.add(x, True)", "return (a,)"))
    assert [change.what for change in diff.changed] == [["arguments"]]


def test_nested_graphs_are_compared() -> None:
    text = (
        "class G(torch.nn.Module):\n    def forward(self, x):\n        body_0 = self.body_0\n"
        "        h = torch.ops.higher_order.wrap(body_0, x)\n        return (h,)\n\n"
        "    class body_0(torch.nn.Module):\n        def forward(self, x):\n            s = x.{op}()\n            return (s,)\n"
    )
    a, b = parse_graph(text.format(op="sin")), parse_graph(text.format(op="cos"))
    diff = diff_graphs(a, b)
    assert not diff.empty
    assert list(diff.subgraphs) == ["body_0"]
    assert diff.summary().endswith("1 nested graph differs")
    assert apply_diff(a, diff) == b
    assert diff_graphs(a, a).empty


@pytest.mark.shared
def test_a_recompile_for_another_batch_differs_in_sizes_only(h200: Path) -> None:
    recording = open_recording(h200 / "resnet50")
    a, b = (load_graph(recording, recording.find(key)) for key in ("0/0", "0/1"))
    diff = diff_graphs(a, b)
    assert [node.name for node in diff.added] == ["s77"]
    assert diff.removed == []
    assert diff.besides_sizes() == []
    assert diff.summary() == "1 added, 0 removed, 176 changed (176 in size only), 0 rewired"
    assert apply_diff(a, diff) == b


@pytest.mark.shared
def test_ranks_differ_in_devices_only(h200: Path) -> None:
    recording = open_recording(h200 / "ranks_ddp")
    a, b = (load_graph(recording, recording.find(key)) for key in ("r0:4/0", "r1:4/0"))
    diff = diff_graphs(a, b)
    assert (len(diff.added), len(diff.removed), len(diff.rewired)) == (0, 0, 0)
    assert {tuple(change.what) for change in diff.changed} == {("device",)}


@pytest.mark.shared
def test_stages_are_compared_across_dialects(h200: Path) -> None:
    """dynamo to forward: what AOTAutograd kept is paired, as a change of target, by source line and operator."""
    recording = open_recording(h200 / "gpt2")
    dynamo = load_graph(recording, recording.find("1/0"))
    forward = load_graph(recording, recording.find("1/0"), "forward")
    diff = diff_graphs(dynamo, adopt_originals(forward, dynamo))
    assert apply_diff(dynamo, diff) == forward
    by_name, after = dynamo.by_name(), forward.by_name()
    paired = {(by_name[a].target, after[b].target) for a, b in diff.pairs.items() if by_name[a].op == "call_function"}
    assert ("torch.addmm", "torch.ops.aten.addmm.default") in paired
    assert ("torch.tanh", "torch.ops.aten.tanh.default") in paired
    products = [node for node in dynamo.nodes if node.target in ("torch.addmm", "torch.tanh")]
    assert all(node.name in diff.pairs for node in products)
    # Every input is recognised by its name in the program.
    assert all(node.name in diff.pairs for node in dynamo.nodes if node.op == "placeholder")


@pytest.mark.shared
def test_a_pass_that_splits_products_is_seen(h200: Path) -> None:
    recording = open_recording(h200 / "gpt2")
    before = load_graph(recording, recording.find("1/0"), "forward")
    after = load_graph(recording, recording.find("1/0"), "forward.post_grad")
    diff = diff_graphs(before, after)
    assert len([node for node in diff.added if node.target == "torch.ops.aten.mm.default"]) == 8
    gone = [before.by_name()[name].target for name in diff.removed]
    assert gone.count("torch.ops.aten.addmm.default") == 8
    assert set(gone) == {"torch.ops.aten.addmm.default", "torch.ops.aten.view.default"}
    json = diff.to_json()
    assert json["removed"] == diff.removed
    msgspec.json.encode(json)
