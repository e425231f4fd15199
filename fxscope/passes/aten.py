"""A graph as Dynamo gives it, or a graph of modules, lowered to functional ATen ops of the same call signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError, described
from fxscope.passes.attention import with_logsumexp
from fxscope.passes.module import attribute
from fxscope.passes.private import private
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

Table = Mapping[Any, Callable[..., Any]]
LOWERING = "lowering to functional ATen"
TABLES = ("none", "core", "inductor", "prims")


def decomposition_table(choice: str | Table) -> dict[Any, Callable[..., Any]]:
    """Decompositions by name.

    Args:
        choice: ``none`` (composite ops only), ``core`` (PyTorch's core ATen set), ``inductor`` (what Inductor uses),
            ``prims`` (everything that has a decomposition, down to prims), or a table of overload to function.

    Raises:
        UsageError: An unknown name.
    """
    feature = f"the table of decompositions '{choice}'"
    if not isinstance(choice, str):
        return dict(choice)
    if choice == "none":
        return {}
    if choice == "core":
        return _mended(private("torch._decomp.core_aten_decompositions", feature)())
    if choice == "inductor":
        table = private("torch._inductor.decomposition.select_decomp_table", feature)
        private("torch._inductor.lowering", feature)  # some functions of the table ask it what Inductor would do
        return dict(table())
    if choice == "prims":
        return _mended(private("torch._decomp.decomposition_table", feature))
    raise UsageError(f"no table of decompositions '{choice}'; one of {', '.join(TABLES)}")


def _mended(table: Table) -> dict[Any, Callable[..., Any]]:
    import torch

    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return {op: with_logsumexp(function) if op is flash else function for op, function in table.items()}


def to_aten(
    gm: GraphModule, inputs: Sequence[Any], *, decompositions: str | Table = "core", dynamic: bool = False
) -> GraphModule:
    """Lower a graph to functional ATen overloads, without running it on real data.

    Parameters and buffers stay attributes of the module under their old names (the same objects), in-place ops become pure
    ones, and an input or buffer that the graph writes to is written once at the end (``copy_``). Every node has
    ``meta["val"]`` and keeps the user's line (``stack_trace``) of the node it came from.

    Args:
        gm: Takes ``inputs`` in placeholder order.
        inputs: Tensors (real or fake) and numbers; only shapes and dtypes matter.
        decompositions: What to take apart on the way, see ``decomposition_table``.
        dynamic: Keep sizes symbolic.

    Raises:
        UsageError: The graph cannot be traced with fake tensors (a custom op without a fake kernel, say), in one line.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta
    from torch.utils._pytree import TreeSpec, tree_flatten

    table = decomposition_table(decompositions)
    enable_python_dispatcher = private("torch._dispatch.python.enable_python_dispatcher", LOWERING)
    owned = tensors_of(gm)
    runner = interpreter_module(gm)
    given = gm.graph.find_nodes(op="placeholder")
    if len(given) != len(inputs):
        raise UsageError(f"the graph takes {count(len(given), 'input')}; {len(inputs)} were given")
    spec: list[TreeSpec] = []

    def inner(*flat: Any) -> list[Any]:
        state = {f"gm.{name}": value for name, value in zip(owned, flat, strict=False)}
        leaves, tree = tree_flatten(torch.func.functional_call(runner, state, flat[len(owned) :]))
        spec[:] = [tree]
        return leaves

    mode = "symbolic" if dynamic else "fake"
    traced = functional(inner)
    try:
        with torch.no_grad(), preserve_node_meta(), enable_python_dispatcher():
            made = make_fx(traced, decomposition_table=table, tracing_mode=mode, _allow_non_fake_inputs=True)(
                *owned.values(), *inputs
            )
    except Exception as error:
        raise UsageError(f"the graph cannot be lowered to ATen: {described(error)}") from error
    return _unlift(made, gm, owned, spec[0])


def functional(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The same function without in-place ops inside, as AOTAutograd makes it: written inputs are copied to once, last.

    ``torch.func.functionalize`` will not do: it works below the place where batch_norm becomes an op that admits to writing
    its running statistics.
    """
    import torch

    tensor_type = private("torch._subclasses.functional_tensor.FunctionalTensor", LOWERING)
    tensor_mode = private("torch._subclasses.functional_tensor.FunctionalTensorMode", LOWERING)
    sync, plain = private("torch._sync", LOWERING), private("torch._from_functional_tensor", LOWERING)
    keyset, key = private("torch._C.DispatchKeySet", LOWERING), private("torch._C.DispatchKey", LOWERING)
    excluded = private("torch._C._ExcludeDispatchKeyGuard", LOWERING)

    def wrap(value: Any) -> Any:
        return tensor_type.to_functional(value) if isinstance(value, torch.Tensor) else value

    def unwrap(value: Any) -> Any:
        if not isinstance(value, tensor_type):
            return value
        sync(value)
        return plain(value.elem)

    def run(*flat: Any) -> list[Any]:
        with excluded(keyset(key.Functionalize)), tensor_mode():
            wrapped = [wrap(value) for value in flat]
            results = [unwrap(value) for value in function(*wrapped)]
            after = [unwrap(value) for value in wrapped]
        for before, now in zip(flat, after, strict=True):
            if now is not before:
                before.copy_(now)
        return results

    return run


def interpreter_module(gm: GraphModule) -> Any:
    """A module that interprets ``gm`` node by node, so that new nodes inherit the meta of old ones."""
    import torch

    class Runner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gm = gm

        def forward(self, *inputs: Any) -> Any:
            return torch.fx.Interpreter(self.gm).run(*inputs)

    return Runner()


def tensors_of(gm: GraphModule) -> dict[str, Any]:
    """Parameters and buffers by name, each tensor once (a tied one under its first name)."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for name, value in (*gm.named_parameters(), *gm.named_buffers()):
        if id(value) not in seen:
            seen.add(id(value))
            found[name] = value
    return found


def _unlift(made: GraphModule, gm: GraphModule, owned: dict[str, Any], spec: Any) -> GraphModule:
    """Put the leading placeholders back as attributes, and give the others their old names."""
    from torch.fx import Graph, GraphModule

    graph = Graph()
    copies: dict[Node, Node] = {}
    old = made.graph.find_nodes(op="placeholder")
    given = gm.graph.find_nodes(op="placeholder")
    attributes: dict[str, Any] = {}
    for at, node in enumerate(old):
        if at >= len(owned):
            source = given[at - len(owned)]
            copies[node] = graph.create_node("placeholder", source.target, name=source.name)
            copies[node].meta = {**source.meta, **node.meta}
    for (name, value), node in zip(owned.items(), old, strict=False):
        if node.users:
            copies[node] = graph.get_attr(name)
            copies[node].meta = dict(node.meta)
            attributes[name] = value
    for node in made.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            graph.output(spec.unflatten([copies.get(leaf, leaf) for leaf in node.args[0]]))
            continue
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op in ("get_attr", "call_module"):
            attributes[str(node.target)] = attribute(made, str(node.target))
    lowered = GraphModule(attributes, graph, class_name=type(gm).__name__)
    lowered.graph.eliminate_dead_code()
    lowered.graph.lint()
    lowered.recompile()
    lowered.meta = dict(gm.meta)
    return lowered
