"""Order that data flow does not show: mutation of aliased storage, random numbers and other side effects."""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph, Node

_IN_PLACE_OPERATORS = frozenset(
    (
        operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
        operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift, operator.ipow,
        operator.imatmul, operator.setitem,
    )
)  # fmt: skip


def is_compute(node: Node) -> bool:
    """Whether a node does something: everything but placeholders, attributes and the output."""
    return node.op not in ("placeholder", "get_attr", "output")


def written(node: Node) -> list[Node]:
    """Nodes whose value this node writes to.

    ATen overloads say it in their schema; of other calls, names that end in one underscore, in-place operators and
    ``out=`` are known to write.
    """
    if statistics := _running_statistics(node):
        return statistics
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        if not schema.is_mutable:
            return []
        hit: list[Node] = []
        for index, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            hit += [item for item in (value if isinstance(value, list | tuple) else (value,)) if _is_node(item)]
        return hit
    if node.op == "call_module":
        return []  # a module may write to its own buffers; effects() orders it
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    hit = []
    in_place = name.endswith("_") and not name.endswith("__")
    if (in_place or name == "__setitem__" or node.target in _IN_PLACE_OPERATORS or node.kwargs.get("inplace")) and (
        node.args and _is_node(node.args[0])
    ):
        hit.append(node.args[0])
    out = node.kwargs.get("out")
    hit += [item for item in (out if isinstance(out, list | tuple) else (out,)) if _is_node(item)]
    return hit


@cache
def _norms() -> dict[object, tuple[str, ...]]:
    """Argument names of the norms that write to their running statistics in training, whatever their schema says."""
    import torch

    functional = ("input", "running_mean", "running_var", "weight", "bias", "training")
    native = ("input", "weight", "bias", "running_mean", "running_var", "training")
    aten = torch.ops.aten
    return {
        torch.nn.functional.batch_norm: functional,
        torch.nn.functional.instance_norm: functional,
        torch.batch_norm: native,
        torch.instance_norm: native,
        aten.batch_norm.default: native,
        aten.instance_norm.default: native,
    }


def _running_statistics(node: Node) -> list[Node]:
    names = _norms().get(node.target) if node.op == "call_function" else None
    if names is None:
        return []
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    default = "instance_norm" in str(node.target)
    if given.get("training", given.get("use_input_stats", default)) is False:
        return []
    return [item for item in (given.get("running_mean"), given.get("running_var")) if _is_node(item)]


def has_effect(node: Node) -> bool:
    """Whether a node must keep its place among others of its kind: assertions, random numbers, prints, modules in training."""
    import torch

    if node.op == "call_module":
        module = node.graph.owning_module
        child = module.get_submodule(str(node.target)) if module is not None else None
        return child is None or (child.training and any(True for _ in child.modules()) and _may_draw(child))
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        # torch knows of some overloads of its assertions only.
        asserts = "::_assert" in target._schema.name
        return asserts or torch.Tag.nondeterministic_seeded in target.tags or node.is_impure()
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True  # its body may do anything
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if "dropout" in name or "assert" in name or name in _DRAWS:
        return True
    return not node.users and not _is_pure(node, name)


def _is_pure(node: Node, name: str) -> bool:
    """Whether a torch-level call that nobody uses may go: it makes a value, or is a plain function of tensors."""
    if node.meta.get("val", node.meta.get("example_value")) is not None:
        return True
    if node.op == "call_method":
        return name not in ("backward", "register_hook", "retain_grad", "set_", "requires_grad_")
    module = getattr(node.target, "__module__", None) or ""
    known = module.startswith(("torch.nn.functional", "_operator", "math")) or module in ("torch", "torch._C._nn", "")
    return known and not name.startswith(("_", "set_", "print"))


_DRAWS = frozenset(
    ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial",
     "normal", "bernoulli_", "normal_", "uniform_", "random_", "exponential_", "manual_seed", "print")
)  # fmt: skip


