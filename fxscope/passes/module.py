"""GraphModules: copies, attributes, values of nodes, and new nodes that know their shape."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node


def clone(gm: GraphModule) -> GraphModule:
    """The same graph in a new module that shares parameters, buffers and submodules with the old one."""
    from torch.fx import Graph, GraphModule

    graph = Graph()
    graph.set_codegen(gm.graph._codegen)
    copies: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta = dict(node.meta)
    made = GraphModule(gm, graph, class_name=type(gm).__name__)
    made.train(gm.training) if not any(True for _ in gm.children()) else None
    made.meta = dict(gm.meta)
    return made


def attribute(gm: Any, path: str) -> Any:
    """What a get_attr or call_module node names."""
    for part in path.split("."):
        gm = getattr(gm, part)
    return gm


def value(node: Node) -> Any:
    """What is known of a node's value: ``meta["val"]``, Dynamo's ``example_value``, or the attribute itself; else None."""
    found = node.meta.get("val", node.meta.get("example_value"))
    if found is None and node.op == "get_attr" and node.graph.owning_module is not None:
        return attribute(node.graph.owning_module, str(node.target))
    return found


def state_keys(gm: GraphModule) -> set[str]:
    """Keys of the ``state_dict`` that a module with this graph needs: what its nodes read and the modules that they call."""
    import torch

    keys: set[str] = set()
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            found = attribute(gm, str(node.target))
            if isinstance(found, torch.Tensor):
                keys.add(str(node.target))
            elif isinstance(found, torch.nn.Module):
                keys.update(f"{node.target}.{key}" for key in found.state_dict())
    return keys


def is_aten(gm: GraphModule) -> bool:
    """Whether every call is an ATen (or prims, or custom) overload, a higher-order op, or arithmetic on sizes."""
    import torch

    kinds = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    for node in gm.graph.nodes:
        if node.op in ("call_module", "call_method"):
            return False
        if node.op == "call_function" and not isinstance(node.target, kinds) and node.target is not operator.getitem:
            known = node.meta.get("val")
            if isinstance(known, torch.Tensor) or known is None:
                return False
    return True


class Emitter:
    """Makes nodes before a given one, with ``meta["val"]`` and the user's line of the node they replace."""

    def __init__(self, before: Node) -> None:
        self.graph: Graph = before.graph
        self.before = before

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """One call_function node."""
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args, kwargs)
        return self._describe(node, target)

    def attribute(self, path: str) -> Node:
        """One get_attr node."""
        with self.graph.inserting_before(self.before):
            node = self.graph.get_attr(path)
        found = attribute(self.graph.owning_module, path)
        like = next((value(other) for other in self.graph.nodes if "val" in other.meta), None)
        mode = getattr(like, "fake_mode", None)
        if mode is not None and hasattr(found, "shape"):
            node.meta["val"] = mode.from_tensor(found, static_shapes=True)
        return self._describe(node, None)

    def _describe(self, node: Node, target: Callable[..., Any] | None) -> Node:
        for key in ("stack_trace", "nn_module_stack"):
            if key in self.before.meta:
                node.meta[key] = self.before.meta[key]
        if target is not None:
            known = [value(used) for used in node.all_input_nodes]
            mode = next((item.fake_mode for item in known if hasattr(item, "fake_mode")), None)
            if mode is not None and all(item is not None for item in known):
                node.meta["val"] = _fake_result(mode, target, node)
        return node


# A network folds many layers of few shapes: what an op makes of tensors of one description is asked once.
_RESULTS: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def _fake_result(mode: Any, target: Callable[..., Any], node: Node) -> Any:
    import torch

    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), value)

    def describe(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return (item.dtype, item.device, tuple(item.shape), item.stride())
        if isinstance(item, list | tuple):
            return tuple(map(describe, item))
        return (type(item), item)

    try:
        key = (target, describe(args), tuple((name, describe(item)) for name, item in kwargs.items()))
        hash(key)
    except TypeError:  # a symbolic size or another unhashable argument
        key = None
    cache = _RESULTS.setdefault(mode, {})
    if key is not None and key in cache:
        return cache[key]
    allow, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with mode, torch.no_grad():
            result = target(*args, **kwargs)
    finally:
        mode.allow_non_fake_inputs = allow
    if key is not None:
        cache[key] = result
    return result
