"""Forms of printed graphs, one by one, and all printed graphs of ../shared."""

from __future__ import annotations

import re
import textwrap

import pytest

from fxscope.graph.annotation import original_of, parse_meta, parse_source
from fxscope.graph.arguments import arg_text
from fxscope.graph.parse import parse_graph
from fxscope.graph.printed import first_graph
from fxscope.graph.records import Graph, Ref, Symbolic, TensorMeta
from fxscope.source import SourceLine


def graph_of(body: str, signature: str = "x", name: str = "GraphModule") -> Graph:
    head = f"class {name}(torch.nn.Module):\n    def forward(self, {signature}):\n"
    return parse_graph(head + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) + "\n")


LINE = re.compile(r'^\s+(\w+)(?:: "[^"]*")? = (?!\w+\s*$)', re.MULTILINE)


@pytest.mark.shared
def test_every_printed_graph_of_the_shared_logs_parses(log_graphs: list[tuple[str, str, str]]) -> None:
    assert log_graphs
    for key, stage, text in log_graphs:
        graph = parse_graph(text, stage=stage)
        assert graph.problems == [], (key, stage)
        assert graph.nodes[-1].op == "output", (key, stage)
        names = {node.name for node in graph.nodes}
        assert len(names) == len(graph.nodes), (key, stage)
        assert all(user in names for node in graph.nodes for user in node.users)
        if graph.subgraphs or "tree_flatten_spec" in text:
            continue
        # Counted another way: lines that assign something other than a plain name.
        calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        in_place = sum(node.target.startswith(("operator.i", "operator.setitem")) for node in calls)
        assert len(LINE.findall(text)) in (len(calls) - in_place, len(calls)), (key, stage)


def test_an_odd_class_name_is_kept() -> None:
    graph = graph_of("relu = torch.relu(x);  x = None\nreturn (relu,)", name="<lambda>")
    assert graph.name == "<lambda>"
    assert [node.name for node in graph.nodes] == ["x", "relu", "output"]
    assert graph.nodes[1].users == ["output"]


def test_in_place_operators_take_the_name_and_shape_of_their_second_half() -> None:
    graph = graph_of(
        """
        x += y;  x_1: "f32[4][1]cpu" = x;  x = None
        x_1[0] = inf;  setitem = x_1;  setitem = None
        x_1[(slice(None, None, None), 1)] //= 2;  ifloordiv = x_1
        return (x_1,)
        """,
        "x, y",
    )
    assert [(node.name, node.target) for node in graph.nodes[2:4]] == [
        ("x_1", "operator.iadd"),
        ("setitem", "operator.setitem"),
    ]
    assert graph.nodes[2].args == (Ref("x"), Ref("y"))
    assert graph.nodes[2].meta == TensorMeta(dtype="f32", shape=(4,), stride=(1,), device="cpu")
    assert graph.nodes[3].args == (Ref("x_1"), 0, Symbolic("inf"))
    assert graph.problems == []


def test_arguments_of_every_kind() -> None:
    graph = graph_of(
        """
        a = f(x, -1, 1e-05, -inf, nan, None, True, 'it''s', (1,), [], {'k': x, 'm': -2}, dtype = torch.float32)
        b = a[(None, Ellipsis, slice(None, x, 2), ...)]
        c = -2 ** x
        d = torch.empty(torch.Size([2, 3]), device = device(type='cuda', index=0), **{"odd name": 1})
        e = torch.ops.higher_order.out_dtype(torch.ops.aten.mm.default, torch.int32, x, 4*s0 + 1, x*2)
        return (a, b, c, d, e)
        """,
    )
    a, b, c, d, e = graph.nodes[1:6]
    assert a.args[:4] == (Ref("x"), -1, 1e-05, Symbolic("-inf"))
    assert a.args[4:9] == (Symbolic("nan"), None, True, "its", (1,))
    assert a.args[9:] == ([], {"k": Ref("x"), "m": -2})
    assert a.kwargs == {"dtype": Symbolic("torch.float32")}
    assert b.args[1] == (None, Symbolic("Ellipsis"), slice(None, Ref("x"), 2), Symbolic("Ellipsis"))
    assert (c.target, c.args) == ("operator.pow", (-2, Ref("x")))
    assert d.args == ((2, 3),)
    assert d.kwargs == {"device": Symbolic("device(type='cuda', index=0)"), "odd name": 1}
    assert e.args[0] == Symbolic("torch.ops.aten.mm.default")
    assert e.args[3:] == (Symbolic("4 * s0 + 1"), Symbolic("x * 2", ("x",)))
    assert graph.nodes[0].users == ["a", "b", "c", "e"]
    assert arg_text(b.args[1]) == "(None, Ellipsis, slice(None, x, 2), Ellipsis)"


