"""Lowering as a pass: torch functions to ATen, in-place to pure, composite ops to simpler ones; op by op on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError
from fxscope.passes.application import Context
from fxscope.passes.aten import TABLES, decomposition_table, to_aten
from fxscope.passes.fx_records import target_text
from fxscope.passes.module import is_aten
from fxscope.passes.order import is_compute, written

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def decompose(gm: GraphModule, context: Context) -> GraphModule:
    """Take ops apart into simpler ones, as AOTAutograd does before a compiler sees the graph.

    Torch functions, methods and modules become ATen overloads; in-place ops become pure ones, with one copy at the end where an
    input is written; then each op that the chosen table knows becomes what the table says. The argument chooses: ``core``
    (the default: PyTorch's core ATen set), ``inductor``, ``prims``, ``none`` (ATen only), or ops by name
    (``decompose:aten.gelu+aten.silu``). Each op of the graph that came apart is one record with what it became.

    Raises:
        UsageError: No inputs, no such table or op, or a graph that cannot be lowered to ATen.
    """
    if context.inputs is None:
        raise UsageError("decompose needs inputs (only their shapes matter)")
    choice = str(context.options.get("argument") or "core")
    table = select(choice)
    if not is_aten(gm):
        kinds = [node for node in gm.graph.nodes if is_compute(node)]
        if context.limit is not None:  # step one: everything to ATen; the next steps take ops apart
            if not context.apply(kinds, "torch to functional ATen"):
                return gm
            return to_aten(gm, context.inputs, decompositions={})
    if context.limit is not None:
        return _first_only(gm, context, table)
    made = to_aten(gm, context.inputs, decompositions=table)
    for node, parts in became(gm, made).items():
        same = len(parts) == 1 and parts[0].target is node.target
        if not same:
            text = f"{target_text(node)} -> {', '.join(dict.fromkeys(map(target_text, parts))) or 'nothing'}"
            if written(node):
                text += " (no longer in place)"
            context.apply([node], text)
    return made


def _first_only(gm: GraphModule, context: Context, table: dict[Any, Any]) -> GraphModule:
    """One op of the graph, all its calls, taken apart."""
    assert context.inputs is not None
    seen = dict.fromkeys(node.target for node in gm.graph.nodes if node.op == "call_function" and node.target in table)
    for target in seen:
        made = to_aten(gm, context.inputs, decompositions={target: table[target]})
        if not any(node.target is target for node in made.graph.nodes):
            nodes = [node for node in gm.graph.nodes if node.target is target]
            parts = became(gm, made).get(nodes[0], [])
            text = f"{target} -> {', '.join(dict.fromkeys(map(target_text, parts))) or 'nothing'}"
            return made if context.apply(nodes, text) else gm
    return gm


def select(choice: str) -> dict[Any, Any]:
    """The table of that name, or of those ops only.

    Raises:
        UsageError: Neither a table nor an op that has a decomposition.
    """
    if choice in TABLES:
        return decomposition_table(choice)
    everything = {**decomposition_table("prims"), **decomposition_table("inductor")}
    table = {}
    for name in choice.split("+"):
        found = {
            op: function for op, function in everything.items() if str(op) == name or str(op).rsplit(".", 1)[0] == name
        }
        if not found:
            raise UsageError(
                f"decompose:{name} is neither a table ({', '.join(TABLES)}) nor an op with a decomposition"
            )
        table.update(found)
    return table


def check_tables(argument: str) -> None:
    """Raises UsageError where a choice is neither a table nor an op that has a decomposition."""
    if argument and argument not in TABLES:
        select(argument)


def became(before: GraphModule, after: GraphModule) -> dict[Node, list[Node]]:
    """For each compute node of the first graph, the nodes of the second that came from it."""
    by_name = {node.name: node for node in before.graph.nodes}
    parts: dict[Node, list[Node]] = {node: [] for node in before.graph.nodes if is_compute(node)}
    for node in after.graph.nodes:
        if not is_compute(node):
            continue
        origin = node.meta.get("from_node") or ()
        for source in reversed(origin):
            found = by_name.get(source.name)
            if found is not None and found in parts:
                parts[found].append(node)
                break
    return parts
