"""Training: the joint graph, its cut into forward and backward, and what is saved between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.errors import UsageError, described
from fxscope.passes.analysis import node_flops, value_bytes
from fxscope.passes.aten import Table, decomposition_table, interpreter_module, tensors_of
from fxscope.passes.module import clone
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.private import private

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import GraphModule, Node

JOINT = "the joint graph"
PARTITIONERS = ("default", "min-cut")


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One value that the forward keeps for the backward.

    Attributes:
        origin: ``input`` where it is a parameter or input (kept alive anyway), ``activation`` where the forward made it.
        bytes: Of the memory it keeps alive; 0 where another saved value keeps the same.
    """

    name: str
    origin: str
    bytes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """A joint graph cut into forward and backward.

    Attributes:
        partitioner: ``default`` or ``min-cut``.
        budget: The activation memory budget it was cut under, 1.0 for none.
        saved: Values that cross.
        recomputed: Names of forward nodes that the backward computes again.
        recomputed_flops: What that costs, a multiply-add being 2.
    """

    partitioner: str
    budget: float
    forward: GraphModule
    backward: GraphModule
    saved: tuple[Saved, ...]
    recomputed: tuple[str, ...]
    recomputed_flops: int

    @property
    def activation_bytes(self) -> int:
        """Bytes kept for the backward that would otherwise be free."""
        return sum(value.bytes for value in self.saved if value.origin == "activation")


@dataclass(frozen=True, kw_only=True, eq=False)
class Joint:
    """A traced training graph.

    Attributes:
        graph: Inputs are ``primals_*`` and ``tangents_*``; outputs the forward's, then one gradient per primal.
        num_forward_outputs: How many of the outputs are the forward's.
    """

    graph: GraphModule
    num_forward_outputs: int

    def cut(self, partitioner: str = "default", *, budget: float = 1.0) -> Cut:
        """Cut it; the joint graph is left as it is.

        Args:
            partitioner: ``default`` or ``min-cut``.
            budget: Share of the default's activation memory that min-cut may keep, 0 to 1.

        Raises:
            UsageError: An unknown partitioner, or a budget outside 0 to 1.
        """
        if not 0 <= budget <= 1:
            raise UsageError(f"a memory budget is between 0 and 1, not {budget}")
        function = partition_function(partitioner)
        graph = clone(self.graph)
        inputs = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
        with _budget(budget):
            forward, backward = function(graph, inputs, num_fwd_outputs=self.num_forward_outputs)
        recomputed = _recomputed(forward, backward)
        return Cut(
            partitioner=partitioner,
            budget=budget,
            forward=forward,
            backward=backward,
            saved=saved(forward, backward, self.num_forward_outputs),
            recomputed=tuple(node.name for node in recomputed),
            recomputed_flops=_flops(recomputed),
        )

    def sweep(self, budgets: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0)) -> list[Cut]:
        """Min-cut under several memory budgets, smallest first: memory against recomputation."""
        return [self.cut("min-cut", budget=budget) for budget in sorted(budgets)]


class CutRow(msgspec.Struct, kw_only=True):
    """One cut, as ``fxscope passes --cuts`` prints it.

    Attributes:
        activation_bytes: Kept for the backward that would otherwise be free.
        input_bytes: Parameters and inputs that the backward reads; they are alive anyway.
        saved: Names of the activations, largest first.
    """

    partitioner: str
    budget: float
    activation_bytes: int
    input_bytes: int
    recomputed: list[str]
    recomputed_flops: int
    saved: list[str]


def cut_rows(joint: Joint, budgets: Sequence[float] = (1.0, 0.75, 0.5, 0.25, 0.0)) -> list[CutRow]:
    """The default cut, then min-cut under falling memory budgets."""
    cuts = [joint.cut("default"), *(joint.cut("min-cut", budget=budget) for budget in budgets)]
    rows = []
    for cut in cuts:
        kept = [item for item in cut.saved if item.origin == "activation"]
        rows.append(
            CutRow(
                partitioner=cut.partitioner,
                budget=cut.budget,
                activation_bytes=cut.activation_bytes,
                input_bytes=sum(item.bytes for item in cut.saved if item.origin == "input"),
                recomputed=list(cut.recomputed),
                recomputed_flops=cut.recomputed_flops,
                saved=[item.name for item in sorted(kept, key=lambda item: (-item.bytes, item.name))],
            )
        )
    return rows


