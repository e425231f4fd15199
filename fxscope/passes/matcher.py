"""Patterns written as Python functions, found in a graph and replaced: no overlaps, no lost users, no cycles."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import TYPE_CHECKING, Any

from fxscope.passes.application import Context
from fxscope.passes.module import clone
from fxscope.passes.order import is_compute, order_edges
from fxscope.passes.split import check_convex, sort_topologically

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node


@dataclass(frozen=True, eq=False)
class Found:
    """One occurrence of a pattern.

    Attributes:
        nodes: Matched compute nodes in program order.
        inputs: What stands for each parameter of the pattern, in its order.
        outputs: Nodes that stand for the pattern's results.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Node, ...]


def pattern_graph(pattern: Callable[..., Any] | GraphModule) -> GraphModule:
    """A pattern as a graph: a function is traced symbolically, a module is taken as it is."""
    import torch

    if isinstance(pattern, torch.fx.GraphModule):
        return pattern
    return torch.fx.symbolic_trace(pattern)


def find(gm: GraphModule, pattern: Callable[..., Any] | GraphModule, context: Context | None = None) -> list[Found]:
    """All occurrences that can be replaced, in program order, none sharing a node with another.

    Commutative ops match in either order. A value in the middle of an occurrence must have no user outside it, and the
    occurrence must be convex. What fails only there is recorded in the context, with the reason.

    Args:
        gm: The graph to search.
        pattern: Parameters match anything (the same thing everywhere); literals match equal literals.
        context: Where occurrences that must be left alone are recorded.
    """
    shape = pattern_graph(pattern).graph
    results = _results(shape)
    if not results:
        return []
    anchor = results[-1]
    taken: set[Node] = set()
    found = []
    for node in gm.graph.nodes:
        if not is_compute(node):
            continue
        for binding in _match_all(results, anchor, node, gm.graph):
            hit = _occurrence(shape, results, binding)
            reason = _refuse(gm, hit, taken)
            if reason is None:
                taken.update(hit.nodes)
                found.append(hit)
                break
            if context is not None:
                context.skip(hit.nodes, *reason)
            if reason[0] == "overlap":
                break
    return found


def replace(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
    context: Context | None = None,
) -> GraphModule:
    """Replace every occurrence of a pattern that ``find`` allows; returns the module, changed.

    Args:
        gm: Changed in place.
        pattern: See ``find``.
        replacement: Takes the same parameters as the pattern and returns as many results.
        context: Records each match, and may limit them.
    """
    context = context if context is not None else Context()
    template = clone(pattern_graph(replacement))
    for hit in find(gm, pattern, context):
        if context.apply(hit.nodes):
            _substitute(gm, hit, template)
    sort_topologically(gm.graph)
    gm.recompile()
    gm.graph.lint()
    return gm


def _substitute(gm: GraphModule, hit: Found, template: GraphModule) -> None:
    places = template.graph.find_nodes(op="placeholder")
    values: dict[Node, Any] = dict(zip(places, _current(hit.inputs), strict=True))
    last = hit.nodes[-1]
    with gm.graph.inserting_before(last):
        for node in template.graph.nodes:
            if is_compute(node):
                values[node] = gm.graph.node_copy(node, values.__getitem__)
                values[node].meta = {k: v for k, v in last.meta.items() if k in ("stack_trace", "nn_module_stack")}
    for old, new in zip(hit.outputs, _results(template.graph), strict=True):
        made = values[new]
        for key in ("val", "example_value"):
            if key in old.meta:
                made.meta[key] = old.meta[key]
        old.replace_all_uses_with(made)
        old.meta["fxscope_replaced"] = made
    for node in reversed(hit.nodes):
        gm.graph.erase_node(node)


def _current(inputs: Sequence[Any]) -> list[Any]:
    """An input may have been an earlier occurrence's output: follow it to what replaced it."""
    done = []
    for item in inputs:
        while hasattr(item, "meta") and "fxscope_replaced" in item.meta:
            item = item.meta["fxscope_replaced"]
        done.append(item)
    return done


def _results(graph: Graph) -> list[Node]:
    import torch

    leaves = torch.utils._pytree.tree_leaves(graph.output_node().args[0])
    return [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)]


