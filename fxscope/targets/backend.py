"""A torch.compile backend that runs a target's islands on the target and everything else eagerly."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fxscope.errors import MissingError, UsageError, described
from fxscope.names import ENV_DEBUG
from fxscope.passes.aten import Table, decomposition_table
from fxscope.passes.partition import Benefit, Partition, partition
from fxscope.passes.private import private
from fxscope.passes.split import split
from fxscope.targets.specialise import Specialised, specialisable
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fxscope.targets.target import Executable, Target


@dataclass(kw_only=True)
class Lowered:
    """One graph as a target runs it.

    Attributes:
        kind: ``forward``, ``backward`` or ``inference``.
        aten: The whole graph, before the islands were cut out.
        module: The graph with each island as a submodule ``island_<index>`` that runs on the target.
        executables: By the submodule's name.
    """

    kind: str
    aten: GraphModule
    partition: Partition
    module: GraphModule
    executables: dict[str, Executable] = field(default_factory=dict)

    @property
    def coverage(self) -> float:
        """Share of the compute nodes that the target runs, 0 to 1."""
        total = len(self.partition.phases)
        run = [island for island in self.partition.kept if f"island_{island.index}" in self.executables]
        return sum(len(island.nodes) for island in run) / total if total else 0.0


def lower(
    target: Target,
    gm: GraphModule,
    *,
    kind: str = "inference",
    benefit: Benefit | None = None,
    components: bool = False,
    on_failure: Callable[[str, GraphModule, Exception], None] | None = None,
) -> Lowered:
    """Partition a functional ATen graph and compile its islands.

    Args:
        target: Where islands run.
        gm: Functional ATen with ``meta["val"]``.
        kind: ``forward``, ``backward`` or ``inference``, for reports.
        benefit: See ``partition``; None keeps every island that computes anything.
        components: See ``partition``.
        on_failure: Told the name of an island that the target does not compile, the island and why; it then runs eagerly.

    Raises:
        fxscope.errors.FxscopeError: The target cannot compile an island, and there is no ``on_failure``.
    """
    parts = partition(gm, target.supports, benefit=benefit, components=components)
    module = split(gm, parts)
    made = Lowered(kind=kind, aten=gm, partition=parts, module=module)
    for node in list(module.graph.nodes):
        if node.op == "call_module" and str(node.target).startswith("island_"):
            name = str(node.target)
            island = module.get_submodule(name)
            inputs = [value.meta.get("val") for value in island.graph.find_nodes(op="placeholder")]
            try:
                executable = target.compile(island, inputs)
            except Exception as error:
                if on_failure is None:
                    raise
                on_failure(name, island, error)
                continue
            made.executables[name] = executable
            setattr(module, name, _call_module(executable))
    module.recompile()
    return made


def make_backend(
    target: Target,
    *,
    decompositions: str | Table = "inductor",
    partitioner: str = "default",
    benefit: Benefit | None = None,
    components: bool = False,
    specialise: int = 0,
    on_report: Callable[[Lowered], None] | None = None,
) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
    """A backend for ``torch.compile(model, backend=make_backend(target))``, for inference and training.

    A graph of which the target supports nothing runs eagerly, and a warning says so once, with the commonest reasons. So does an
    island that the target does not compile, and everything where the target cannot run (with FXSCOPE_DEBUG set, its error is raised).

    Args:
        target: Where islands run.
        decompositions: What AOTAutograd takes apart, see ``passes.aten.decomposition_table``.
        partitioner: ``default`` or ``min-cut``: how a training graph becomes forward and backward.
        benefit: See ``passes.partition.partition``.
        components: See ``passes.partition.partition``.
        specialise: How many sets of sizes of a graph with symbolic sizes are compiled, each when it is first called; 0
            lowers such a graph as it is.
        on_report: Called with each lowered graph as it is made.
    """
    lowered: list[Lowered] = []
    feature = f"the backend fxscope_{target.name}"

    def failed(name: str, island: GraphModule, error: Exception) -> None:
        if isinstance(error, MissingError):  # of the machine: the same for all islands, and told once
            text = f"{target.name}: everything runs eagerly: {error}"
        else:
            nodes = count(sum(node.op == "call_function" for node in island.graph.nodes), "node")
            text = f"{target.name}: {name} of {nodes} runs eagerly: {described(error)}"
        warnings.warn(text, stacklevel=2)

    def compiler(kind: str) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
        def build(gm: GraphModule) -> Callable[..., Any]:
            failure = None if os.environ.get(ENV_DEBUG) else failed
            made = lower(target, gm, kind=kind, benefit=benefit, components=components, on_failure=failure)
            lowered.append(made)
            if not made.partition.kept and made.partition.phases:
                warnings.warn(nothing_supported(target.name, made), stacklevel=2)
            if on_report is not None:
                on_report(made)
            return made.module

        def compile_graph(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            make_boxed_func = private("torch._functorch.aot_autograd.make_boxed_func", feature)
            if specialise and specialisable(gm):
                return make_boxed_func(Specialised(gm, build, lambda: build(gm), limit=specialise, name=target.name))
            return make_boxed_func(build(gm))

        return compile_graph

    def backend(gm: GraphModule, inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
        if given:
            raise UsageError(f"fxscope_{target.name} takes no {' or '.join(sorted(given))}")
        from fxscope.passes.joint import partition_function

        aot_autograd = private("torch._dynamo.backends.common.aot_autograd", feature)
        compile_with = aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            partition_fn=partition_function(partitioner),
            decompositions=decomposition_table(decompositions),
        )
        compiled: Callable[..., Any] = compile_with(gm, inputs)
        return compiled

    backend.lowered = lowered  # type: ignore[attr-defined]
    backend.__name__ = f"fxscope_{target.name}"
    return backend


def nothing_supported(name: str, made: Lowered) -> str:
    """The sentence for a graph that runs eagerly as a whole: the three commonest reasons."""
    counts: dict[str, int] = {}
    for failing in made.partition.clauses.values():
        for clause in failing:
            if clause.code != "producer":
                counts[clause.text] = counts.get(clause.text, 0) + 1
    worst = sorted(counts, key=lambda text: (-counts[text], text))[:3]
    reasons = "; ".join(f"{text} ({counts[text]}x)" for text in worst)
    reasons = reasons or "; ".join(dict.fromkeys(island.dropped or "" for island in made.partition.islands))
    return f"{name}: nothing in this {made.kind} graph of {count(len(made.aten.graph.nodes), 'node')} runs on it, so all of it runs eagerly: {reasons}"


def _call_module(executable: Executable) -> Any:
    import torch

    class Island(torch.nn.Module):
        """Calls an executable."""

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            return executable(*inputs)

    return Island()