def to_joint(gm: GraphModule, inputs: Sequence[Any], *, decompositions: str | Table = "inductor") -> Joint:
    """Trace forward and backward of a graph together, by AOTAutograd, without running it.

    Args:
        gm: A graph as Dynamo gives it; parameters may be inputs or attributes.
        inputs: In placeholder order; at least one input or parameter requires a gradient.
        decompositions: See ``aten.decomposition_table``.

    Raises:
        UsageError: Nothing requires a gradient, or AOTAutograd refuses the graph, in one line.
    """
    import torch

    aot_module_simplified = private("torch._functorch.aot_autograd.aot_module_simplified", JOINT)
    make_boxed_func = private("torch._functorch.aot_autograd.make_boxed_func", JOINT)
    preserve_rng_state = private("torch._dynamo.utils.preserve_rng_state", JOINT)
    found: list[Joint] = []

    def keep(joint: GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **rest: Any) -> Any:
        found.append(Joint(graph=clone(joint), num_forward_outputs=num_fwd_outputs))
        return partition_function("default")(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **rest)

    owned, flat = _lift(gm)
    try:
        with torch.enable_grad(), preserve_rng_state():
            aot_module_simplified(
                flat,
                [*owned, *inputs],
                fw_compiler=lambda graph, _: make_boxed_func(graph),
                bw_compiler=lambda graph, _: make_boxed_func(graph),
                partition_fn=keep,
                decompositions=decomposition_table(decompositions),
            )
    except Exception as error:
        raise UsageError(f"no joint graph: {described(error)}") from error
    if not found:
        raise UsageError("no joint graph: no input and no parameter requires a gradient, or no output depends on one")
    return found[0]


def joint_from_graph(graph: GraphModule) -> Joint:
    """A joint graph as rebuilt from a log, told apart by the names AOTAutograd gives its inputs.

    Raises:
        UsageError: It has no ``tangents_*`` input.
    """
    import torch

    names = [str(node.target) for node in graph.graph.find_nodes(op="placeholder")]
    primals = [name for name in names if not name.startswith("tangents")]
    if len(primals) == len(names):
        raise UsageError("this is no joint graph: it has no tangents_* input")
    outputs = torch.utils._pytree.tree_leaves(graph.graph.output_node().args[0], is_leaf=lambda leaf: leaf is None)
    return Joint(graph=graph, num_forward_outputs=len(outputs) - len(primals))


def partition_function(name: str) -> Callable[..., Any]:
    """The partitioner of that name, as AOTAutograd calls it.

    Raises:
        UsageError: An unknown name.
    """
    names = {"default": "default_partition", "min-cut": "min_cut_rematerialization_partition"}
    if name not in names:
        raise UsageError(f"no partitioner '{name}'; one of {', '.join(PARTITIONERS)}")
    function: Callable[..., Any] = private(f"torch._functorch.partitioners.{names[name]}", f"the partitioner '{name}'")
    return function


def saved(forward: GraphModule, backward: GraphModule, num_forward_outputs: int) -> tuple[Saved, ...]:
    """What crosses from forward to backward: the forward's outputs after its own, each storage once.

    A view of a parameter or input counts as that input: it keeps no memory of its own alive.
    """
    import torch

    outputs = torch.utils._pytree.tree_leaves(forward.graph.output_node().args[0], is_leaf=lambda leaf: leaf is None)
    crossing = dict.fromkeys(node for node in outputs[num_forward_outputs:] if isinstance(node, torch.fx.Node))
    found = []
    counted: set[Node] = set()
    for node in crossing:
        base = node
        while (
            base.op == "call_function" and is_no_op(base) and "clone" not in str(base.target) and base.all_input_nodes
        ):
            base = base.all_input_nodes[0]
        origin = "input" if base.op in ("placeholder", "get_attr") else "activation"
        kept = 0 if base in counted else value_bytes(base.meta.get("val"))
        counted.add(base)
        found.append(Saved(name=node.name, origin=origin, bytes=kept))
    return tuple(found)


def _recomputed(forward: GraphModule, backward: GraphModule) -> list[Node]:
    """Backward nodes that carry the name of a forward node: the partitioner copied them."""
    made = {node.name for node in forward.graph.nodes if node.op == "call_function"}
    return [node for node in backward.graph.nodes if node.op == "call_function" and node.name in made]


def _flops(nodes: list[Node]) -> int:
    return sum(node_flops(node) for node in nodes)


def _lift(gm: GraphModule) -> tuple[list[Any], Any]:
    """Parameters and buffers as leading inputs of a graph that is otherwise the same."""
    import torch

    owned = tensors_of(gm)

    class Flat(torch.nn.Module):
        def forward(self, *flat: Any) -> Any:
            state = dict(zip(owned, flat, strict=False))
            result = torch.func.functional_call(runner, {f"gm.{k}": v for k, v in state.items()}, flat[len(owned) :])
            return tuple(torch.utils._pytree.tree_leaves(result))

    runner = interpreter_module(gm)
    return list(owned.values()), Flat()


@contextmanager
def _budget(budget: float) -> Iterator[None]:
    config = private("torch._functorch.config", "a memory budget")
    with config.patch(activation_memory_budget=budget):
        yield
