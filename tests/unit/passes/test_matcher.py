"""Patterns: either order, no overlaps, no lost users, no cycles."""

from __future__ import annotations

import pytest
import torch
from torch.fx import symbolic_trace
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from fxscope.passes.application import Context
from fxscope.passes.matcher import find, replace


def names(found):
    return [[node.name for node in hit.nodes] for hit in found]


def test_two_cats_in_a_row():
    """PyTorch issue 159613: replace_pattern leaves an invalid graph here."""

    def model(x1, x2, x3):
        y1 = torch.cat([x1, x2], 1)
        return torch.cat([y1, x3], 2)

    def pattern(a, b, dim):
        return torch.cat([a, b], dim)

    def replacement(a, b, dim):
        return torch.concat([a, b], dim)

    gm = symbolic_trace(model)
    context = Context()
    made = replace(gm, pattern, replacement, context)
    assert context.applied == 2
    inputs = [torch.randn(1, 30, 16), torch.randn(1, 10, 16), torch.randn(1, 40, 16)]
    assert torch.equal(made(*inputs), model(*inputs))
    assert torch.cat not in [node.target for node in made.graph.nodes]


def test_commutative_ops_match_in_either_order_unlike_upstream():
    def model(x, y):
        return torch.relu(y) + x

    def pattern(a, b):
        return a + torch.relu(b)

    gm = symbolic_trace(model)
    assert not SubgraphMatcher(symbolic_trace(pattern).graph).match(gm.graph)
    assert names(find(gm, pattern)) == [["relu", "add"]]
    assert names(find(symbolic_trace(lambda x, y: torch.relu(y) - x), lambda a, b: a - torch.relu(b))) == []


def test_overlaps_take_the_first():
    gm = symbolic_trace(lambda x: torch.relu(torch.relu(torch.relu(x))))
    context = Context()
    found = find(gm, lambda a: torch.relu(torch.relu(a)), context)
    assert names(found) == [["relu", "relu_1"]]
    assert [match.reason for match in context.matches] == ["overlap"]


def test_an_inner_value_that_is_used_elsewhere_stays():
    def model(x):
        y = torch.sin(x)
        return torch.cos(y) + y

    context = Context()
    assert find(symbolic_trace(model), lambda a: torch.cos(torch.sin(a)), context) == []
    assert context.matches[0].reason == "users"
    assert "add" in context.matches[0].text


def test_a_match_that_would_make_a_cycle_is_refused_unlike_upstream():
    """Two results, one of which feeds the other through something outside."""

    def model(x):
        a = torch.sin(x)
        b = torch.relu(a)
        return torch.cos(b), a

    def pattern(x, y):
        return torch.sin(x), torch.cos(y)

    gm = symbolic_trace(model)
    context = Context()
    assert find(gm, pattern, context) == []
    assert [match.reason for match in context.matches] == ["cycle"]
    assert "relu" in context.matches[0].text
    upstream = SubgraphMatcher(symbolic_trace(pattern).graph, remove_overlapping_matches=False)
    assert upstream.match(gm.graph)


def test_two_results_of_which_one_is_absent_are_no_match():
    gm = symbolic_trace(lambda x: torch.sin(x))
    assert find(gm, lambda x, y: (torch.sin(x), torch.cos(y))) == []
    with pytest.raises(KeyError):
        SubgraphMatcher(symbolic_trace(lambda x, y: (torch.sin(x), torch.cos(y))).graph).match(gm.graph)


def test_two_results_replaced_where_a_user_sits_between():
    def model(x, y):
        a = torch.sin(x)
        b = torch.relu(a)
        c = torch.cos(y)
        return b + c

    made = replace(
        symbolic_trace(model), lambda x, y: (torch.sin(x), torch.cos(y)), lambda x, y: (torch.cos(y), torch.sin(x))
    )
    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(made(x, y), torch.relu(torch.cos(y)) + torch.sin(x))


def test_literals_and_repeated_parameters():
    gm = symbolic_trace(lambda x, y: (x * 2 + y * 3, x * x, x * y))
    assert names(find(gm, lambda a: a * 3)) == [["mul_1"]]
    assert names(find(gm, lambda a: a * 3.0)) == []
    assert names(find(gm, lambda a: a * a)) == [["mul_2"]]


def test_limits_apply():
    gm = symbolic_trace(lambda x: (torch.sin(x), torch.sin(x + 1)))
    context = Context(limit=1)
    made = replace(gm, lambda a: torch.sin(a), lambda a: torch.cos(a), context)
    x = torch.randn(3)
    torch.testing.assert_close(made(x), (torch.cos(x), torch.sin(x + 1)))


def test_a_parameter_that_stands_twice_for_a_literal_is_the_same_literal():
    gm = symbolic_trace(lambda x: (x * 2 * 2, x * 2 * 3, x * 2 * 2.0))
    assert names(find(gm, lambda a, n: a * n * n)) == [["mul", "mul_1"]]


def test_two_values_of_a_pattern_are_two_values_of_the_graph():
    def once(x):
        y = torch.sin(x)
        return y + y

    def pattern(a, b):
        return torch.sin(a) + torch.sin(b)

    assert find(symbolic_trace(once), pattern) == []
    assert names(find(symbolic_trace(lambda x: torch.sin(x) + torch.sin(x)), pattern)) == [["sin", "sin_1", "add"]]
    assert find(symbolic_trace(lambda x: torch.sin(x) + 1), pattern) == []  # a literal is no value
    assert find(symbolic_trace(lambda x: torch.sin(x) + torch.cos(x)), pattern) == []


def test_a_pattern_may_be_a_graph():
    gm = symbolic_trace(lambda x: torch.relu(torch.sin(x)))
    pattern = symbolic_trace(lambda a: torch.relu(torch.sin(a)))
    assert names(find(gm, pattern)) == [["sin", "relu"]]
