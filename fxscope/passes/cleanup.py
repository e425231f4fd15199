"""Dead code, common subexpressions and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.passes.analysis import value_bytes
from fxscope.passes.application import Context
from fxscope.passes.module import attribute, value
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.order import alias_classes, erase_dead, has_effect, is_compute, is_dead, written

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

LARGE = 1 << 20  # bytes from which a constant must not be larger than what it is made of


def eliminate_dead_code(gm: GraphModule, context: Context) -> GraphModule:
    """Remove nodes whose value nobody uses.

    In-place writes, assertions and random numbers stay: removing them would change what the program does, even where their
    result is unused.
    """
    for node in reversed(list(gm.graph.nodes)):
        if node.users or not is_compute(node):
            continue
        if is_dead(node):
            if context.apply([node]):
                gm.graph.erase_node(node)
        elif written(node):
            context.skip([node], "mutation", f"{node.name} writes in place")
        else:
            context.skip([node], "effect", f"{node.name} has an effect beside its value")
    if context.limit is None:
        erase_dead(gm.graph)
    if context.applied:
        gm.recompile()
    return gm


def eliminate_common_subexpressions(gm: GraphModule, context: Context) -> GraphModule:
    """Compute equal calls on equal arguments once.

    Random numbers, values that are written to in place, and pairs that are both returned (the caller would get one tensor
    twice) are left alone. Bits do not change.
    """
    import torch

    writes = [used for node in gm.graph.nodes if is_compute(node) for used in written(node)]
    classes = alias_classes(list(gm.graph.nodes)) if writes else {}
    stored = {classes[used] for used in writes}
    returned = set(gm.graph.output_node().all_input_nodes)
    seen: dict[Any, Node] = {}
    for node in list(gm.graph.nodes):
        if node.op not in ("call_function", "call_method", "get_attr"):
            continue
        arguments, spec = torch.utils._pytree.tree_flatten((node.args, dict(node.kwargs)))
        try:
            # Types and signs too: 1, 1.0 and True are equal, and 0.0 and -0.0, but not the same argument.
            exact = tuple((type(item), repr(item) if isinstance(item, float | complex) else item) for item in arguments)
            key = (node.op, node.target, str(spec), exact)
            first = seen.setdefault(key, node)
        except TypeError:  # an unhashable literal: never equal to anything
            continue
        if first is node or (node.op == "get_attr" and not node.users):
            continue
        if is_compute(node) and has_effect(node):
            context.skip([first, node], "random", f"{node.name} draws or has an effect each time")
        elif node in classes and classes[node] in stored:
            context.skip([first, node], "mutated", f"{node.name} or what it reads is written in place")
        elif node in returned and first in returned:
            context.skip([first, node], "returned", f"{first.name} and {node.name} are both returned")
        elif context.apply([first, node], f"{node.name} is {first.name}"):
            node.replace_all_uses_with(first)
            gm.graph.erase_node(node)
            if node in returned:
                returned.add(first)
    if context.applied:
        gm.recompile()
    return gm


def fold_constants(gm: GraphModule, context: Context) -> GraphModule:
    """Evaluate what depends on no input and no parameter, once, now.

    Results larger than a megabyte that are larger than what they are made of stay expressions (``zeros(4096, 4096)``).
    """
    return _fold(gm, context, parameters=False)


def freeze(gm: GraphModule, context: Context) -> GraphModule:
    """Evaluate what depends on parameters and buffers only, so that folded weights are computed once.

    Afterwards a change of a parameter no longer shows in the graph, and no gradient reaches it: refused for every value that
    needs a gradient, unless the caller promises inference. Each record names the attributes it replaces.
    """
    return _fold(gm, context, parameters=True)


def _fold(gm: GraphModule, context: Context, *, parameters: bool) -> GraphModule:
    import torch

    owned = {name for name, _ in gm.named_parameters(remove_duplicate=False)}
    buffers = {name for name, _ in gm.named_buffers(remove_duplicate=False) if "_constant" not in name}
    stored = {used for node in gm.graph.nodes if is_compute(node) for used in written(node)}
    mutated = {str(node.target) for node in stored if node.op == "get_attr"}
    roots: dict[Node, frozenset[str]] = {}  # constant nodes, with the attributes they are made of
    env: dict[Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            name = str(node.target)
            if isinstance(attribute(gm, name), torch.Tensor) and (parameters or name not in owned | buffers):
                roots[node] = frozenset((name,))
        elif (
            node.op == "call_function"
            and all(used in roots for used in node.all_input_nodes)
            and (node.all_input_nodes or isinstance(value(node), torch.Tensor))
        ):
            roots[node] = frozenset().union(*(roots[used] for used in node.all_input_nodes))
    count = sum(name.startswith("_folded_") for name, _ in gm.named_buffers())
    for node in list(gm.graph.nodes):
        if node not in roots or node.op == "get_attr" or all(user in roots for user in node.users) or not node.users:
            continue
        if not isinstance(value(node), torch.Tensor) or _only_views(node):
            continue
        reason = _refuse_constant(gm, node, roots, mutated, stored, context)
        if reason is not None:
            context.skip([node], *reason)
            continue
        name = f"_folded_{count}"
        if not context.apply([node], f"{name} replaces {', '.join(sorted(roots[node])) or 'literals'}"):
            continue
        result = _evaluate(gm, node, env)
        count += 1
        gm.register_buffer(name, result)
        with gm.graph.inserting_before(node):
            new = gm.graph.get_attr(name)
        new.meta = {key: item for key, item in node.meta.items() if key in ("val", "stack_trace", "example_value")}
        node.replace_all_uses_with(new)
        roots[new] = frozenset((name,))
    if context.applied:
        erase_dead(gm.graph)
        gm.delete_all_unused_submodules()
        gm.recompile()
    return gm


def _refuse_constant(
    gm: GraphModule,
    node: Node,
    roots: dict[Node, frozenset[str]],
    mutated: set[str],
    stored: set[Node],
    context: Context,
) -> tuple[str, str] | None:
    """The first reason against evaluating a node: its id and the sentence."""
    import torch

    tensors = {name: attribute(gm, name) for name in roots[node]}
    if written_names := mutated & set(tensors):
        return "mutated", f"{', '.join(sorted(written_names))} is written to"
    todo, seen = [node], set()
    while todo:
        item = todo.pop()
        if item in seen or item.op == "get_attr":
            continue
        seen.add(item)
        if has_effect(item):
            return "random", f"{item.name} draws or has an effect each time"
        if item in stored or written(item):
            return "mutated", f"{item.name} is written in place"
        todo += item.all_input_nodes
    grads = sorted(name for name, item in tensors.items() if isinstance(item, torch.Tensor) and item.requires_grad)
    if grads and not context.inference:
        return "grad", f"{', '.join(grads)} may need a gradient; promise inference to freeze it"
    size = value_bytes(value(node))
    if size > LARGE and size > sum(map(value_bytes, tensors.values())):
        return "too-large", f"{size:,} bytes from {sum(map(value_bytes, tensors.values())):,}"
    return None


def _only_views(node: Node) -> bool:
    """Whether a value is an attribute seen differently: evaluating it would only cost memory."""
    while node.op != "get_attr" and is_no_op(node) and "clone" not in str(node.target) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.op == "get_attr"


def _evaluate(gm: GraphModule, node: Node, env: dict[Node, Any]) -> Any:
    import torch

    order: list[Node] = []
    todo = [(node, False)]
    while todo:
        item, ready = todo.pop()
        if item in env:
            continue
        if ready:
            order.append(item)
            env[item] = None
            continue
        todo.append((item, True))
        todo += [(used, False) for used in item.all_input_nodes if used not in env]
    with torch.no_grad():
        for item in order:
            if item.op == "get_attr":
                env[item] = attribute(gm, str(item.target)).detach()
            else:
                args, kwargs = torch.fx.node.map_arg((item.args, dict(item.kwargs)), env.__getitem__)
                env[item] = item.target(*args, **kwargs)
    return env[node].clone()