def _may_draw(module: Any) -> bool:
    return any(
        "Dropout" in type(child).__name__ or getattr(child, "track_running_stats", False) for child in module.modules()
    )


def is_dead(node: Node) -> bool:
    """Whether removing a node changes nothing.

    ``Graph.eliminate_dead_code`` is no help on torch-level graphs: it takes ``x.add_(1)`` for dead when nobody uses its result.
    """
    return is_compute(node) and not node.users and not written(node) and not has_effect(node)


def erase_dead(graph: Graph) -> list[Node]:
    """Remove dead nodes, unused attributes included; returns what went, in program order."""
    gone = []
    for node in reversed(list(graph.nodes)):
        if is_dead(node) or (node.op == "get_attr" and not node.users):
            graph.erase_node(node)
            gone.append(node)
    return gone[::-1]


def order_edges(graph: Graph) -> dict[Node, tuple[Node, ...]]:
    """For each node, the nodes that must run before it although it does not use their value.

    A write comes after every earlier reader of the same storage, and before every later one; side effects keep their
    order among each other. Storage is followed through every op that may return a view: the schema says so for ATen
    overloads, the fake tensors' storage where there are any, and otherwise any result may alias any input.
    Linear in nodes and edges; a graph without writes and effects has no edges.

    Args:
        graph: In program order.
    """
    nodes = list(graph.nodes)
    writes = {node: hit for node in nodes if is_compute(node) and (hit := written(node))}
    edges: dict[Node, dict[Node, None]] = {}

    def add(before: Node, after: Node) -> None:
        if before is not after:
            edges.setdefault(after, {})[before] = None

    last_effect: Node | None = None
    for node in nodes:
        if is_compute(node) and has_effect(node):
            if last_effect is not None:
                add(last_effect, node)
            last_effect = node
    if writes:
        classes = alias_classes(nodes)
        last_write: dict[Node, Node] = {}
        readers: dict[Node, list[Node]] = {}
        for node in nodes:
            stored = {classes[used] for used in writes.get(node, ())}
            for storage in dict.fromkeys(classes[used] for used in node.all_input_nodes):
                if storage in last_write:
                    add(last_write[storage], node)
                if storage in stored:
                    for reader in readers.pop(storage, ()):
                        add(reader, node)
                    last_write[storage] = node
                else:
                    readers.setdefault(storage, []).append(node)
    return {node: tuple(before) for node, before in edges.items()}


def alias_classes(nodes: list[Node]) -> dict[Node, Node]:
    """Each node's representative among the nodes that may share its storage (union-find)."""
    parent: dict[Node, Node] = {}

    def find(node: Node) -> Node:
        while parent.setdefault(node, node) is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in nodes:
        find(node)
        if node.op == "output":
            continue
        for used in node.all_input_nodes:
            if _may_alias(node, used):
                parent[find(node)] = find(used)
    seen: dict[Any, Node] = {}
    for node in nodes:
        if node.op == "get_attr":  # two get_attr nodes of one name are one storage
            first = seen.setdefault(node.target, node)
            parent[find(node)] = find(first)
    return {node: find(node) for node in nodes}


def _may_alias(node: Node, used: Node) -> bool:
    if used in written(node):
        return True
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        if all(result.alias_info is None for result in schema.returns):
            return False
        for index, argument in enumerate(schema.arguments):
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            among = value if isinstance(value, list | tuple) else (value,)
            if argument.alias_info is not None and any(item is used for item in among):
                return True
        return False
    here, there = _storages(node), _storages(used)
    return not here or not there or bool(here & there)


def _storages(node: Node) -> set[int]:
    import torch

    value = node.meta.get("val", node.meta.get("example_value"))
    found = set()
    for item in value if isinstance(value, tuple | list) else (value,):
        if isinstance(item, torch.Tensor) and item.layout is torch.strided:
            found.add(item.untyped_storage()._cdata)
    return found


def _is_node(value: object) -> bool:
    import torch

    return isinstance(value, torch.fx.Node)
