"""Made-up inputs fit their use; runs leave no trace; stand-ins equal what they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fxscope.errors import UsageError
from fxscope.graph.ambient import ambient_autocast
from fxscope.graph.execute import restored, run
from fxscope.graph.inputs import make_inputs
from fxscope.graph.parse import parse_graph
from fxscope.graph.rebuild import rebuild
from fxscope.graph.records import Graph
from fxscope.graph.standins import GUARDS, STAND_INS
from fxscope.graph.symbols import evaluate


def of(args: str, *code: str, stage: str = "") -> Graph:
    return parse_graph(
        f"class G(torch.nn.Module):\n    def forward(self, {args}):\n        " + "\n        ".join(code) + "\n", stage
    )


LOOKUPS = {
    "embedding": ('i: "i64[500]", t: "f32[7, 3]"', "y = torch.nn.functional.embedding(i, t)", 7),
    "aten embedding": ('i: "i64[500]", t: "f32[7, 3]"', "y = torch.ops.aten.embedding.default(t, i)", 7),
    "through views and casts": (
        'i: "i32[500]", t: "f32[7, 3]"',
        "a = i.view(5, 100);  b = a.to(torch.int64);  c = b + 2;  d = c.unsqueeze(0);  y = torch.embedding(t, d)",
        5,
    ),
    "gather": ('i: "i64[500, 2]", t: "f32[500, 9]"', "y = torch.gather(t, 1, i)", 9),
    "index_select": ('i: "i64[500]", t: "f32[6, 4]"', "y = t.index_select(0, i)", 6),
    "getitem": ('i: "i64[500]", t: "f32[6, 4]"', "y = t[(slice(None, None, None), i)]", 4),
    "aten index": ('i: "i64[500]", t: "f32[6, 4]"', "y = torch.ops.aten.index.Tensor(t, [None, i])", 4),
    "class labels": ('i: "i64[500]", t: "f32[500, 5]"', "y = torch.nn.functional.cross_entropy(t, i)", 5),
    "scatter": ('i: "i64[500, 1]", t: "f32[500, 8]"', "y = torch.ops.aten.scatter.value(t, 1, i, 1.0)", 8),
    "one_hot": ('i: "i64[500]", t: "f32[1]"', "y = torch._C._nn.one_hot(i, 6)", 6),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_integers_stay_below_what_they_index(name: str) -> None:
    args, code, bound = LOOKUPS[name]
    graph = of(args, code, "return (y,)")
    inputs = make_inputs(graph, seed=3)
    assert int(inputs[0].max()) == bound - 1  # the whole range, and no more
    assert int(inputs[0].min()) == 0
    run(rebuild(graph), inputs)


@pytest.mark.parametrize(
    "code",
    [
        "y = torch.nn.functional.batch_norm(x, m, v, None, None, False, 0.1, 1e-05)",
        "a = v + 1e-05;  b = torch.rsqrt(a);  y = x * 2",
        "a = torch.ops.aten.add.Tensor(v, 1e-05);  b = torch.ops.aten.sqrt.default(a);  y = x * 2",
        "a = v.view(-1);  y = a.log()",
    ],
)
def test_variances_are_positive(code: str) -> None:
    graph = of('x: "f32[8, 50]", m: "f32[50]", v: "f32[50]"', code, "return (y,)")
    x, m, v = make_inputs(graph)
    assert v.min() > 0
    assert m.min() < 0
    assert x.min() < 0
    assert all(torch.isfinite(value).all() for value in run(rebuild(graph), [x, m, v]))


def test_inputs_have_the_described_layout_and_repeat_under_a_seed() -> None:
    graph = of(
        'a: "f32[2, 3, 4][12, 1, 3]cpu", b: "bf16[4, 4][0, 1]cpu", c: "c64[3]", d: "b8[5]", e: "u8[5]", f: "f32[0, 3][3, 1]cpu"',
        "return (a, b, c, d, e, f)",
    )
    first, again, other = make_inputs(graph), make_inputs(graph), make_inputs(graph, seed=1)
    assert [value.stride() for value in first[:2]] == [(12, 1, 3), (0, 1)]
    assert [value.dtype for value in first] == [
        torch.float32,
        torch.bfloat16,
        torch.complex64,
        torch.bool,
        torch.uint8,
        torch.float32,
    ]
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert first[5].shape == (0, 3)


def test_given_tensors_go_first_and_parameters_may_require_gradients() -> None:
    graph = of(
        'L_self_parameters_w_: "f32[3]", L_x_: "f32[3]"',
        "w = L_self_parameters_w_",
        "x = L_x_",
        "return (w, x)",
    )
    mine = torch.tensor([1.0, 2.0, 3.0])
    for key in ("x", "L_x_", "L['x']"):
        w, x = make_inputs(graph, tensors={key: mine}, requires_grad=True)
        assert torch.equal(x, mine)
        assert (w.requires_grad, x.requires_grad) == (True, False)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("x : torch.Tensor", "describes neither its shape nor its value"),
        ('x: "f32[99999999999, 99999]"', "out of range"),
        ('x: "f32[2][-1]"', "with strides"),
        ('x: "q7[2]"', "dtype q7"),
        ('x: "f32[s0, foo(3)]"', "no arithmetic"),
        ('x: "f32[(-8)**0.5]"', "-8 to the power of 0.5 is no size"),
        ('x: "f32[1e999]"', "the size '1e999' is inf"),
        ('x: "f32[((((9**64)**64)**64)**64)**64]"', "a power in a size expression is out of range"),
        ('x: "f32[\u00b2]"', "cannot work out the size"),
    ],
)
def test_what_cannot_be_made_is_named(args: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_inputs(of(args, "y = x + 1", "return (y,)"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4*s0 + 1", 13),
        ("Max(1, s0)//2", 1),
        ("(s0 + 1)**2", 16),
        ("FloorDiv(s0*10, 4)", 7),
        ("ModularIndexing(s0*10, 4, 5)", 2),
        ("CeilToInt(IntTrueDiv(s0, 2))", 2),
        ("-s0", -3),
        ("PythonMod(-s0, 2)", 1),
    ],
)
def test_size_expressions(text: str, value: int) -> None:
    assert evaluate(text, {"s0": 3}) == value


@pytest.mark.parametrize(
    "text", ["s1", "s0.real", "__import__('os')", "9**9**9", "s0 if s0 else 1", "1/0", "(", "[1]", "'a'*9"]
)
def test_size_expressions_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        evaluate(text, {"s0": 3})


MESSY = (
    "a = torch._C._set_grad_enabled(False)",
    "b = torch.amp.autocast_mode._enter_autocast('cpu', torch.bfloat16, True, True)",
    "c = torch._C._functorch._vmap_increment_nesting(2, 'different')",
    "d = torch.rand(3)",
)


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_leaves_no_trace(fails: bool) -> None:
    end = "e = torch.mm(x, x)" if fails else "e = x + 1"
    gm = rebuild(of('x: "f32[3]"', *MESSY, end, "return (d,)"))
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    if fails:
        with pytest.raises(RuntimeError):
            run(gm, [torch.ones(3)])
    else:
        run(gm, [torch.ones(3)])
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch._C._functorch.maybe_current_level() is None
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0


def test_a_surrounding_autocast_is_kept() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad(), restored():
        torch.set_autocast_enabled("cpu", False)
        torch.set_grad_enabled(True)
    assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        with restored():
            torch.set_autocast_enabled("cpu", False)
            torch.set_grad_enabled(True)
        assert torch.is_autocast_enabled("cpu")
        assert not torch.is_grad_enabled()
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16


def test_dropout_repeats_under_a_seed() -> None:
    gm = rebuild(of('x: "f32[100]"', "y = torch.nn.functional.dropout(x, 0.5, True, False)", "return (y,)"))
    x = torch.ones(100)
    assert torch.equal(run(gm, [x])[0], run(gm, [x])[0])
    assert not torch.equal(run(gm, [x], seed=1)[0], run(gm, [x], seed=2)[0])


def test_inputs_are_not_changed_by_a_run() -> None:
    gm = rebuild(of('x: "f32[2]"', "y = x.add_(1)", "return (y,)"))
    x = torch.zeros(2)
    assert run(gm, [x])[0].tolist() == [1.0, 1.0]
    assert x.tolist() == [0.0, 0.0]


def test_an_autocast_around_the_graph_shows_in_its_shapes() -> None:
    graph = of(
        'x: "f32[2, 3][3, 1]cuda:0", w: "f32[4, 3][3, 1]cuda:0"',
        'y: "bf16[2, 4][4, 1]cuda:0" = torch._C._nn.linear(x, w)',
        "return (y,)",
    )
    assert ambient_autocast(graph) == ("cuda", "bfloat16")
    assert run(rebuild(graph), make_inputs(graph))[0].dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def attention(kind: str, dropout: float, causal: bool, bias: torch.Tensor | None) -> Any:
    """Output and gradients of a CUDA attention kernel's stand-in, and of autograd through the same formula."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 5, 8, dtype=torch.float32) for _ in range(3))
    forward = STAND_INS[f"torch.ops.aten._scaled_dot_product_{kind}_attention.default"]
    backward = STAND_INS[f"torch.ops.aten._scaled_dot_product_{kind}_attention_backward.default"]
    middle = {"efficient": (bias, True), "flash": (), "cudnn": (bias, True)}[kind]
    with torch.random.fork_rng():
        torch.manual_seed(5)
        result = forward(query, key, value, *middle, dropout, causal)
    output, total = result[0], result[1]
    gradient = torch.randn_like(output)
    seed, offset = (result[2], result[3]) if kind == "efficient" else (result[6], result[7])
    if kind == "efficient":
        tail = (bias, output, total, seed, offset, dropout, [True, True, True, False], causal)
    elif kind == "flash":
        tail = (output, total, None, None, 5, 5, dropout, causal, seed, offset)
    else:
        tail = (output, total, seed, offset, bias, None, None, 5, 5, dropout, causal)
    return (query, key, value), gradient, output, total, backward(gradient, query, key, value, *tail)


