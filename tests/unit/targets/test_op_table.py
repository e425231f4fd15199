"""The table of supported ops: every failing clause, and a bad table named."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from fxscope.errors import UsageError
from fxscope.targets.op_table import OpTable, limit_text, schema_arguments

TABLE = """
name = "toy"
[defaults]
dtypes = ["float32", "bfloat16"]
ranks = [1, 4]
dynamic = false
[[op]]
ops = ["aten.add.Tensor", "aten.mul"]
[op.attributes]
alpha = { equals = 1 }
[[op]]
ops = ["aten.sum.dim_IntList"]
[op.attributes]
dim = { length = 1, last = true }
[[op]]
ops = ["aten.convolution.default"]
notes = "square kernels"
[op.inputs.bias]
none = false
[op.inputs.weight]
layout = ["contiguous"]
[op.attributes]
stride = { min = 1, max = 2 }
transposed = { equals = false }
groups = { in = [1, 2] }
[[op]]
ops = ["aten.embedding.default"]
[op.inputs.indices]
dtypes = ["int64"]
ranks = [1, 2]
[[op]]
ops = ["aten.native_layer_norm.default"]
"""


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "ops.toml"
    file.write_text(TABLE)
    return OpTable.load(file)


def node_of(function, *inputs, mode="fake"):
    gm = make_fx(function, tracing_mode=mode)(*inputs)
    return next(node for node in reversed(gm.graph.nodes) if isinstance(node.target, torch._ops.OpOverload))


def codes(table, function, *inputs, mode="fake"):
    return [clause.code for clause in table.clauses(node_of(function, *inputs, mode=mode))]


def test_supported_nodes_have_no_clause(table):
    x = torch.randn(2, 3)
    assert codes(table, lambda x: x + x, x) == []
    assert codes(table, lambda x: x * 2.0, x) == []  # a packet names all overloads
    assert codes(table, lambda x: x.sum(-1), x) == []
    assert codes(table, lambda x: x.sum(1), x) == []
    assert codes(table, lambda w, i: nn.functional.embedding(i, w), torch.randn(5, 3), torch.tensor([1])) == []


def test_all_failing_clauses_are_named(table):
    node = node_of(lambda x: torch.add(x, x, alpha=3), torch.randn(2, 2, 2, 2, 2).double())
    failing = table.clauses(node)
    assert [clause.code for clause in failing] == ["dtype", "rank"] * 3 + ["attribute"]
    assert failing[0].text == "self (x_1) is float64; allowed: float32, bfloat16"
    assert failing[1].text == "self (x_1) has 5 dimensions; allowed: 1 to 4"
    assert failing[-1].text == "alpha is 3; allowed: 1"


def test_unknown_ops_mutation_and_torch_level_nodes(table):
    x = torch.randn(2)
    assert codes(table, lambda x: x.sin(), x) == ["op"]
    assert set(codes(table, lambda x: x.clone().add_(1), x)) == {"mutation", "op"}
    gm = torch.fx.symbolic_trace(lambda x: torch.add(x, x))
    node = next(node for node in gm.graph.nodes if node.op == "call_function")
    assert [clause.code for clause in table.clauses(node)] == ["op"]


def test_attributes(table):
    x, w, b = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3), torch.randn(4)
    conv = torch.ops.aten.convolution.default
    assert codes(table, lambda x, w, b: conv(x, w, b, [2, 2], [0, 0], [1, 1], False, [0, 0], 1), x, w, b) == []
    assert codes(table, lambda x, w, b: conv(x, w, b, [2, 3], [0, 0], [1, 1], False, [0, 0], 1), x, w, b) == [
        "attribute"
    ]
    failing = table.clauses(node_of(lambda x, w: conv(x, w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1), x, w))
    assert [clause.text for clause in failing] == ["bias must not be None", "transposed is True; allowed: False"]
    strided = w.to(memory_format=torch.channels_last)
    failing = table.clauses(
        node_of(lambda x, w, b: conv(x, w, b, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), x, strided, b)
    )
    assert [clause.code for clause in failing] == ["layout"]
    assert codes(table, lambda x: x.sum(0), torch.randn(2, 3)) == ["attribute"]
    assert codes(table, lambda x: x.sum((0, 1)), torch.randn(2, 3)) == ["rank", "attribute"]


def test_several_outputs_and_missing_meta(table):
    norm = torch.ops.aten.native_layer_norm.default
    gm = make_fx(lambda x: norm(x, [3], None, None, 1e-5)[0], tracing_mode="fake")(torch.randn(2, 3))
    node = next(node for node in gm.graph.nodes if node.target is norm)
    assert table.clauses(node) == ()
    del node.meta["val"]
    assert [clause.code for clause in table.clauses(node)] == ["no-meta"]
    for used in node.all_input_nodes:
        del used.meta["val"]
    assert [clause.code for clause in table.clauses(node)] == ["no-meta", "no-meta"]


def test_symbolic_sizes(table):
    found = codes(table, lambda x: x + x, torch.randn(5, 3), mode="symbolic")
    assert set(found) == {"dynamic-shape"}


def test_a_table_is_checked_against_the_ops_that_exist(table):
    assert table.problems() == []
    bad = OpTable.from_dict(
        {"name": "bad", "op": [{"ops": ["aten.nothing", "aten.add"], "attributes": {"beta": {"equals": 1}}}]}
    )
    assert bad.problems() == ["bad: no op aten.nothing", "bad: aten.nothing, aten.add has no argument beta"]


def test_defaults_are_filled_in():
    node = node_of(lambda x: torch.add(x, x), torch.randn(2))
    assert schema_arguments(node)["alpha"] == 1


@pytest.mark.parametrize(
    ("limit", "value", "text"),
    [
        ({"equals": 1}, 1.0, None),
        ({"equals": 1}, True, "is True; allowed: 1"),
        ({"equals": "contiguous_format"}, torch.contiguous_format, None),
        ({"in": [1, 2]}, [1, 2], None),
        ({"in": [1, 2]}, [1, 3], "is [1, 3]; allowed: 1, 2"),
        ({"none": True}, None, None),
        ({"none": True}, 1, "is 1; it must be None"),
        ({"none": False, "max": 3}, None, "is None; it must not be None"),
        ({"max": 3}, "x", "is x; a number known at compile time is needed"),
        ({"last": True}, [-1], None),
        ({"last": False}, 2, "is 2; it must not be the last of 3 dimensions"),
    ],
)
def test_limits(limit, value, text):
    assert limit_text(limit, value, 3) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "cannot read the table"),
        ("[[op]]\nops = []", "must be a list"),
        ("[[op]]\nops = ['aten.add']\nrank = [1, 2]", "unknown key `rank`"),
        ("[[op]]\nops = ['aten.add']\nranks = [3, 2]", "smallest, largest"),
        ("[[op]]\nops = ['aten.add']\n[op.attributes]\nalpha = {equal = 1}", "unknown key `equal`"),
        ("[[op]]\nops = ['aten.add']\nlayout = ['nhwc']", "unknown layout nhwc"),
        ("[default]\n", "unknown key `default`"),
    ],
)
def test_a_bad_table_is_one_line(tmp_path, text, message):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        OpTable.load(file)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot read"):
        OpTable.load(tmp_path / "none.toml")