def _occurrence(shape: Graph, results: list[Node], binding: dict[Node, Any]) -> Found:
    inner = [binding[node] for node in shape.nodes if is_compute(node)]
    return Found(
        nodes=tuple(sorted(dict.fromkeys(inner))),
        inputs=tuple(binding.get(node) for node in shape.find_nodes(op="placeholder")),
        outputs=tuple(binding[node] for node in results),
    )


def _refuse(gm: GraphModule, hit: Found, taken: set[Node]) -> tuple[str, str] | None:
    inside, outputs = set(hit.nodes), set(hit.outputs)
    if inside & taken:
        return "overlap", f"{min(inside & taken).name} belongs to a match before it"
    for node in hit.nodes:
        outside = [user.name for user in node.users if user not in inside]
        if outside and node not in outputs:
            return "users", f"{node.name} is also used by {', '.join(outside)}"
    if len(outputs) > 1 or order_edges(gm.graph):
        circle = check_convex(gm, [hit.nodes])
        if circle is not None:
            return "cycle", circle
    return None


def _match_all(results: list[Node], anchor: Node, node: Node, graph: Graph) -> Iterator[dict[Node, Any]]:
    """Bindings of all results of a pattern, with the last one at ``node``."""
    rest = [result for result in results if result is not anchor]

    def extend(binding: dict[Node, Any], left: list[Node]) -> Iterator[dict[Node, Any]]:
        if not left:
            yield binding
            return
        if left[0] in binding:
            yield from extend(binding, left[1:])
            return
        for other in graph.nodes:
            if is_compute(other) and other not in binding.values():
                for wider in _match(left[0], other, binding):
                    yield from extend(wider, left[1:])

    for binding in _match(anchor, node, {}):
        yield from extend(binding, rest)


def _match(want: Any, got: Any, binding: dict[Node, Any]) -> Iterator[dict[Node, Any]]:
    """Bindings under which a pattern's argument is the graph's; ``binding`` is not changed."""
    if not hasattr(want, "op"):
        if isinstance(want, list | tuple) and isinstance(got, list | tuple) and len(want) == len(got):
            yield from _match_list(list(want), list(got), binding)
        elif type(want) is type(got) and want == got:
            yield binding
        return
    if want in binding:
        if binding[want] is got or (
            not hasattr(got, "op") and type(binding[want]) is type(got) and binding[want] == got
        ):
            yield binding
        return
    if want.op == "placeholder":
        yield {**binding, want: got}
        return
    if not hasattr(got, "op") or got.op != want.op or got.target != want.target or got in binding.values():
        return
    if want.op == "get_attr":
        yield {**binding, want: got}
        return
    if want.kwargs.keys() != got.kwargs.keys() or len(want.args) != len(got.args):
        return
    start = {**binding, want: got}
    orders = [tuple(got.args)]
    if _commutes(want) and len(got.args) >= 2:
        orders = [(*order, *got.args[2:]) for order in permutations(got.args[:2])]
    keys = list(want.kwargs)
    for order in orders:
        yield from _match_list(
            [*want.args, *(want.kwargs[key] for key in keys)], [*order, *(got.kwargs[key] for key in keys)], start
        )


def _match_list(want: list[Any], got: list[Any], binding: dict[Node, Any]) -> Iterator[dict[Node, Any]]:
    if not want:
        yield binding
        return
    for wider in _match(want[0], got[0], binding):
        yield from _match_list(want[1:], got[1:], wider)


def _commutes(node: Node) -> bool:
    """Whether the first two arguments may be swapped; with alpha they may not."""
    return node.target in _commutative() and not node.kwargs.get("alpha")


@cache
def _commutative() -> frozenset[Any]:
    import torch

    found: set[Any] = {operator.add, operator.mul, torch.add, torch.mul, torch.maximum, torch.minimum, "add", "mul"}
    for name in (
        "add",
        "mul",
        "maximum",
        "minimum",
        "logical_and",
        "logical_or",
        "bitwise_and",
        "bitwise_or",
        "eq",
        "ne",
    ):
        packet = getattr(torch.ops.aten, name)
        found |= {getattr(packet, overload) for overload in ("Tensor", "default") if hasattr(packet, overload)}
    return frozenset(found)
