"""Islands as modules of their own: cut out of the graph, and put back as calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.errors import CheckFailed
from fxscope.passes.module import attribute
from fxscope.passes.order import order_edges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.fx import GraphModule, Node

    from fxscope.passes.partition import Partition


def boundary(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """What crosses the edge of a set of nodes.

    Args:
        nodes: In program order.

    Returns:
        Inputs in the order of the whole graph, and the inner nodes whose value is used outside.
    """
    inside = set(nodes)
    used = dict.fromkeys(value for node in nodes for value in node.all_input_nodes if value not in inside)
    inputs = sorted(used)  # fx nodes compare by their place in the graph
    return inputs, [node for node in nodes if any(user not in inside for user in node.users)]


def extract(gm: GraphModule, nodes: Sequence[Node], name: str = "island") -> GraphModule:
    """A set of nodes as a module.

    Placeholders carry the names and meta of the values they stand for (parameters included, so that nothing has two
    owners), in the order of the whole graph; the output is always a tuple. Modules and attributes that nodes call by name
    (call_module, the branches of control flow) come along.
    """
    import torch
    from torch.fx import Graph, GraphModule

    inputs, outputs = boundary(nodes)
    attributes = {
        node: node
        for node in inputs
        if node.op == "get_attr" and isinstance(attribute(gm, str(node.target)), torch.nn.Module)
    }
    graph = Graph()
    copies: dict[Node, Node] = {}
    for value in inputs:
        if value in attributes:
            copies[value] = graph.get_attr(str(value.target))
        else:
            copies[value] = graph.placeholder(value.name)
        copies[value].meta = dict(value.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    root: dict[str, Any] = {str(node.target): attribute(gm, str(node.target)) for node in attributes}
    root.update({str(node.target): gm.get_submodule(str(node.target)) for node in nodes if node.op == "call_module"})
    made = GraphModule(root, graph, class_name=name)
    made.meta = {**gm.meta, "fxscope.island": name}
    return made


def split(gm: GraphModule, partition: Partition, prefix: str = "island") -> GraphModule:
    """The graph with each kept island as a submodule ``island_<index>``; everything else stays where it was.

    Args:
        gm: The module that was partitioned; it is left as it is.
        partition: Its partition.
        prefix: Of the submodules' names.

    Raises:
        CheckFailed: The islands depend on each other in a circle; the message walks along it.
    """
    import operator

    from torch.fx import Graph, GraphModule

    islands = {node: island for island in partition.kept for node in island.nodes}
    order = _schedule(gm, islands, partition.edges)
    graph = Graph()
    graph.set_codegen(gm.graph._codegen)
    copies: dict[Node, Node] = {}
    modules: dict[str, Any] = {}
    for unit in order:
        if unit[0] not in islands:
            copies[unit[0]] = graph.node_copy(unit[0], copies.__getitem__)
            continue
        island = islands[unit[0]]
        name = _free_name(gm, modules, f"{prefix}_{island.index}")
        modules[name] = extract(gm, unit, name)
        inputs, outputs = boundary(unit)
        inputs = [value for value in inputs if not _stays_inside(modules[name], value)]
        call = graph.call_module(name, tuple(copies[value] for value in inputs))
        call.meta["val"] = tuple(node.meta.get("val") for node in outputs)
        for at, node in enumerate(outputs):
            copies[node] = graph.create_node("call_function", operator.getitem, (call, at), {}, name=node.name)
            copies[node].meta = dict(node.meta)
    kept = {
        str(node.target): attribute(gm, str(node.target))
        for node in graph.nodes
        if node.op in ("get_attr", "call_module") and node.target not in modules
    }
    made = GraphModule({**kept, **modules}, graph, class_name="Split")
    made.meta = dict(gm.meta)
    made.graph.lint()
    return made


def _free_name(gm: GraphModule, taken: dict[str, Any], name: str) -> str:
    """The name, or one like it that the module does not have yet: it may have been split before."""
    free, count = name, 1
    while hasattr(gm, free) or free in taken:
        free, count = f"{name}_{count}", count + 1
    return free


def _stays_inside(island: GraphModule, value: Node) -> bool:
    return value.op == "get_attr" and any(
        node.op == "get_attr" and node.target == value.target for node in island.graph.nodes
    )


def _schedule(gm: GraphModule, islands: dict[Node, Any], edges: dict[Node, tuple[Node, ...]]) -> list[list[Node]]:
    """Units (one node, or all nodes of an island) in an order that respects data flow and order edges."""
    units: dict[Any, list[Node]] = {}
    for node in gm.graph.nodes:
        units.setdefault(islands.get(node, node), []).append(node)
    keys = {node: islands.get(node, node) for node in gm.graph.nodes}
    position = {key: at for at, key in enumerate(units)}
    waits: dict[Any, set[Any]] = {key: set() for key in units}
    for node in gm.graph.nodes:
        for before in (*node.all_input_nodes, *edges.get(node, ())):
            if keys[before] is not keys[node]:
                waits[keys[node]].add(keys[before])
    return [units[key] for key in _topological(waits, position)]


def _topological(waits: dict[Any, set[Any]], position: dict[Any, int]) -> list[Any]:
    """Kahn's order, always the unit that came first in the program among those that are ready."""
    import heapq

    users: dict[Any, list[Any]] = {}
    missing = {key: len(before) for key, before in waits.items()}
    for key, before in waits.items():
        for item in before:
            users.setdefault(item, []).append(key)
    back = list(position)
    ready = [position[key] for key, count in missing.items() if not count]
    heapq.heapify(ready)
    done = []
    while ready:
        key = back[heapq.heappop(ready)]
        done.append(key)
        for user in users.get(key, ()):
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, position[user])
    if len(done) < len(waits):
        raise CheckFailed(f"the islands depend on each other in a circle: {_circle(waits, set(done))}")
    return done


def _circle(waits: dict[Any, set[Any]], done: set[Any]) -> str:
    key = next(key for key in waits if key not in done)
    path: list[Any] = []
    while key not in path:
        path.append(key)
        key = min((item for item in waits[key] if item not in done), key=_label)
    return " <- ".join(_label(item) for item in [*path[path.index(key) :], key])


def _label(key: Any) -> str:
    return key.name if hasattr(key, "name") else f"{{{', '.join(node.name for node in key.nodes)}}}"


def check_convex(gm: GraphModule, groups: Iterable[Sequence[Node]]) -> str | None:
    """Whether sets of nodes can run as units; None, or the sentence that names the path or circle that forbids it."""
    from fxscope.passes.partition import Island

    islands = {
        node: island
        for at, group in enumerate(groups)
        for island in [Island(index=at, phase=at, nodes=tuple(group))]
        for node in group
    }
    try:
        _schedule(gm, islands, order_edges(gm.graph))
    except CheckFailed as error:
        return str(error)
    return None


def sort_topologically(graph: Any) -> None:
    """Put a graph's nodes in an order that runs, as near as possible to the order they have.

    Raises:
        CheckFailed: There is a circle.
    """
    nodes = list(graph.nodes)
    position = {node: at for at, node in enumerate(nodes)}
    waits: dict[Any, set[Any]] = {node: set(node.all_input_nodes) for node in nodes}
    for node, before in order_edges(graph).items():
        waits[node].update(before)
    done = _topological(waits, position)
    if done != nodes:
        last = graph.output_node()
        for node in done:
            if node is not last:
                last.prepend(node)