def test_attributes_methods_and_modules() -> None:
    graph = graph_of(
        """
        shape = x.shape
        odd = getattr(x, "odd name")
        weight = getattr(self.layers, "0").weight
        called = getattr(self.layers, "0")(x, weight)
        method = getattr(x, "odd name")(1)
        plain = x.view(-1)
        default = getattr(x, 'grad', None)
        return shape
        """
    )
    seen = [(node.op, node.target, node.args) for node in graph.nodes[1:-1]]
    assert seen == [
        ("call_function", "getattr", (Ref("x"), "shape")),
        ("call_function", "getattr", (Ref("x"), "odd name")),
        ("get_attr", "layers.0.weight", ()),
        ("call_module", "layers.0", (Ref("x"), Ref("weight"))),
        ("call_method", "odd name", (Ref("x"), 1)),
        ("call_method", "view", (Ref("x"), -1)),
        ("call_function", "getattr", (Ref("x"), "grad", None)),
    ]


def test_old_annotations_and_defaults() -> None:
    graph = graph_of("l_x_ = L_x_\nreturn (l_x_,)", "L_x_ : torch.Tensor, s0 : torch.SymInt, *rest, k = 3")
    assert [(node.name, node.target, node.role, node.args) for node in graph.nodes[:-1]] == [
        ("l_x_", "L_x_", "input", ()),
        ("s0", "s0", "symbol", ()),
        ("rest", "*rest", "input", ()),
        ("k", "k", "input", (3,)),
    ]


def test_the_users_line_holds_until_the_next_comment() -> None:
    graph = graph_of(
        """
         # File: /a b/c.py:12 in forward, code: y = x + 1  # comment, code: odd
        a = x + 1
        b = a + 1

        # ac_graph_id: 1 - MUST_SAVE File: d.py:3 in <module>, code: z = 2
        c = b + 1
        # No stacktrace found for following nodes
        d = c + 1
        # File: old.py:7, code: no function
        e = d + 1
        return (e,)
        """
    )
    lines = {node.name: node.source for node in graph.nodes}
    first = SourceLine(file="/a b/c.py", line=12, function="forward", code="y = x + 1  # comment, code: odd")
    assert lines["a"] == lines["b"] == first
    assert lines["c"] == SourceLine(file="d.py", line=3, function="<module>", code="z = 2")
    assert lines["d"] is None
    assert lines["e"] == SourceLine(file="old.py", line=7, code="no function")


def test_roles_and_descriptions_of_joint_inputs() -> None:
    text = textwrap.dedent(
        """\
        class inner_f(torch.nn.Module):
            def forward(
                self,
                primals,
                tangents,
            ):
                primals_1: "f32[4]"  # PlainAOTInput(idx=0)
                primals_2: "Sym(s0)"  # PlainAOTInput(idx=1)
                tangents_1: "f32[4]"  # TangentAOTInput(output=PlainAOTOutput(idx=0))
                primals_1, primals_2, tangents_1, = fx_pytree.tree_flatten_spec(([primals, tangents], {}), self._in_spec)
                mul: "f32[4]" = torch.ops.aten.mul.Tensor(primals_1, tangents_1)
                return pytree.tree_unflatten([
                    primals_1,  # PlainAOTOutput(idx=0)
                    mul,  # GradAOTOutput(grad_of=PlainAOTInput(idx=0))
                ], self._out_spec)
        """
    )
    graph = parse_graph(text, stage="joint")
    assert [(node.name, node.role, node.description) for node in graph.nodes[:3]] == [
        ("primals_1", "input", "PlainAOTInput(idx=0)"),
        ("primals_2", "symbol", "PlainAOTInput(idx=1)"),
        ("tangents_1", "tangent", "TangentAOTInput(output=PlainAOTOutput(idx=0))"),
    ]
    assert graph.nodes[1].symbol == "s0"
    assert graph.nodes[-1].args == ([Ref("primals_1"), Ref("mul")],)


def test_nested_graphs_belong_to_what_calls_them() -> None:
    text = textwrap.dedent(
        """\
        class GraphModule(torch.nn.Module):
            def forward(self, x):
                cond_true_0 = self.cond_true_0
                cond = torch.ops.higher_order.cond(x, cond_true_0, cond_true_0, (x,));  cond_true_0 = None
                return cond

            class cond_true_0(torch.nn.Module):
                def forward(self, x):
                    # File: a.py:1 in f, code: x
                    sin = torch.sin(x)
                    return (sin,)
        """
    )
    graph = parse_graph(text)
    assert list(graph.subgraphs) == ["cond_true_0"]
    assert graph.nodes[2].subgraphs == ["cond_true_0"]
    assert graph.nodes[1].role is None  # a nested graph, no constant
    assert graph.subgraphs["cond_true_0"].nodes[1].source == SourceLine(file="a.py", line=1, function="f", code="x")
    assert graph.nodes[2].source is None  # the comment of the nested graph is not ours


def test_text_around_the_graph_is_left_out() -> None:
    body = "    class GraphModule(torch.nn.Module):\n        def forward(self, x):\n            y = x + 1\n            return (y,)\n"
    graph = parse_graph("ExportedProgram:\n" + body + "\nGraph signature: \n    # inputs\nRange constraints: {}\n")
    assert [node.name for node in graph.nodes] == ["x", "y", "output"]
    assert graph.problems == []