@pytest.mark.parametrize("kind", ["efficient", "flash", "cudnn"])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_stand_ins_equal_attention(kind: str, causal: bool) -> None:
    bias = None if causal or kind == "flash" else torch.randn(2, 4, 5, 5)
    inputs, gradient, output, total, gradients = attention(kind, 0.0, causal, bias)
    leaves = [value.clone().requires_grad_() for value in inputs]
    expected = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=bias, is_causal=causal)
    torch.testing.assert_close(output, expected.detach())
    for one, other in zip(gradients, torch.autograd.grad(expected, leaves, gradient), strict=False):
        torch.testing.assert_close(one, other)
    assert output.stride() == (160, 8, 32, 1)  # length before heads in memory, as the CUDA kernels write it
    assert total.shape[:2] == (2, 4)


def test_dropped_attention_uses_the_same_mask_in_both_directions() -> None:
    """With the mask that forward drew, output is linear in value: its gradient must be the transposed dropped weights."""
    inputs, gradient, output, _, gradients = attention("efficient", 0.4, False, None)
    # <gradient, output(value)> = <d_value, value> for a map that is linear in value.
    torch.testing.assert_close((gradient * output).sum(), (gradients[2] * inputs[2]).sum())
    _, _, undropped, _, _ = attention("efficient", 0.0, False, None)
    assert not torch.allclose(output, undropped)