def test_a_variable_called_output_keeps_its_name() -> None:
    graph = graph_of("output = x + 1\nreturn (output,)")
    assert [node.name for node in graph.nodes] == ["x", "output", "output_1"]


def test_line_ends_of_windows_parse() -> None:
    text = (
        "class <lambda>(torch.nn.Module):\r\n    def forward(self, x):\r\n        y = x + 1\r\n        return (y,)\r\n"
    )
    assert [node.name for node in parse_graph(text).nodes] == ["x", "y", "output"]


def test_a_bare_forward_parses() -> None:
    graph = parse_graph("def forward(self, x):\n    y = x + 1\n    return y\n    ")
    assert [node.name for node in graph.nodes] == ["x", "y", "output"]


def test_a_line_that_is_no_python_costs_only_itself() -> None:
    graph = graph_of(
        """
        a = x + 1
        b = torch.mystery(a, <function f at 0x7f>, 3);  a = None
        c = b + 1
        return (c,)
        """
    )
    assert [node.name for node in graph.nodes] == ["x", "a", "b", "c", "output"]
    assert graph.nodes[1].users == ["b"]
    assert graph.nodes[2].target == "torch.mystery"
    assert len(graph.problems) == 1
    assert "<function f at" in graph.problems[0]
    assert "torch.mystery" in graph.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "\0",
        "class A(torch.nn.Module):\n    pass",
        "class A(torch.nn.Module):\n    def forward(self, x):\n        return ((((",
        "class A(torch.nn.Module):\n    def forward(self, x):\n" + "        y = " + "(" * 5000,
        "class A(torch.nn.Module):\n    def forward(self, x):\n        for i in x:\n            pass\n",
        "class A(torch.nn.Module):\n    def forward(self, x):\n        import os; os.system('x')\n        return 1\n",
        "class A(torch.nn.Module):\n    def forward(self, "
        + ", ".join(f"a{i}" for i in range(3000))
        + "):\n        return (a0,)\n",
        "class A(torch.nn.Module):\n    def forward(self, x):\n        y = x" + " + 1" * 4000 + "\n        return y\n",
        "\x1b[31mclass A(torch.nn.Module):\n    def forward(self):\n        return ()",
    ],
)
def test_bad_text_never_raises(text: str) -> None:
    graph = parse_graph(text)
    assert isinstance(graph, Graph)
    if first_graph(text) is None:
        assert graph.problems
        assert graph.text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[4, 64][64, 1]cuda:0", TensorMeta(dtype="f32", shape=(4, 64), stride=(64, 1), device="cuda:0")),
        ("f32[]", TensorMeta(dtype="f32", shape=())),
        ("b8[][]cpu", TensorMeta(dtype="b8", shape=(), stride=(), device="cpu")),
        (
            "bf16[s0, Max(1, s1), (s0//2)][Max(1, s1)*s2, 1, 0]cuda:1",
            TensorMeta(
                dtype="bf16", shape=("s0", "Max(1, s1)", "(s0//2)"), stride=("Max(1, s1)*s2", 1, 0), device="cuda:1"
            ),
        ),
        ("DTensor(f32[8, 4][4, 1]cpu, S(0))", TensorMeta(dtype="f32", shape=(8, 4), stride=(4, 1), device="cpu")),
        ("f8e4m3fn[2][1]meta", TensorMeta(dtype="f8e4m3fn", shape=(2,), stride=(1,), device="meta")),
        ("Sym(s0 + 1)", None),
        ("f32[4", None),
        ("torch.Tensor", None),
        ("", None),
    ],
)
def test_annotations(text: str, expected: TensorMeta | None) -> None:
    assert parse_meta(text) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("L_self_modules_h_modules_0_modules_ln_1_parameters_weight_", "L['self'].h.0.ln_1.weight"),
        ("L_self_buffers_scale_", "L['self'].scale"),
        ("L_input_ids_", "L['input_ids']"),
        ("L_args_0_", None),
        ("primals_1", None),
    ],
)
def test_mangled_names(target: str, expected: str | None) -> None:
    assert original_of(target) == expected


def test_a_windows_path_is_kept_whole() -> None:
    line = parse_source(r"# File: C:\Users\me\train.py:12 in f, code: y = x")
    assert line == SourceLine(file=r"C:\Users\me\train.py", line=12, function="f", code="y = x")


@pytest.mark.parametrize("size", ["\u00b2", "--5", "9" * 5000])
def test_a_size_that_only_looks_like_a_number_stays_text(size: str) -> None:
    text = f'class G(torch.nn.Module):\n    def forward(self, x: "f32[{size}, 4]"):\n        return (x,)\n'
    meta = parse_graph(text).nodes[0].meta
    assert isinstance(meta, TensorMeta)
    assert meta.shape == (size, 4)