def test_a_pools_backward_survives_indices_that_are_out_of_range() -> None:
    guard = GUARDS["torch.ops.aten.max_pool2d_with_indices_backward.default"]
    x = torch.randn(1, 2, 4, 4)
    output, indices = torch.ops.aten.max_pool2d_with_indices.default(x, [2, 2], [2, 2])
    gradient = torch.randn_like(output)
    arguments = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    expected = torch.ops.aten.max_pool2d_with_indices_backward.default(gradient, x, *arguments, indices)
    assert torch.equal(guard(gradient, x, *arguments, indices), expected)
    assert guard(gradient, x, *arguments, indices - 10**9).isfinite().all()
    assert guard(gradient, x, *arguments, indices + 10**9).isfinite().all()


def test_the_seed_of_an_attentions_dropout_stays_on_the_host() -> None:
    """Its backward reads seed and offset on the host: an address of the device there ends the process."""
    row, number = "f32[1, 1, 8, 8][64, 64, 8, 1]cuda:0", "i64[][]cuda:0"
    args = f'g: "{row}", q: "{row}", o: "{row}", l: "f32[1, 1, 8][8, 8, 1]cuda:0", seed: "{number}", offset: "{number}"'
    call = "torch.ops.aten._scaled_dot_product_efficient_attention_backward.default"
    graph = of(args, f"y = {call}(g, q, q, q, None, o, l, seed, offset, 0.1, [True, True, True, False])", "return (y,)")
    made = [x.device.type for x in make_inputs(graph, device="meta")]
    assert made == ["meta", "meta", "meta", "meta", "cpu", "cpu"]
